"""turnout.yaml: reading the settings from a file and the environment, with all faults at once.

Whether Kafka, Spark or the topics are really there is not asked here.
"""

import os
from collections.abc import Iterable, Mapping
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from turnout.config import config_errors, secrets
from turnout.config import document as yaml_document
from turnout.config.auth import ALLOWED_URLS
from turnout.config.checks import ValidParts, cross_faults
from turnout.config.output_checks import filter_faults
from turnout.config.settings import FileOrigin, Settings, default_sources, default_views
from turnout.errors import MOST_FAULTS, ConfigError
from turnout.plan.joins import KNOWN_JOINS
from turnout_client.column_types import KNOWN_TYPES


def default_text() -> str:
    """The commented default file, which `turnout init` writes."""
    text = resources.files(__package__).joinpath("template.yaml").read_text(encoding="utf-8")
    return text.replace("KNOWN_TYPES", KNOWN_TYPES).replace("KNOWN_JOINS", KNOWN_JOINS)


def load(path: Path, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of a file and the environment; ConfigError has all their faults."""
    text = _read(path)
    document, wrong = _mapping(text, str(path))
    environ = os.environ if environ is None else environ
    return parse(document, path.parent, environ, text=text, wrong=wrong, path=path.absolute())


def read_document(path: Path) -> dict[str, Any]:
    """The document of a file, not validated; ConfigError where it is none."""
    return document_of(_read(path), str(path))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError([f"{path}: there is no such file; `turnout init` writes one"]) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError([f"{path}: cannot be read ({reason}); `turnout init` writes one"]) from None


def document_of(text: str, name: str) -> dict[str, Any]:
    """The document in a text; ConfigError, with the name of the text, where it is none or has a name twice."""
    document, wrong = _mapping(text, name)
    if wrong:
        raise ConfigError(wrong)
    return document


def _mapping(text: str, name: str) -> tuple[dict[str, Any], list[str]]:
    """The document in a text, and the names that it has twice; ConfigError where the text is no mapping."""
    document, wrong = yaml_document.parse_yaml(text)
    wrong = [f"{name}: {fault}" for fault in wrong]
    if document is None and wrong:
        raise ConfigError(wrong)
    if document is not None and not isinstance(document, dict):
        kind = "a list" if isinstance(document, list) else "a single value"
        raise ConfigError(
            [f"{name}: must be a mapping of settings, got {kind}; `turnout init` writes a file to start from"]
        )
    return document or {}, wrong


def completed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with the default sources and views where it has none."""
    # A section of which only comments are left is null: it has its defaults.
    given = {name: value for name, value in document.items() if value is not None}
    return {"sources": default_sources(), "views": default_views()} | given


def parse(
    document: Mapping[str, Any],
    folder: Path,
    environ: Mapping[str, str],
    known: FileOrigin | None = None,
    *,
    text: str = "",
    wrong: Iterable[str] = (),
    path: Path | None = None,
) -> Settings:
    """The settings of a document whose relative paths start at `folder`; ConfigError has all faults.

    A secret that is written as in `known`, or as `***`, has the value that it has there. Faults name the lines of
    `text`, which the document was read from; `wrong` are faults that reading it had, and `path` is its file.
    """
    written = completed(document)
    raw, origins, unread = yaml_document.override(written, Settings, environ)
    wrong = [*wrong, *unread]
    kept, hidden, unknown = secrets.kept(raw, known)
    filled, unset = yaml_document.substitute(kept, environ, {**origins, **hidden})
    filled, unfetched = secrets.fetch(filled, folder, environ)
    unset |= unfetched | unknown
    filled = completed(filled)

    faults = list(unset.items())
    settings = None
    try:
        settings = Settings.model_validate(filled, context=folder)
    except ValidationError as error:
        faults += islice(config_errors.from_pydantic(error, Settings), MOST_FAULTS + 1)
    parts = ValidParts(filled)
    faults += islice(cross_faults(parts), MOST_FAULTS + 1)
    faults += islice(filter_faults(parts.alerts, filled, [path for path, _ in faults]), MOST_FAULTS + 1)
    root = yaml_document.root_node(text) if faults else None
    # What else is said of a value whose variable is missing is about the name of the variable.
    wrong += [
        f"{_origin(path, origins, root)}: {fault}"
        for path, fault in faults
        if path not in unset or fault == unset[path]
    ]
    has_views, has_sources = (document.get(name) is not None for name in ("views", "sources"))
    if has_sources and not has_views and any(fault.startswith("views.") for fault in wrong):
        wrong.append("views: not in the file, so the default view applies; describe your own, or write `views: {}`")
    if settings is None or wrong:
        raise ConfigError(yaml_document.unfilled(wrong, raw, filled))
    settings = _with_java_options(settings)
    path = known.path if known else path
    variables = frozenset(secrets.variables(raw, origins))
    settings._origin = FileOrigin(written, raw, filled, folder, dict(environ), variables, path)
    return settings


def _origin(path: config_errors.SettingPath, origins: Mapping[config_errors.SettingPath, str], root: Any) -> str:
    """A setting with the variable or, in front, the line that it comes from."""
    variable = next((origins[path[:n]] for n in range(len(path), 0, -1) if path[:n] in origins), None)
    if variable is not None:
        return f"{config_errors.place(path)} (from {variable})"
    line = yaml_document.line_of(root, path)
    return ("" if line is None else f"line {line}: ") + config_errors.place(path)


def _with_java_options(settings: Settings) -> Settings:
    """Token endpoints must be allowed in every JVM that runs a Kafka client, so Spark's own get them at their start."""
    clusters = (settings.kafka, settings.control_kafka)
    urls = {kafka.auth.oauth.token_endpoint for kafka in clusters if kafka.auth and kafka.auth.oauth}
    if not urls:
        return settings
    conf = dict(settings.spark.conf)
    for name in ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"):
        given = conf.get(name, "")
        if ALLOWED_URLS not in given:
            conf[name] = f"{given} -D{ALLOWED_URLS}={','.join(sorted(urls))}".strip()
    return settings.model_copy(update={"spark": settings.spark.model_copy(update={"conf": conf})})
