"""What turnout.yaml says: settings with their defaults, from the file and the environment."""

from turnout.config.auth import AuthSettings, Mechanism, OAuthSettings, Protocol, RegistryAuthSettings, RegistrySettings
from turnout.config.loading import default_text, load, parse
from turnout.config.settings import (
    AccessSettings,
    ControlSettings,
    Format,
    KafkaSettings,
    Role,
    Rows,
    ServerSettings,
    Settings,
    SourceSettings,
    SparkSettings,
    StoreSettings,
    SwapSettings,
    TokenSettings,
    ViewSettings,
)
from turnout.plan.joins import Duplicates

__all__ = [
    "AccessSettings",
    "AuthSettings",
    "ControlSettings",
    "Duplicates",
    "Format",
    "KafkaSettings",
    "Mechanism",
    "OAuthSettings",
    "Protocol",
    "RegistryAuthSettings",
    "RegistrySettings",
    "Role",
    "Rows",
    "ServerSettings",
    "Settings",
    "SourceSettings",
    "SparkSettings",
    "StoreSettings",
    "SwapSettings",
    "TokenSettings",
    "ViewSettings",
    "default_text",
    "load",
    "parse",
]
