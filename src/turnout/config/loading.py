"""turnout.yaml: reading the settings from a file and the environment, with all faults at once.

Whether Kafka, Spark or the topics are really there is not asked here.
"""

import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from turnout.config import config_errors, secrets
from turnout.config import document as yaml_document
from turnout.config.auth import ALLOWED_URLS, RegistrySettings
from turnout.config.checks import cross_faults
from turnout.config.settings import (
    AccessSettings,
    ControlSettings,
    KafkaSettings,
    Settings,
    SourceSettings,
    ViewSettings,
    default_sources,
    default_views,
)
from turnout.errors import ConfigError

_M = TypeVar("_M", bound=BaseModel)


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

    def shown(path: config_errors.Path) -> str:
        variable = next((origins[path[:n]] for n in range(len(path), 0, -1) if path[:n] in origins), None)
        return f"{config_errors.place(path)} (from {variable})" if variable else config_errors.place(path)

    found = list(unset.items())
    settings = None
    try:
        settings = Settings.model_validate(filled)
    except ValidationError as error:
        found += config_errors.from_pydantic(error, Settings)
    found += cross_faults(_Pieces(filled))
    # What else is said of a value whose variable is missing is about the name of the variable.
    wrong += [f"{shown(path)}: {text}" for path, text in found if path not in unset or text == unset[path]]
    if "views" not in given and "sources" in given and any(fault.startswith("views.") for fault in wrong):
        wrong.append("views: not in the file, so the default view applies; describe your own, or write `views: {}`")
    if settings is None or wrong:
        raise ConfigError(yaml_document.unfilled(fault, raw, filled) for fault in wrong)
    settings = _with_java_options(_located(settings, folder))
    settings._secret_variables = held
    return settings


class _Pieces:
    """The parts of a document that are valid by themselves: checks between them run beside other faults."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.kafka = _valid(KafkaSettings, document.get("kafka", {}))
        self.control = _valid(ControlSettings, document.get("control", {}))
        self.access = _valid(AccessSettings, document.get("access"))
        self.has_registry = document.get("schema_registry") is not None
        self.schema_registry = _valid(RegistrySettings, document.get("schema_registry"))
        self.sources = _each(SourceSettings, document.get("sources", default_sources()))
        self.views = _each(ViewSettings, document.get("views", default_views()))
        self.dead_letter_topic = document.get("dead_letter_topic")
        self.no_source = document.get("sources") == {}


def _valid(model: type[_M], value: object) -> _M | None:
    try:
        return model.model_validate(value)
    except ValidationError:
        return None


def _each(model: type[_M], items: object) -> dict[str, _M | None]:
    if not isinstance(items, Mapping):
        return {}
    return {str(name): _valid(model, value) for name, value in items.items()}


def _located(settings: Settings, folder: Path) -> Settings:
    """The settings with absolute paths."""

    def kafka(cluster: KafkaSettings) -> KafkaSettings:
        return (
            cluster if cluster.auth is None else cluster.model_copy(update={"auth": _with_files(cluster.auth, folder)})
        )

    control = settings.control
    if control.kafka is not None:
        control = control.model_copy(update={"kafka": kafka(control.kafka)})
    access = settings.access
    if access is not None:
        tokens = tuple(
            token.model_copy(update={"token_file": (folder / token.token_file.expanduser()).resolve()})
            if token.token_file
            else token
            for token in access.tokens
        )
        access = access.model_copy(update={"tokens": tokens})
    registry = settings.schema_registry
    if registry is not None and registry.auth is not None:
        registry = registry.model_copy(update={"auth": _with_files(registry.auth, folder)})
    spark = settings.spark
    if spark.shared_dir is not None and "://" not in spark.shared_dir:
        spark = spark.model_copy(update={"shared_dir": str((folder / Path(spark.shared_dir).expanduser()).resolve())})
    located = {
        "kafka": kafka(settings.kafka),
        "control": control,
        "schema_registry": registry,
        "sources": {name: _with_files(source, folder) for name, source in settings.sources.items()},
        "access": access,
        "spark": spark,
        "data_dir": (folder / settings.data_dir.expanduser()).resolve(),
    }
    return settings.model_copy(update=located)


def _with_files(model: _M, folder: Path) -> _M:
    """A model whose paths, and those of the models in it, are absolute."""
    changed: dict[str, Any] = {}
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, Path):
            changed[name] = (folder / value.expanduser()).resolve()
        elif isinstance(value, BaseModel):
            changed[name] = _with_files(value, folder)
    return model.model_copy(update=changed)


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
