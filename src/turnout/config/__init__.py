"""What turnout.yaml says: settings with their defaults, from the file and the environment."""

from turnout.config.auth import AuthSettings, RegistrySettings
from turnout.config.loading import default_text, load, parse
from turnout.config.settings import (
    AccessSettings,
    Format,
    KafkaSettings,
    Role,
    Settings,
    SourceSettings,
    SparkSettings,
    TokenSettings,
)

__all__ = [
    "AccessSettings",
    "AuthSettings",
    "Format",
    "KafkaSettings",
    "RegistrySettings",
    "Role",
    "Settings",
    "SourceSettings",
    "SparkSettings",
    "TokenSettings",
    "default_text",
    "load",
    "parse",
]
