"""Names and texts inside of SQL: the only place that quotes them."""

from pathlib import Path


def quoted(name: str) -> str:
    """`name` as an identifier of DuckDB, and of Spark where double quotes are on."""
    return '"' + name.replace('"', '""') + '"'


def backquoted(name: str) -> str:
    """`name` as an identifier of Spark, whatever its settings are."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: Path | str) -> str:
    """A path or another text as an SQL string."""
    return "'" + str(text).replace("'", "''") + "'"
