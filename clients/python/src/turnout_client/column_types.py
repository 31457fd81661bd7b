"""The column types that a source can declare, with all properties of each type in one table.

It defines the names of a type in Spark, DuckDB, Arrow, Avro, JSON and TypeScript. Reference pages, help texts and the
template list the types from it. `docs/contributing.md` names the modules that read or write values of a type; they
look it up by its `family`. Spark's workers receive this module by value, so it imports nothing of Turnout.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_DECIMAL = re.compile(r"decimal\s*\(\s*(\d{1,4})\s*,\s*(\d{1,4})\s*\)", re.ASCII)
_MAX_PRECISION = 38


# Without slots: workers unpickle the class by value, and read slotted instances before the class is complete.
@dataclass(frozen=True)
class ColumnType:
    """A column type."""

    name: str
    """The name in the configuration and the API."""
    spark: str
    duckdb: str
    arrow: tuple[str | int, ...]
    """The pyarrow function that creates the type, and its arguments."""
    avro: str
    """The Avro type of written values."""
    json: str
    """The type of values in JSON rows and in TypeScript."""
    described: str
    """A description of valid values, for error messages."""
    samples: tuple[str, str]
    """Two example values, as texts that Spark and DuckDB can cast to the type."""
    avro_logical: str | None = None
    number: bool = False
    time: bool = False
    """Whether the type is a date or a timestamp."""
    exact: bool = True
    """Whether equal values always have equal bits, so that the type can be a key."""
    bits: int | None = None
    """The size of an integer; None for other types."""
    digits: tuple[int, int] | None = None
    """The precision and scale of a decimal; None for other types."""

    @classmethod
    def parse(cls, text: str) -> ColumnType:
        """Return the type with this name; raise ValueError with the known names if there is none."""
        wanted = text.strip().lower()
        if wanted in _PLAIN:
            return _PLAIN[wanted]
        decimal = _DECIMAL.fullmatch(wanted)
        if decimal is None:
            raise ValueError(f"unknown column type {text!r} (known: {KNOWN_TYPES})")
        precision, scale = int(decimal[1]), int(decimal[2])
        if not (1 <= precision <= _MAX_PRECISION and scale <= precision):
            raise ValueError(f"{text!r} is out of range (known: decimal(p,s) with 1 <= p <= 38 and 0 <= s <= p)")
        return _decimal(precision, scale)

    @classmethod
    def known(cls, text: str) -> ColumnType | None:
        """Return the type with this name, or None if no source can declare it: results of SQL may have other types."""
        try:
            return cls.parse(text)
        except ValueError:
            return None

    @classmethod
    def from_duckdb(cls, text: str) -> str:
        """Return the name of a DuckDB type here; a type that no source can declare is only lowercased."""
        wanted = text.strip()
        if wanted.upper() in _FROM_DUCKDB:
            return _FROM_DUCKDB[wanted.upper()]
        decimal = _DECIMAL.fullmatch(wanted.lower())
        return f"decimal({int(decimal[1])},{int(decimal[2])})" if decimal else wanted.lower()

    @property
    def family(self) -> str:
        """The name without parameters, by which modules look up the functions for values of the type."""
        return self.name.partition("(")[0]

    @property
    def label(self) -> str:
        """The name in texts for people."""
        return "decimal(p,s)" if self.digits else self.name

    def __str__(self) -> str:
        return self.name


def _decimal(precision: int, scale: int) -> ColumnType:
    name = f"decimal({precision},{scale})"
    return ColumnType(
        name,
        spark=name,
        duckdb=name.upper(),
        arrow=("decimal128", precision, scale),
        avro="bytes",
        avro_logical="decimal",
        json="string",
        described="a number with no more digits than the type holds, such as 1.50",
        samples=("0.1", "0.2") if precision == scale else ("1", "2"),
        number=True,
        digits=(precision, scale),
    )


COLUMN_TYPES = (
    ColumnType(
        "string",
        spark="string",
        duckdb="VARCHAR",
        arrow=("string",),
        avro="string",
        json="string",
        described="a text",
        samples=("1", "2"),
    ),
    ColumnType(
        "boolean",
        spark="boolean",
        duckdb="BOOLEAN",
        arrow=("bool_",),
        avro="boolean",
        json="boolean",
        described="true or false",
        samples=("false", "true"),
    ),
    ColumnType(
        "int32",
        spark="int",
        duckdb="INTEGER",
        arrow=("int32",),
        avro="int",
        json="number",
        described="a whole number of 32 bits, such as 42",
        samples=("1", "2"),
        number=True,
        bits=32,
    ),
    ColumnType(
        "int64",
        spark="bigint",
        duckdb="BIGINT",
        arrow=("int64",),
        avro="long",
        json="number",
        described="a whole number of 64 bits, such as 42",
        samples=("1", "2"),
        number=True,
        bits=64,
    ),
    ColumnType(
        "float",
        spark="float",
        duckdb="FLOAT",
        arrow=("float32",),
        avro="float",
        json="number",
        described="a number, such as 1.5",
        samples=("1", "2"),
        number=True,
        exact=False,
    ),
    ColumnType(
        "double",
        spark="double",
        duckdb="DOUBLE",
        arrow=("float64",),
        avro="double",
        json="number",
        described="a number, such as 1.5",
        samples=("1", "2"),
        number=True,
        exact=False,
    ),
    _decimal(_MAX_PRECISION, 9),
    ColumnType(
        "date",
        spark="date",
        duckdb="DATE",
        arrow=("date32",),
        avro="int",
        avro_logical="date",
        json="string",
        described="a date, such as 2026-01-31",
        samples=("2026-01-01", "2026-01-02"),
        time=True,
    ),
    ColumnType(
        "timestamp",
        spark="timestamp",
        duckdb="TIMESTAMP WITH TIME ZONE",
        arrow=("timestamp", "us", "UTC"),
        avro="long",
        avro_logical="timestamp-micros",
        json="string",
        described="ISO 8601, such as 2026-01-31T12:00:00Z (without a zone: UTC; write + as %2B in an address)",
        samples=("2026-01-01", "2026-01-02"),
        time=True,
    ),
)
"""Every type; `decimal(38,9)` stands for all decimals."""

KNOWN_TYPES = ", ".join(kind.label for kind in COLUMN_TYPES)
_PLAIN = {kind.name: kind for kind in COLUMN_TYPES if kind.digits is None}
_FROM_DUCKDB = {kind.duckdb: kind.name for kind in _PLAIN.values()}
