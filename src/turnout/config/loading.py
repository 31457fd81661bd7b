"""turnout.yaml: reading the settings from a file and the environment, with all faults at once.

Whether Kafka, Spark or the topics are really there is not asked here.
"""

import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from turnout.config import config_errors, secrets
from turnout.config import document as yaml_document
from turnout.config.auth import ALLOWED_URLS
from turnout.config.checks import ValidParts, cross_faults
from turnout.config.settings import Settings, default_sources, default_views
from turnout.errors import ConfigError


def default_text() -> str:
    """The commented default file, which `turnout init` writes."""
    return resources.files(__package__).joinpath("template.yaml").read_text(encoding="utf-8")


def load(path: Path, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of a file and the environment; ConfigError has all their faults."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError([f"{path}: there is no such file; `turnout init` writes one"]) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError([f"{path}: cannot be read ({reason}); `turnout init` writes one"]) from None
    document, wrong = yaml_document.parse_yaml(text)
    if wrong:
        raise ConfigError(f"{path}: {fault}" for fault in wrong)
    if document is not None and not isinstance(document, dict):
        kind = "a list" if isinstance(document, list) else "a single value"
        raise ConfigError(
            [f"{path}: must be a mapping of settings, got {kind}; `turnout init` writes a file to start from"]
        )
    return parse(document or {}, path.parent, os.environ if environ is None else environ)


def parse(document: Mapping[str, Any], folder: Path, environ: Mapping[str, str]) -> Settings:
    """The settings of a document whose relative paths start at `folder`; ConfigError has all faults."""
    # A section of which only comments are left is null: it has its defaults.
    given = {name: value for name, value in document.items() if value is not None}
    raw = {"sources": default_sources(), "views": default_views()} | given
    raw, origins, wrong = yaml_document.override(raw, Settings, environ)
    held = frozenset(secrets.variables(raw, Settings, origins))
    filled, unset = yaml_document.substitute(raw, environ, origins)
    filled, unfetched = secrets.fetch(filled, Settings, folder, environ)
    unset |= unfetched
    filled = {name: value for name, value in filled.items() if value is not None}

    def shown(path: config_errors.SettingPath) -> str:
        variable = next((origins[path[:n]] for n in range(len(path), 0, -1) if path[:n] in origins), None)
        return f"{config_errors.place(path)} (from {variable})" if variable else config_errors.place(path)

    found = list(unset.items())
    settings = None
    try:
        settings = Settings.model_validate(filled, context=folder)
    except ValidationError as error:
        found += config_errors.from_pydantic(error, Settings)
    found += cross_faults(ValidParts(filled))
    # What else is said of a value whose variable is missing is about the name of the variable.
    wrong += [f"{shown(path)}: {text}" for path, text in found if path not in unset or text == unset[path]]
    if "views" not in given and "sources" in given and any(fault.startswith("views.") for fault in wrong):
        wrong.append("views: not in the file, so the default view applies; describe your own, or write `views: {}`")
    if settings is None or wrong:
        raise ConfigError(yaml_document.unfilled(fault, raw, filled) for fault in wrong)
    settings = _with_java_options(settings)
    settings._secret_variables = held
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
