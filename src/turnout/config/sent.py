"""What a configuration that was sent may say: the file on disk is trusted, a text that comes over HTTP is not.

A reference (`${NAME}`, `{env: ...}`, `{file: ...}`, `{command: ...}`) is taken only where the file in force has the
same one, and a path only below the folder of that file. It is decided before anything is run, read or filled in.
`access.apply` says which of the settings a sender may change.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turnout.config.auth import Faults
from turnout.config.config_errors import SettingPath, annotation_at, is_secret, place
from turnout.config.document import nodes
from turnout.config.secrets import at
from turnout.config.server import ApplyAccess
from turnout.config.settings import FileOrigin, Settings
from turnout.errors import ConfigError

_ON_DISK = "change the file on disk and restart"


def check(document: Mapping[str, Any], known: FileOrigin) -> None:
    """Refuse a sent document with references or paths that are not those of the file in force: ConfigError."""
    if wrong := [f"{place(path)}: {text}" for path, text in _faults(document, known)]:
        raise ConfigError(wrong)


def _faults(document: Mapping[str, Any], known: FileOrigin) -> Faults:
    for path, node in nodes(document):
        if node == at(known.document, path):
            continue
        if _is_reference(path, node):
            what = "a reference (${NAME}, {env}, {file}, {command}) must be the one that the file in force has here"
            yield path, f"{what}; write the value itself, or {_ON_DISK}"
        elif is_path(path) and isinstance(node, str) and not _is_below(known.folder, node):
            what = "a path must lie below the folder of the file that the server was started with"
            yield path, f"{what}; put the file there, or {_ON_DISK}"


def _is_reference(path: SettingPath, node: Any) -> bool:
    if isinstance(node, str):
        return "${" in node.replace("$${", "")
    return isinstance(node, Mapping) and is_secret(Settings, path)


def is_path(path: SettingPath) -> bool:
    """Whether the setting names a file or a folder."""
    return annotation_at(Settings, path) is Path or path[-1] == "shared_dir"  # which may be a URL, so it is text


def _is_below(folder: Path, text: str) -> bool:
    try:
        return (folder / Path(text).expanduser()).resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):
        return False


def allowed(settings: Settings) -> ApplyAccess:
    """What senders may change. Without `access:` a sender has proven to be the server's user, who may change all."""
    return settings.access.apply if settings.access else ApplyAccess.ALL


def beyond_tables(old: Settings, new: Settings) -> list[str]:
    """The changes that need `access.apply: all`: own SQL that is new or changed, and what control messages may name."""
    before = {name: view.sql for name, view in old.views.items()}
    found = [f"views.{name}.sql" for name, view in new.views.items() if view.sql not in (None, before.get(name))]
    return found + (["control.topics"] if old.control.topics != new.control.topics else [])
