"""The column types that a source can declare: one table, with a field for each thing that others must know of a type.

The names of a type in Spark, DuckDB, Arrow, Avro, JSON and TypeScript come from here; the pages of the reference, help
texts and the template list the types from here too. Functions that read or write values of a type are in the modules
that `docs/contributing.md` names, under its `family`. Spark's workers get this module by value: it imports nothing of
Turnout.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_DECIMAL = re.compile(r"decimal\s*\(\s*(\d{1,4})\s*,\s*(\d{1,4})\s*\)", re.ASCII)
_MAX_PRECISION = 38


# Without slots: workers get class and table by value, and a slotted instance cannot be read before its class is whole.
@dataclass(frozen=True)
class ColumnType:
    """One type of a column."""

    name: str
    """Its name in configuration and API."""
    spark: str
    duckdb: str
    arrow: tuple[str | int, ...]
    """The function of pyarrow that makes the type, and its arguments."""
    avro: str
    """The Avro type that its values are written as."""
    json: str
    """The type of its values in the JSON of rows, and in TypeScript."""
    described: str
    """What a value looks like, for people who wrote another one."""
    samples: tuple[str, str]
    """Two values, as texts that Spark and DuckDB cast to the type."""
    avro_logical: str | None = None
    number: bool = False
    time: bool = False
    """Whether it is a date or a point in time."""
    exact: bool = True
    """Whether two equal values are always equal bit for bit, so that the type can be a key."""
    bits: int | None = None
    """The size of a whole number."""
    digits: tuple[int, int] | None = None
    """Precision and scale of a decimal."""

    @classmethod
    def parse(cls, text: str) -> ColumnType:
        """The type of that name; ValueError lists the known ones."""
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
        """The type of that name; None for one that no source can declare, which results of SQL may have."""
        try:
            return cls.parse(text)
        except ValueError:
            return None

    @classmethod
    def from_duckdb(cls, text: str) -> str:
        """The canonical name of a DuckDB type; a type that no source can declare is lowercased."""
        wanted = text.strip()
        if wanted.upper() in _FROM_DUCKDB:
            return _FROM_DUCKDB[wanted.upper()]
        decimal = _DECIMAL.fullmatch(wanted.lower())
        return f"decimal({int(decimal[1])},{int(decimal[2])})" if decimal else wanted.lower()

    @property
    def family(self) -> str:
        """The name without digits: what functions for values of the type are found by."""
        return self.name.partition("(")[0]

    @property
    def label(self) -> str:
        """The name as texts for people write it."""
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
"""Every type; of decimals, which have digits of their own, one."""

KNOWN_TYPES = ", ".join(kind.label for kind in COLUMN_TYPES)
_PLAIN = {kind.name: kind for kind in COLUMN_TYPES if kind.digits is None}
_FROM_DUCKDB = {kind.duckdb: kind.name for kind in _PLAIN.values()}
