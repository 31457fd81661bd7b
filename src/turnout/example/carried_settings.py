"""The settings of one file for another: all but its sources and views, and secrets by reference only.

A secret that the file has as `${NAME}`, `{env: ...}`, `{file: ...}` or `{command: ...}` keeps that form. One that
stands there as it is becomes a variable, which has to be set.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from turnout.config.config_errors import SettingPath, annotation_at, is_secret
from turnout.config.document import KEEP, changed
from turnout.config.secrets import SPARK_SECRET_NAMES
from turnout.config.settings import Settings

LEFT_BEHIND = ("sources", "views", "sinks", "start")
_REFERENCE = re.compile(r"\$\{[^}]+\}")


def carried(document: Mapping[str, Any], folder: Path, target: Path) -> tuple[dict[str, Any], list[str]]:
    """The settings of a file in `folder` for one in `target`, and the variables in the place of plain secrets."""
    variables: list[str] = []
    moved = folder.resolve() != target.resolve()

    def change(path: SettingPath, node: Any) -> Any:
        if not path:
            return KEEP
        if is_secret(Settings, path):
            if isinstance(node, Mapping):
                return {"file": _placed(node["file"], folder)} if moved and "file" in node else node
            if isinstance(node, str) and not _refers(path, node) and _holds_secret(path):
                variables.append(re.sub(r"[^A-Za-z0-9]+", "_", "_".join(map(str, path))).upper())
                return f"${{{variables[-1]}}}"
            return node
        is_path = annotation_at(Settings, path) is Path or path[-1] == "shared_dir"
        return _placed(node, folder) if moved and is_path else KEEP

    kept = {name: value for name, value in document.items() if name not in LEFT_BEHIND and value is not None}
    found: dict[str, Any] = changed(kept, change)
    return found, variables


def _refers(path: SettingPath, text: str) -> bool:
    """Whether a secret is not in the text itself. A raw property has words besides the variable, such as a login's."""
    if annotation_at(Settings, path) is SecretStr:
        return _REFERENCE.fullmatch(text) is not None
    return re.search(rf"(?<!\$){_REFERENCE.pattern}", text) is not None


def _holds_secret(path: SettingPath) -> bool:
    """Raw properties may hold secrets; those whose name does not look so are needed as they are."""
    raw = annotation_at(Settings, path[:-1]) == dict[str, str]
    return not raw or re.search(SPARK_SECRET_NAMES, str(path[-1])) is not None


def _placed(text: Any, folder: Path) -> Any:
    """A path that begins at the folder of the file, from wherever it is read."""
    if not isinstance(text, str) or "://" in text or text.startswith(("~", "${")):
        return text
    return str((folder / text).resolve())
