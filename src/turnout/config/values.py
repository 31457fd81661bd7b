"""The base of all sections, and the kinds of values that settings have, each checked by itself."""

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationInfo

from turnout.config import config_errors
from turnout.plan.joins import Join, parse_join
from turnout.plan.plan import Start, parse_topic
from turnout_client.column_types import ColumnType


def located(path: Path, info: ValidationInfo) -> Path:
    """An absolute path; a relative one begins at the folder of the file, which is the context of a validation."""
    return path if info.context is None else (info.context / path.expanduser()).resolve()


Located = Annotated[Path, AfterValidator(located)]


class Section(BaseModel):
    """A part of the configuration: unknown settings are refused, and errors show no input, which may be a secret."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def number(value: object) -> object:
    if isinstance(value, bool):  # Python's true is a 1, a file's is a mistake
        raise ValueError(f"must be a number, got {config_errors.describe(value)}")  # noqa: TRY004
    return value


def text_of(pattern: str, rule: str) -> AfterValidator:
    """A validator that wants the whole text to match; `rule` says that to people."""
    compiled = re.compile(pattern, re.IGNORECASE)

    def check(text: str) -> str:
        if compiled.fullmatch(text):
            return text
        raise ValueError(f"must {rule}, got {config_errors.describe(text)}")

    return AfterValidator(check)


def _parsed_by(parse: Any) -> PlainValidator:
    """A validator for values that are written as text and have a parser."""

    def check(value: object) -> object:
        if isinstance(value, ColumnType | Join):
            return value
        if not isinstance(value, str):
            raise ValueError(f"must be text, got {config_errors.describe(value)}")  # noqa: TRY004
        return parse(value)

    return PlainValidator(check)


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        shown = config_errors.describe(text)
        raise ValueError(f"must look like 10.0.0.5 or 10.0.0.0/24, got {shown}") from None


def is_loopback(host: str) -> bool:
    """Whether the name or the address is this machine's own."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def several(value: object) -> object:
    """One name, or a list of names."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


def _properties(value: object) -> object:
    """Raw properties as text: `true` and `10` need no quotes there."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        return value
    scalar = bool | int | float
    return {name: config_errors.describe(item) if isinstance(item, scalar) else item for name, item in value.items()}


def _shared(text: str, info: ValidationInfo) -> str:
    """A path like any other, unless it is a URL."""
    return text if "://" in text else str(located(Path(text), info))


_ADDRESS = r"(\[[0-9a-f:.]+\]|[^\s,:\[\]]+):[0-9]{1,5}"
Addresses = Annotated[str, text_of(rf"{_ADDRESS}(\s*,\s*{_ADDRESS})*", "look like host:9092 or host1:9092,host2:9092")]
_SITE = r"https?://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?"
Origin = Annotated[str, text_of(_SITE, "look like https://app.example or http://localhost:4200, without a path")]
Network = Annotated[str, AfterValidator(_network)]
NonEmpty = Annotated[str, text_of(r"(?s:.*\S.*)", "not be empty")]
SharedFolder = Annotated[NonEmpty, AfterValidator(_shared)]
Topic = Annotated[str, AfterValidator(parse_topic)]
_SIGNS = "be a topic name in which * stands for any characters and ? for one, such as users-*"
TopicPattern = Annotated[str, text_of(r"[A-Za-z0-9._*?-]{1,249}", _SIGNS)]
Column = Annotated[ColumnType, _parsed_by(ColumnType.parse)]
JoinName = Annotated[Join, _parsed_by(parse_join)]
StartAt = Annotated[Start, PlainValidator(Start.parse)]
Names = Annotated[tuple[str, ...], BeforeValidator(several)]
Whole = Annotated[int, BeforeValidator(number)]
Seconds = Annotated[float, BeforeValidator(number), Field(ge=0, allow_inf_nan=False)]
Percent = Annotated[str, text_of(r"(100(\.0+)?|[0-9]{1,2}(\.[0-9]{1,6})?)%", "be a percentage such as 50%")]
MemorySize = Annotated[str, text_of(r"[0-9]*\.?[0-9]+ ?[kmgt]i?b", "look like 2GB or 512MiB")]
# Not in repr: raw properties can hold secrets.
Properties = Annotated[dict[str, str], BeforeValidator(_properties), Field(repr=False)]
