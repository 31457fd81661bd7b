"""What turnout.yaml says: settings with their defaults, from the file and the environment."""

from turnout.config.auth import AuthSettings as AuthSettings
from turnout.config.auth import RegistrySettings as RegistrySettings
from turnout.config.loading import default_text as default_text
from turnout.config.loading import load as load
from turnout.config.loading import parse as parse
from turnout.config.server import AccessSettings as AccessSettings
from turnout.config.server import McpAccess as McpAccess
from turnout.config.server import Role as Role
from turnout.config.server import SqlAccess as SqlAccess
from turnout.config.server import TokenSettings as TokenSettings
from turnout.config.settings import AlertSettings as AlertSettings
from turnout.config.settings import Delivery as Delivery
from turnout.config.settings import Format as Format
from turnout.config.settings import KafkaSettings as KafkaSettings
from turnout.config.settings import Settings as Settings
from turnout.config.settings import SinkSettings as SinkSettings
from turnout.config.settings import SourceSettings as SourceSettings
from turnout.config.settings import SparkSettings as SparkSettings
from turnout.config.settings import TargetSettings as TargetSettings
