"""Secrets of a configuration that are kept elsewhere: `{env: NAME}`, `{file: PATH}` or `{command: ...}` in their place.

Fetches them, knows which environment variables hold some, lists them all and masks them in texts, so that no line of
the log has one. Messages name the place and the reason, never a value.
"""

import base64
import contextlib
import errno
import os
import re
import shlex
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, SecretStr

from turnout.config.config_errors import SettingPath, describe, is_secret
from turnout.config.document import KEEP, at, changed, nodes
from turnout.config.settings import FileOrigin, Settings

COMMAND_SECONDS = 30.0
MOST_BYTES = 64 * 1024
"""Bytes of a file that holds a secret."""
MASK = "********"
REDACTED = "***"
"""Stands for a secret in a document that is shown or kept."""
SECRET_NAMES = r"password|passphrase|secret|jaas|credential|private\.key|ssl\.keystore\.key|ssl\.key\.pem|token$"
"""What the name of a property that holds a secret looks like, whatever its case; Spark's log obeys it too."""
SPARK_SECRET_NAMES = rf"(?i)token|access[.]?key|account[.]key|encryption[.-]key$|[.]sas[.]|{SECRET_NAMES}"
"""What the name of a Spark property that holds a secret looks like."""
_LEAST_HIDDEN = 8
_KINDS = ("env", "file", "command")
VARIABLE = re.compile(r"(?<!\$)\$\{([^}]+)\}")
"""A reference to an environment variable in a text; `$${` is none."""


class _UnavailableError(Exception):
    """Why a secret could not be fetched, and what to do."""


def masked(text: str, values: Iterable[str]) -> str:
    """The text with every one of the secrets masked; of those that are part of another, the longer first."""
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, MASK)
    return text


def hidden(tree: Any, values: Iterable[str]) -> Any:
    """A text, or a copy of a tree of JSON, with every one of the secrets masked."""
    known = tuple(values)
    return changed(tree, lambda _, node: masked(node, known) if isinstance(node, str) else KEEP)


def _changed(tree: Any, change: Callable[[SettingPath, Any], Any]) -> Any:
    """A copy of a document. `change` gets each value that is secret, and gives another, or KEEP."""
    return changed(tree, lambda path, node: change(path, node) if path and is_secret(Settings, path) else KEEP)


def fetch(tree: Any, folder: Path, environ: Mapping[str, str]) -> tuple[Any, dict[SettingPath, str]]:
    """The document with every secret in place, as a copy, and why some could not be fetched."""
    faults: dict[SettingPath, str] = {}

    def put(path: SettingPath, node: Any) -> Any:
        if not isinstance(node, Mapping):
            return KEEP
        try:
            return _fetched(node, folder, environ)
        except _UnavailableError as reason:
            faults[path] = str(reason)
            return ""

    return _changed(tree, put), faults


def kept(tree: Any, known: FileOrigin | None) -> tuple[Any, dict[SettingPath, str], dict[SettingPath, str]]:
    """The document with the secrets that `known` has, where it writes them alike or as `***`.

    Also where these are, and the faults of those that it has not.
    """
    found: dict[SettingPath, str] = {}
    faults: dict[SettingPath, str] = {}

    def put(path: SettingPath, node: Any) -> Any:
        written, value = (at(known.given, path), at(known.filled, path)) if known else (None, None)
        if value is not None and node in (written, REDACTED):
            found[path] = ""
            return value
        if node == REDACTED:
            faults[path] = f"{REDACTED} stands for the current secret, and there is none; write the secret itself"
        return KEEP

    return _changed(tree, put), found, faults


def redacted(tree: Any) -> Any:
    """The document with `***` for each secret that is written out; a reference to a variable or a file stays."""

    def hide(path: SettingPath, node: Any) -> Any:
        if node is None:
            return KEEP
        if isinstance(node, str) and VARIABLE.fullmatch(node):
            return node
        if isinstance(node, Mapping) and len(node) == 1 and next(iter(node)) in ("env", "file"):
            return node
        return REDACTED

    return _changed(tree, hide)


def variables(tree: Any, origins: Mapping[SettingPath, str]) -> Iterator[str]:
    """The environment variables that secrets of the document come from, before they are put in."""
    for path, node in nodes(tree):
        if not is_secret(Settings, path):
            continue
        if path in origins:
            yield origins[path]
        elif isinstance(node, str):
            yield from VARIABLE.findall(node)
        elif isinstance(node, Mapping) and isinstance(node.get("env"), str):
            yield node["env"]


def _fetched(source: Mapping[Any, Any], folder: Path, environ: Mapping[str, str]) -> str:
    kind = next(iter(source), None)
    if len(source) != 1 or kind not in _KINDS:
        raise _UnavailableError("must be text, or one of {env: NAME}, {file: PATH}, {command: ...}; choose one of them")
    value = source[kind]
    if kind == "command":
        return _printed(value, folder)
    if not isinstance(value, str) or not value:
        raise _UnavailableError(f"{kind} must be text, got {describe(value)}; correct it")
    if kind == "file":
        return _read(folder / Path(value).expanduser())
    if value not in environ:
        raise _UnavailableError(f"the environment has no variable '{value}'; set it")
    return environ[value]


def read_small(file: Path, most_bytes: int = MOST_BYTES) -> str:
    """The text of a regular file; OSError for another kind or a larger one. It never waits, as a pipe would make it."""
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    with os.fdopen(handle, "rb") as opened:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        data = opened.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes:,} bytes")
    return data.decode("utf-8")


def _read(file: Path) -> str:
    try:
        return _one_line_less(read_small(file))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise _UnavailableError(f"the file {file} cannot be read ({reason}); give one that holds the secret") from None


def _printed(command: object, folder: Path) -> str:
    """What a command prints. No shell runs it, and what it says on its error output may hold secrets."""
    words: object = command
    if isinstance(command, str):
        try:
            words = shlex.split(command)
        except ValueError:
            words = None
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise _UnavailableError("command must be a command line, or a list of a program and its arguments; correct it")
    quiet, limit = subprocess.DEVNULL, COMMAND_SECONDS
    try:
        printed = subprocess.check_output(words, cwd=folder, stdin=quiet, stderr=quiet, timeout=limit).decode("utf-8")
        if printed.strip():
            return _one_line_less(printed)
        why = "printed nothing; run it by hand"
    except subprocess.TimeoutExpired:
        why = f"took over {limit:g} s; run it by hand"
    except subprocess.CalledProcessError as error:
        why = f"ended with exit code {error.returncode}; run it by hand"
    except OSError as error:
        why = f"cannot be run ({error.strerror}); correct it"
    except UnicodeDecodeError:
        why = "does not print UTF-8 text; correct it"
    raise _UnavailableError(f"the command {words[0]} {why}")


def _one_line_less(text: str) -> str:
    """Without the line break that editors and `echo` put at the end."""
    return text.removesuffix("\n").removesuffix("\r")


def hidden_texts(settings: Settings) -> set[str]:
    """Every secret of the settings, those in files too, in every form that is sent."""
    found = secrets_of(settings)
    if settings.origin is not None:
        found |= set(_fetched_texts(settings.origin))
    auth = settings.schema_registry.auth if settings.schema_registry else None
    pairs = [(auth.username, auth.password)] if auth else []
    if auth and auth.oauth:
        pairs.append((auth.oauth.client_id, auth.oauth.client_secret))
    if settings.access and (oidc := settings.access.oidc):
        pairs.append((quote(oidc.client_id, safe=""), SecretStr(quote(oidc.client_secret.get_secret_value(), safe=""))))
    sent = {f"{name or ''}:{secret.get_secret_value()}" for name, secret in pairs if secret is not None}
    return found | {base64.b64encode(pair.encode()).decode() for pair in sent}


def _fetched_texts(origin: FileOrigin) -> Iterator[str]:
    """What references of raw properties stand for, whatever their names; not the short ones, which are settings."""
    for path, node in nodes(origin.given):
        if is_secret(Settings, path) and (isinstance(node, Mapping) or VARIABLE.search(str(node))):
            value = at(origin.filled, path)
            if isinstance(value, str) and len(value) >= _LEAST_HIDDEN:
                yield value


def secrets_of(settings: BaseModel) -> set[str]:
    """Every secret in some settings, as it was given."""
    return {text for text in _texts(settings) if text}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            held = getattr(value, name)
            if name == "token_file" and isinstance(held, Path):
                with contextlib.suppress(OSError, UnicodeDecodeError):  # the server reports that
                    yield read_small(held).strip()
            yield from _texts(held)
    elif isinstance(value, Mapping):
        for name, held in value.items():
            if isinstance(held, str) and re.search(SPARK_SECRET_NAMES, str(name)):
                yield held
            yield from _texts(held)
    elif isinstance(value, (tuple, list)):
        for held in value:
            yield from _texts(held)
