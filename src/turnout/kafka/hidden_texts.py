"""Every secret of a configuration as text, so that no line of the log has one, whoever writes it."""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr

from turnout.config.settings import Settings
from turnout.kafka.security import SECRET_NAMES

SPARK_SECRET_NAMES = rf"(?i)token|access[.]?key|account[.]key|encryption[.-]key$|[.]sas[.]|{SECRET_NAMES}"
"""What the name of a Spark property that holds a secret looks like."""


def hidden_texts(settings: Settings) -> set[str]:
    """The secrets of Kafka, the registry, Spark and the tokens, those in files too, in every form that is sent."""
    found = secrets_of(settings)
    auth = settings.schema_registry.auth if settings.schema_registry else None
    pairs = [(auth.username, auth.password)] if auth else []
    if auth and auth.oauth:
        pairs.append((auth.oauth.client_id, auth.oauth.client_secret))
    sent = {f"{name or ''}:{secret.get_secret_value()}" for name, secret in pairs if secret is not None}
    return found | {base64.b64encode(pair.encode()).decode() for pair in sent}


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
                with contextlib.suppress(OSError, UnicodeDecodeError):  # whoever needs it reports that
                    yield held.read_text(encoding="utf-8").strip()
            yield from _texts(held)
    elif isinstance(value, Mapping):
        for name, held in value.items():
            if isinstance(held, str) and re.search(SPARK_SECRET_NAMES, str(name)):
                yield held
            yield from _texts(held)
    elif isinstance(value, (tuple, list)):
        for held in value:
            yield from _texts(held)
