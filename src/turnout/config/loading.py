"""turnout.yaml: reading the settings from a file and the environment, with all faults at once.

Whether Kafka, Spark or the topics are really there is not asked here.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from turnout.config import config_errors, secrets
from turnout.config import document as yaml_document
from turnout.config.auth import ALLOWED_URLS
from turnout.config.checks import ValidParts, cross_faults
from turnout.config.settings import FileOrigin, Settings, default_sources, default_views
from turnout.errors import MOST_FAULTS, ConfigError


def default_text() -> str:
    """The commented default file, which `turnout init` writes."""
    return resources.files(__package__).joinpath("template.yaml").read_text(encoding="utf-8")


def load(path: Path, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of a file and the environment; ConfigError has all their faults."""
    settings = parse(read_document(path), path.parent, os.environ if environ is None else environ)
    assert settings._origin is not None
    settings._origin = replace(settings._origin, path=path.absolute())
    return settings


def read_document(path: Path) -> dict[str, Any]:
    """The document of a file, not looked into; ConfigError where it is none."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError([f"{path}: there is no such file; `turnout init` writes one"]) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError([f"{path}: cannot be read ({reason}); `turnout init` writes one"]) from None
    return document_of(text, str(path))


def document_of(text: str, name: str) -> dict[str, Any]:
    """The document in a text; ConfigError, with the name of the text, where it is none."""
    document, wrong = yaml_document.parse_yaml(text)
    if wrong:
        raise ConfigError(f"{name}: {fault}" for fault in wrong)
    if document is not None and not isinstance(document, dict):
        kind = "a list" if isinstance(document, list) else "a single value"
        raise ConfigError(
            [f"{name}: must be a mapping of settings, got {kind}; `turnout init` writes a file to start from"]
        )
    return document or {}


def completed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with the default sources and views where it has none."""
    # A section of which only comments are left is null: it has its defaults.
    given = {name: value for name, value in document.items() if value is not None}
    return {"sources": default_sources(), "views": default_views()} | given


def parse(
    document: Mapping[str, Any], folder: Path, environ: Mapping[str, str], known: FileOrigin | None = None
) -> Settings:
    """The settings of a document whose relative paths start at `folder`; ConfigError has all faults.

    A secret that is written as in `known`, or as `***`, has the value that it has there.
    """
    written = completed(document)
    raw, origins, wrong = yaml_document.override(written, Settings, environ)
    held = frozenset(secrets.variables(raw, Settings, origins))
    kept, hidden, unknown = secrets.kept(raw, Settings, known)
    filled, unset = yaml_document.substitute(kept, environ, {**origins, **hidden})
    filled, unfetched = secrets.fetch(filled, Settings, folder, environ)
    unset |= unfetched | unknown
    filled = {name: value for name, value in filled.items() if value is not None}

    def shown(path: config_errors.SettingPath) -> str:
        variable = next((origins[path[:n]] for n in range(len(path), 0, -1) if path[:n] in origins), None)
        return f"{config_errors.place(path)} (from {variable})" if variable else config_errors.place(path)

    found = list(unset.items())
    settings = None
    try:
        settings = Settings.model_validate(filled, context=folder)
    except ValidationError as error:
        found += islice(config_errors.from_pydantic(error, Settings), MOST_FAULTS + 1)
    found += islice(cross_faults(ValidParts(filled)), MOST_FAULTS + 1)
    # What else is said of a value whose variable is missing is about the name of the variable.
    wrong += [f"{shown(path)}: {text}" for path, text in found if path not in unset or text == unset[path]]
    has_views, has_sources = (document.get(name) is not None for name in ("views", "sources"))
    if has_sources and not has_views and any(fault.startswith("views.") for fault in wrong):
        wrong.append("views: not in the file, so the default view applies; describe your own, or write `views: {}`")
    if settings is None or wrong:
        raise ConfigError(yaml_document.unfilled(wrong, raw, filled))
    settings = _with_java_options(settings)
    settings._secret_variables = held
    settings._origin = FileOrigin(written, raw, filled, folder, dict(environ), known.path if known else None)
    return settings


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
