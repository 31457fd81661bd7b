"""What turnout.yaml says: settings with their defaults, from the file and the environment."""

from turnout.config.auth import AuthSettings, RegistrySettings
from turnout.config.loading import default_text, load, parse
from turnout.config.server import AccessSettings, Role, SqlAccess, TokenSettings
from turnout.config.settings import Format, KafkaSettings, Settings, SourceSettings, SparkSettings

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
    "SqlAccess",
    "TokenSettings",
    "default_text",
    "load",
    "parse",
]
