"""What a configuration that was sent may say: the file on disk is trusted, a text that comes over HTTP is not.

A reference (`${NAME}`, `{env: ...}`, `{file: ...}`, `{command: ...}`) is taken only where the file in force has the
same one, and a path only below the folder of that file. Secret headers stay with the address of their webhook. That is
decided before anything is run, read or filled in.
`access.apply` says which of the settings a sender may change.

Without `access:` a sender proves to be the server's user by a token. The server makes a new one at each start, in a
file of `data_dir` that only its user can read.
"""

import contextlib
import os
import secrets
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from turnout.config.config_errors import Faults, SettingPath, annotation_at, is_secret, place
from turnout.config.document import at, nodes, override, substitute
from turnout.config.loading import read_document
from turnout.config.secrets import REDACTED, read_small
from turnout.config.server import ApplyAccess
from turnout.config.settings import FileOrigin, Settings
from turnout.errors import ConfigError

TOKEN_FILE = "apply-token"
_ON_DISK = "change the file on disk and restart"


def check(document: Mapping[str, Any], known: FileOrigin) -> None:
    """Refuse a sent document with references or paths that are not those of the file in force: ConfigError."""
    faults = (f"{place(path)}: {text}" for path, text in _faults(document, known))
    if (first := next(faults, None)) is not None:
        raise ConfigError(chain([first], faults))


def _faults(document: Mapping[str, Any], known: FileOrigin) -> Faults:
    _, of_environment, _ = override(dict(document), Settings, known.environ)
    for path, node in nodes(document):
        if node == at(known.document, path):
            continue
        if _is_reference(path, node):
            what = "a reference (${NAME}, {env}, {file}, {command}) must be the same as in the current file"
            yield path, f"{what}; write the value itself, or {_ON_DISK}"
        elif is_path(path) and isinstance(node, str) and not _is_below(known.folder, node):
            what = "a path must lie below the folder of the file that the server was started with"
            yield path, f"{what}; put the file there, or {_ON_DISK}"
        elif path[0] == "alerts" and path[2:] == ("to", "webhook") and node != REDACTED:
            # A sender must not have secrets that only the server knows sent to an address of its own.
            headers = (*path[:3], "headers")
            written = (value for _, value in nodes(at(document, headers)))
            added = (place[: len(headers)] == headers[: len(place)] for place in of_environment)
            if any(added) or any(_is_reference(path, value) or value == REDACTED for value in written):
                what = "a new address gets no secret of the current file"
                yield path, f"{what}; write its headers without references, or {_ON_DISK}"


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
    """The changes that need `access.apply: all`: own SQL and webhooks that are new or changed, and `control.topics`."""
    before = {name: view.sql for name, view in old.views.items()}
    found = [f"views.{name}.sql" for name, view in new.views.items() if view.sql not in (None, before.get(name))]
    targets = {name: alert.to for name, alert in old.alerts.items()}
    changed = [name for name, alert in new.alerts.items() if alert.to.webhook and alert.to != targets.get(name)]
    found += [f"alerts.{name}.to" for name in changed]
    return found + (["control.topics"] if old.control.topics != new.control.topics else [])


def make_local_token(data_dir: Path) -> str:
    """Write a new token, which takes the place of the one before it; the folder must be there."""
    token, new = secrets.token_urlsafe(32), data_dir / f"{TOKEN_FILE}.new"
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token)
    new.replace(data_dir / TOKEN_FILE)
    return token


def find_local_token(file: Path, environ: Mapping[str, str]) -> str | None:
    """The token of the server that runs by a file, found by its `data_dir`; None where it cannot be read."""
    with contextlib.suppress(ConfigError, OSError, RuntimeError, TypeError, ValueError):
        given, _, _ = override({"data_dir": read_document(file).get("data_dir")}, Settings, environ)
        filled, _ = substitute(given["data_dir"], environ, {})
        data_dir = Path(filled or Settings.model_fields["data_dir"].default).expanduser()
        return read_small(file.parent / data_dir / TOKEN_FILE)
    return None
