"""What turnout.yaml says: settings with their defaults, from the file and the environment."""

from turnout.config.auth import AuthSettings, RegistrySettings
from turnout.config.loading import default_text, load, parse
from turnout.config.server import AccessSettings, McpAccess, Role, SqlAccess, TokenSettings
from turnout.config.settings import (
    AlertSettings,
    Delivery,
    KafkaSettings,
    RecordFormat,
    Settings,
    SinkSettings,
    SourceSettings,
    SparkSettings,
    TargetSettings,
)

__all__ = [
    "AccessSettings",
    "AlertSettings",
    "AuthSettings",
    "Delivery",
    "KafkaSettings",
    "McpAccess",
    "RecordFormat",
    "RegistrySettings",
    "Role",
    "Settings",
    "SinkSettings",
    "SourceSettings",
    "SparkSettings",
    "SqlAccess",
    "TargetSettings",
    "TokenSettings",
    "default_text",
    "load",
    "parse",
]
