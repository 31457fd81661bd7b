"""The column types that a source can declare, and their names in Spark and in DuckDB.

`arrow_columns.py` has their Arrow types, `decode/columns.py` the values that fit them.
"""

import re
from dataclasses import dataclass

# canonical name -> (Spark SQL, DuckDB)
_PLAIN = {
    "string": ("string", "VARCHAR"),
    "boolean": ("boolean", "BOOLEAN"),
    "int32": ("int", "INTEGER"),
    "int64": ("bigint", "BIGINT"),
    "float": ("float", "FLOAT"),
    "double": ("double", "DOUBLE"),
    "date": ("date", "DATE"),
    "timestamp": ("timestamp", "TIMESTAMP WITH TIME ZONE"),
}
_FROM_DUCKDB = {duckdb: name for name, (_, duckdb) in _PLAIN.items()}
_DECIMAL = re.compile(r"decimal\s*\(\s*(\d{1,4})\s*,\s*(\d{1,4})\s*\)", re.ASCII)
_MAX_PRECISION = 38

KNOWN_TYPES = "string, boolean, int32, int64, float, double, decimal(p,s), date, timestamp"


@dataclass(frozen=True, slots=True)
class ColumnType:
    """One type; `name` is its name in configuration and API."""

    name: str
    spark: str
    duckdb: str

    @classmethod
    def parse(cls, text: str) -> "ColumnType":
        """The type of that name; ValueError lists the known ones."""
        wanted = text.strip().lower()
        if wanted in _PLAIN:
            return cls(wanted, *_PLAIN[wanted])
        decimal = _DECIMAL.fullmatch(wanted)
        if decimal is None:
            raise ValueError(f"unknown column type {text!r} (known: {KNOWN_TYPES})")
        precision, scale = int(decimal[1]), int(decimal[2])
        if not (1 <= precision <= _MAX_PRECISION and scale <= precision):
            raise ValueError(f"{text!r} is out of range (known: decimal(p,s) with 1 <= p <= 38 and 0 <= s <= p)")
        name = f"decimal({precision},{scale})"
        return cls(name, name, name.upper())

    @classmethod
    def from_duckdb(cls, text: str) -> str:
        """The canonical name of a DuckDB type; a type that no source can declare is lowercased."""
        wanted = text.strip()
        if wanted.upper() in _FROM_DUCKDB:
            return _FROM_DUCKDB[wanted.upper()]
        decimal = _DECIMAL.fullmatch(wanted.lower())
        return f"decimal({int(decimal[1])},{int(decimal[2])})" if decimal else wanted.lower()

    @property
    def exact(self) -> bool:
        """Whether two equal values are always equal bit for bit, so that the type can be a key."""
        return self.name not in ("float", "double")

    def __str__(self) -> str:
        return self.name
