"""The token by which `turnout apply` proves to a server without `access:` that the same user runs it.

The server makes a new one at each start, in a file of `data_dir` that only its user can read.
"""

import contextlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from turnout.config.document import override, substitute
from turnout.config.loading import read_document
from turnout.config.secrets import read_small
from turnout.config.settings import Settings
from turnout.errors import ConfigError

TOKEN_FILE = "apply-token"


def make(data_dir: Path) -> str:
    """Write a new token, which takes the place of the one before it; the folder must be there."""
    token, new = secrets.token_urlsafe(32), data_dir / f"{TOKEN_FILE}.new"
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token)
    new.replace(data_dir / TOKEN_FILE)
    return token


def find(file: Path, environ: Mapping[str, str]) -> str | None:
    """The token of the server that runs by a file, found by its `data_dir`; None where it cannot be read."""
    with contextlib.suppress(ConfigError, OSError, RuntimeError, TypeError, ValueError):
        given, _, _ = override({"data_dir": read_document(file).get("data_dir")}, Settings, environ)
        filled, _ = substitute(given["data_dir"], environ, {})
        data_dir = Path(filled or Settings.model_fields["data_dir"].default).expanduser()
        return read_small(file.parent / data_dir / TOKEN_FILE)
    return None
