"""Joins: their names, and the SQL text of a view.

The text made here is the only definition of the join and of *newest*. It is written in the SQL that Spark (with
double-quoted identifiers) and DuckDB share. Spark runs it over keys and ids, of affected keys or of whole generations;
tests run it over all columns, to compare.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

OFFSET_BITS = 44
"""A row's `_id` is `partition << OFFSET_BITS | offset`: 17 trillion offsets in each of 16,384 partitions."""

LIFE_BITS = 58
"""Above them stands which life of the partition it is: one more for each time that its topic was deleted."""

MOST_LIVES = 31


class Join(StrEnum):
    LEFT = "left"
    NATURAL = "natural"
    INNER = "inner"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"


class Duplicates(StrEnum):
    """Which right rows of a key take part in a view."""

    LATEST = "latest"
    ALL = "all"


ALIASES: Mapping[str, Join] = {
    "left_outer": Join.LEFT,
    "leftouter": Join.LEFT,
    "left outer": Join.LEFT,
    "join": Join.INNER,
}


def parse_join(text: str) -> Join:
    """The join of that name, in any case, with any space around it; ValueError lists the known ones."""
    name = " ".join(text.split()).lower()
    if name in ALIASES:
        return ALIASES[name]
    try:
        return Join(name)
    except ValueError:
        known = ", ".join([*Join, *ALIASES])
        raise ValueError(f"unknown join '{text.strip()}' (known: {known})") from None


@dataclass(frozen=True, slots=True)
class ViewSides:
    """The input of a view's SQL: the relations, the key, and the columns of the left and of each right side."""

    left: str
    left_columns: tuple[str, ...]
    rights: Mapping[str, tuple[str, ...]]
    key: str

    def right_names(self) -> dict[str, dict[str, str]]:
        """For each right side: column -> its name in the view, with its source in front if that name is in use."""
        taken = {column.lower() for column in self.left_columns}
        names: dict[str, dict[str, str]] = {}
        for right, columns in self.rights.items():
            names[right] = {
                column: f"{right}_{column}" if column.lower() in taken else column
                for column in columns
                if column != self.key
            }
            taken |= {name.lower() for name in names[right].values()}
        return names

    def columns(self) -> tuple[str, ...]:
        """The public columns of the view, in their order."""
        return (*self.left_columns, *(name for names in self.right_names().values() for name in names.values()))


def right_id(number: int) -> str:
    """The hidden column of a view that has the `_id` of its row of the right side `number`, counted from 0."""
    return "_right_id" if number == 0 else f"_right_id_{number + 1}"


def quoted(name: str) -> str:
    """`name` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def partition_newest_sql(relation: str, key: str) -> str:
    """Rows of `relation` that have the highest offset of their key in their partition."""
    return (
        f"SELECT * FROM (SELECT *, row_number() OVER "
        f"(PARTITION BY {quoted(key)}, _id >> {OFFSET_BITS} ORDER BY _id DESC) AS _nth FROM {relation}) "
        f"WHERE _nth = 1"
    )


def partition_newest_ids_sql(relation: str, key: str) -> str:
    """Their `_id`s alone, which take less time to find; among these rows the newest are those of `relation`."""
    return f"SELECT max(_id) AS _id FROM {relation} GROUP BY {quoted(key)}, _id >> {OFFSET_BITS}"


def newest_sql(relation: str, key: str) -> str:
    """The newest row of each key: of the newest in each partition the later one, then that of the higher partition."""
    return (
        f"SELECT * FROM (SELECT *, row_number() OVER "
        f"(PARTITION BY {quoted(key)} ORDER BY _ts DESC, _id DESC) AS _rank "
        f"FROM ({partition_newest_sql(relation, key)})) WHERE _rank = 1"
    )


_SQL_JOIN: Mapping[Join, str] = {
    Join.LEFT: "LEFT JOIN",
    Join.NATURAL: "LEFT JOIN",
    Join.INNER: "JOIN",
    Join.RIGHT: "RIGHT JOIN",
    Join.FULL: "FULL JOIN",
    Join.SEMI: "LEFT SEMI JOIN",
    Join.ANTI: "LEFT ANTI JOIN",
}


def shows_pairs(join: Join, duplicates: Duplicates) -> bool:
    """Whether all right rows of a key take part; otherwise the newest does."""
    return join is Join.INNER or duplicates is Duplicates.ALL


def multiplies(join: Join, duplicates: Duplicates) -> bool:
    """Whether a left row can be shown several times, once for each right row of its key."""
    return shows_pairs(join, duplicates) and join not in (Join.SEMI, Join.ANTI)


@dataclass(frozen=True, slots=True)
class StepSides:
    """The input of one join: the right relation, the columns that meet, and what the right side shows.

    `left_on` is null in all rows where a semi or anti join has taken it away. With `merged` both columns are one.
    """

    right: str
    left_on: str
    right_on: str
    shown: Mapping[str, str]
    join: Join
    duplicates: Duplicates = Duplicates.LATEST
    merged: bool = True


def view_sql(sides: ViewSides, join: Join, duplicates: Duplicates = Duplicates.LATEST) -> str:
    """The SQL text of a view over relations named as its sources, which hold the rows that are shown.

    Its result has `_id` (the left row), a `right_id` for each right side and the public columns; `semi` and `anti`
    leave those of the right sides out, and they are null in the table. `inner` pairs all rows; the others take the
    newest right row of each key unless `duplicates` says all. Null keys never match, and a right row without a key is
    in no view. With several right sides the first is joined to the left, the next to the result, and so on.
    """
    steps = [
        StepSides(right, sides.key, sides.key, shown, join, duplicates) for right, shown in sides.right_names().items()
    ]
    return steps_sql(sides.left, sides.left_columns, steps)


def steps_sql(left: str, left_columns: Sequence[str], steps: Sequence[StepSides]) -> str:
    """The same where each join has columns, a name and duplicates of its own."""
    relation = quoted(left)
    there = ["_id", *left_columns]
    text = ""
    for number, step in enumerate(steps):
        key = quoted(step.right_on)
        left_key = f"l.{quoted(step.left_on)}" if step.left_on in there else "NULL"
        usable = f"(SELECT * FROM {quoted(step.right)} WHERE {key} IS NOT NULL)"
        other = usable if shows_pairs(step.join, step.duplicates) else f"({newest_sql(usable, step.right_on)})"
        chosen = {column: f"l.{quoted(column)}" for column in there}
        if step.merged and step.join in (Join.RIGHT, Join.FULL):
            chosen[step.left_on] = f"coalesce({left_key}, r.{key})"
        if step.join not in (Join.SEMI, Join.ANTI):
            chosen |= {right_id(number): "r._id"}
            chosen |= {name: f"r.{quoted(column)}" for column, name in step.shown.items()}
        selected = ", ".join(f"{value} AS {quoted(name)}" for name, value in chosen.items())
        # A hint for Spark, a comment for others: rows of few keys are hashed in less time than they are sorted.
        hint = f"/*+ SHUFFLE_HASH({'l' if step.join is Join.RIGHT else 'r'}) */"
        text = (
            f"SELECT {hint} {selected} FROM {relation} AS l {_SQL_JOIN[step.join]} {other} AS r ON {left_key} = r.{key}"
        )
        relation, there = f"({text})", list(chosen)
    return text


KEY = "key"
"""The name of the key in a side's rows for `narrow_view_sql`."""


def side(number: int) -> str:
    """The relation of a side in `narrow_view_sql`; the left one is 0."""
    return f"side_{number}"


def narrow_view_sql(rights: int, join: Join, duplicates: Duplicates = Duplicates.LATEST) -> str:
    """`view_sql` over rows of `key`, `_id` and `_ts` alone, whose result is the ids of the rows that belong together.

    The same text for all views of one join: what Spark planned for one serves the others.
    """
    numbers = range(1, rights + 1)
    sides = ViewSides(side(0), (KEY,), {side(number): (KEY,) for number in numbers}, KEY)
    shown = () if join in (Join.SEMI, Join.ANTI) else tuple(right_id(number - 1) for number in numbers)
    return f"SELECT {', '.join(['_id', *shown])} FROM ({view_sql(sides, join, duplicates)})"


def own_view_sql(sql: str, key: str, columns: Mapping[str, str]) -> str:
    """The text of a view with SQL of its own, its columns cast to their declared Spark types.

    A row's `_nth` is its number among the rows of its key, in the order of all columns: of equal rows it does not
    matter which is which. Rows without a key are left out. Names are quoted in Spark's own way.
    """

    def plain(name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    typed = ", ".join(f"CAST({plain(name)} AS {kind}) AS {plain(name)}" for name, kind in columns.items())
    order = ", ".join(plain(name) for name in columns)
    return (
        f"SELECT CAST(row_number() OVER (PARTITION BY {plain(key)} ORDER BY {order}) AS BIGINT) AS _nth, {order} "
        f"FROM (SELECT {typed} FROM (\n{sql}\n)) WHERE {plain(key)} IS NOT NULL"
    )
