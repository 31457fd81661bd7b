"""Schemas of sources that are not JSON: from a file, or from a registry as their ids are met."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from turnout.config import Format, Settings, SourceSettings
from turnout.config.secrets import read_small
from turnout.decode.exact_reader import open_reader
from turnout.decode.shape import Definition
from turnout.errors import ConfigError
from turnout.schemas.registry import MOST_REFERENCES, RegisteredSchema, SchemaRegistry

_ASK_AGAIN_SECONDS = 30.0
"""How long it is believed that a registry has no schema of an id."""
_SECOND_LOOK_SECONDS = 0.3
"""A registry of several nodes may not know everywhere what was registered just now."""
_ASKED_AT_ONCE = 8
_COMPILE_SECONDS = 30.0
_MOST_BYTES = 1_000_000
"""Bytes of a file with a schema."""
_NO_FILE_NAME = (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG)


class Schemas:
    """The schemas of a source's records: one, from a file, unless the class below asks a registry."""

    framed = False
    """Whether each record begins with the id of its schema."""

    def __init__(self, known: dict[int, Definition]) -> None:
        self.known = known

    def find(self, numbers: Collection[int]) -> Mapping[int, Definition | str]:
        """The schemas of these ids, or why one cannot be used; TurnoutError where nobody knows."""
        return self.known


class RegistrySchemas(Schemas):
    """The schemas of one format in a registry, by id."""

    framed = True

    def __init__(self, registry: SchemaRegistry, form: Format) -> None:
        super().__init__({})
        self._registry = registry
        self._form = form
        self._asking = threading.Lock()
        self._absent: dict[int, tuple[str, float]] = {}

    def find(self, numbers: Collection[int]) -> Mapping[int, Definition | str]:
        with self._asking:
            now = time.monotonic()
            self._absent = {n: (why, until) for n, (why, until) in self._absent.items() if until > now}
            new = [number for number in numbers if number not in self.known and number not in self._absent]
            if new:
                found = self._ask(new)
                if missing := [number for number in new if found[number] is None]:
                    time.sleep(_SECOND_LOOK_SECONDS)
                    found |= self._ask(missing)
                for number, schema in found.items():
                    self._take(number, schema)
            return {number: why for number, (why, _) in self._absent.items()} | self.known

    def _ask(self, numbers: Sequence[int]) -> dict[int, RegisteredSchema | None]:
        with ThreadPoolExecutor(min(_ASKED_AT_ONCE, len(numbers)), "turnout-registry") as threads:
            return dict(zip(numbers, threads.map(self._registry.schema, numbers), strict=True))

    def _take(self, number: int, schema: RegisteredSchema | None) -> None:
        try:
            self.known[number] = definition_of(self._form, number, schema)
        except ValueError as error:
            self._absent[number] = (str(error), time.monotonic() + _ASK_AGAIN_SECONDS)


def definition_of(form: Format, number: int, schema: RegisteredSchema | None) -> Definition:
    """What a reader needs of a registered schema; ValueError says why it cannot be used."""
    if schema is None:
        raise ValueError(f"schema {number} is not in the registry")
    if schema.kind != form.value.upper():
        raise ValueError(f"schema {number} is {schema.kind}, not {form.value.upper()}")
    try:
        if len(list(schema.all())) > MOST_REFERENCES:
            raise ValueError(f"it refers to more than {MOST_REFERENCES} others")
        if schema.missing is not None:
            raise ValueError(f"it refers to {schema.missing}, which is not in the registry")
        if form is Format.PROTOBUF:
            name = f"schema-{number}.proto"
            files = {name: schema.text} | {of: one.text for of, one in schema.all()}
            definition: Definition = (compiled(files, name), name, None)
        else:
            definition = (*(one.text for _, one in dict(schema.all()).items()), schema.text)
        open_reader(form.value, definition, ())
    except ValueError as error:
        raise ValueError(f"schema {number} cannot be used: {error}") from None
    return definition


def compiled(files: Mapping[str, str], main: str) -> bytes:
    """The descriptors of Protobuf files, with all that they import; ValueError is what the compiler says."""
    with tempfile.TemporaryDirectory(prefix="turnout-proto-") as folder:
        for name, text in files.items():
            place = (Path(folder) / name).resolve()
            if not place.is_relative_to(Path(folder).resolve()):
                raise ValueError(f"{name!r} is not a file name")
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, encoding="utf-8")
            except OSError as error:
                if error.errno not in _NO_FILE_NAME:
                    raise
                raise ValueError(f"{name[:80]!r} is not a file name") from None
        out = Path(folder) / "descriptors"
        words = ["--include_imports", f"--descriptor_set_out={out}", f"--proto_path={folder}", main]
        command = [sys.executable, "-m", "grpc_tools.protoc", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False)
        if done.returncode or not out.exists():
            said = done.stderr.replace(f"{folder}/", "").strip().splitlines() or ["protoc failed"]
            raise ValueError(next((line for line in said if line.startswith(tuple(files))), said[-1]))
        return out.read_bytes()


def registered(settings: Settings) -> dict[Format, RegistrySchemas]:
    """The schemas of the registry, where there is one; what it answered is kept for all who share them."""
    if settings.schema_registry is None:
        return {}
    registry = SchemaRegistry(settings.schema_registry)
    return {form: RegistrySchemas(registry, form) for form in Format}


def schemas_of(settings: Settings, shared: Mapping[Format, RegistrySchemas] | None = None) -> dict[str, Schemas]:
    """The schemas of each source that is not JSON; ConfigError where a file has no schema. Nothing is connected to."""
    shared = registered(settings) if shared is None else shared
    found: dict[str, Schemas] = {}
    wrong = []
    for name, source in settings.sources.items():
        if source.format is Format.JSON:
            continue
        if source.format is Format.PROTOBUF and not _has_protobuf():
            wrong.append(f"sources.{name}.format: protobuf needs further packages; pip install 'turnout[protobuf]'")
            continue
        try:
            schemas = shared[source.format] if source.schema_file is None else Schemas({0: _from_file(source)})
        except ValueError as error:
            wrong.append(f"sources.{name}.schema_file: {source.schema_file}: {error}; correct it or name another")
        else:
            found[name] = schemas
    if wrong:
        raise ConfigError(wrong)
    return found


def _has_protobuf() -> bool:
    with contextlib.suppress(ModuleNotFoundError):
        return all(importlib.util.find_spec(name) for name in ("google.protobuf", "grpc_tools"))
    return False


def _from_file(source: SourceSettings) -> Definition:
    file = source.schema_file
    assert file is not None
    try:
        text = read_small(file, _MOST_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError((isinstance(error, OSError) and error.strerror) or "it is not UTF-8 text") from None
    definition: Definition = (text,)
    try:
        if source.format is Format.PROTOBUF:
            definition = _from_proto(file, text, source.message)
        open_reader(source.format.value, definition, ())
    except ValueError as error:
        raise ValueError(_without_content(error)) from None
    return definition


def _without_content(error: ValueError) -> str:
    """The fault of a schema file without words of the file: any file may be named as one."""
    cause = error.__cause__
    if cause is not None and not isinstance(cause, json.JSONDecodeError):
        return f"it is not a schema ({type(cause).__name__})"
    return re.sub(r'"[^"]*"', '"..."', str(error))


def _from_proto(file: Path, text: str, message: str | None) -> Definition:
    from google.protobuf import descriptor_pb2

    others = [other for other in file.parent.glob("*.proto") if other.is_file()]
    beside = {other.name: other.read_text(encoding="utf-8") for other in others}
    described = compiled(beside | {file.name: text}, file.name)
    main = next(f for f in descriptor_pb2.FileDescriptorSet.FromString(described).file if f.name == file.name)
    names = [one.name for one in main.message_type]
    wanted = (message or names[0] if names else "").removeprefix(f"{main.package}.")
    if wanted not in names:
        raise ValueError(f"has no message {message or ''} (has: {', '.join(names)})".replace("  ", " "))
    return described, file.name, (names.index(wanted),)
