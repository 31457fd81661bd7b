"""Joins: their names, and the SQL text of a view.

The text made here is the only definition of the join, and the definition of *newest*; `store/batch_rows.py` has
the same rule in numpy, for few rows. It is written in the SQL that Spark (with double-quoted identifiers) and DuckDB
share. Spark runs it over keys and ids, of touched keys or of whole generations; tests run it over all columns, to
compare.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from turnout.plan.offsets import OFFSET_BITS
from turnout.plan.sql_text import backquoted, quoted


class Join(StrEnum):
    """The joins of views: each with its SQL, its meaning in one line, and other names that people write."""

    sql: str
    meaning: str
    aliases: tuple[str, ...]

    def __new__(cls, name: str, sql: str = "", meaning: str = "", *aliases: str) -> Self:
        join = str.__new__(cls, name)
        join._value_ = name
        join.sql, join.meaning, join.aliases = sql, meaning, aliases
        return join

    LEFT = (
        "left",
        "LEFT JOIN",
        "every left row, with the newest right row of its key, or nulls",
        "left_outer",
        "leftouter",
        "left outer",
    )
    NATURAL = "natural", "LEFT JOIN", "the same as left"
    INNER = "inner", "JOIN", "every pair of a left and a right row of one key", "join"
    RIGHT = "right", "RIGHT JOIN", "every right row, with the left rows of its key, or nulls"
    FULL = "full", "FULL JOIN", "every row of both sides, paired where they have one key"
    SEMI = "semi", "LEFT SEMI JOIN", "the left rows that have a right row"
    ANTI = "anti", "LEFT ANTI JOIN", "the left rows that have no right row"

    @property
    def outer(self) -> bool:
        """Whether right rows that nothing matches are shown."""
        return self in (Join.RIGHT, Join.FULL)

    @property
    def keeps_all(self) -> bool:
        """Whether every left row is shown."""
        return self in (Join.LEFT, Join.NATURAL, Join.FULL)

    @property
    def hides(self) -> bool:
        """Whether nothing of the right side is shown."""
        return self in (Join.SEMI, Join.ANTI)

    @property
    def pairs(self) -> bool:
        """Whether all right rows of a key take part, whatever `duplicates` says."""
        return self is Join.INNER


KNOWN_JOINS = ", ".join(Join)


class Duplicates(StrEnum):
    """Which right rows of a key take part in a view."""

    LATEST = "latest"
    ALL = "all"


ALIASES: Mapping[str, Join] = {alias: join for join in Join for alias in join.aliases}


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


def right_id(number: int) -> str:
    """The hidden column of a view that has the `_id` of its row of the right side `number`, counted from 0."""
    return "_right_id" if number == 0 else f"_right_id_{number + 1}"


def partition_newest_ids_sql(relation: str, key: str) -> str:
    """The highest `_id` of each key in each partition; those of the newest rows are among them."""
    return f"SELECT max(_id) AS _id FROM {relation} GROUP BY {quoted(key)}, _id >> {OFFSET_BITS}"


def newest_sql(relation: str, key: str) -> str:
    """The newest row of each key: of the newest in each partition the later one, then that of the higher partition."""
    of_partitions = (
        f"SELECT * FROM (SELECT *, row_number() OVER "
        f"(PARTITION BY {quoted(key)}, _id >> {OFFSET_BITS} ORDER BY _id DESC) AS _nth FROM {relation}) WHERE _nth = 1"
    )
    return (
        f"SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY {quoted(key)} ORDER BY _ts DESC, _id DESC) AS _rank "
        f"FROM ({of_partitions})) WHERE _rank = 1"
    )


@dataclass(frozen=True, slots=True)
class Step:
    """One join of a view: the column `left_on`, there by then, meets `right_on` of the source `right`."""

    right: str
    left_on: str
    right_on: str
    join: Join
    duplicates: Duplicates = Duplicates.LATEST

    @property
    def merged(self) -> bool:
        """Whether the two columns are one in the view, because they have one name."""
        return self.left_on == self.right_on

    @property
    def fills(self) -> bool:
        """Whether the left column has the value of right rows that nothing matches."""
        return self.merged and self.join.outer

    @property
    def pairs(self) -> bool:
        """Whether all right rows of a key take part; otherwise the newest does."""
        return self.join.pairs or self.duplicates is Duplicates.ALL

    @property
    def multiplies(self) -> bool:
        """Whether a left row can be shown several times, once for each right row of its key."""
        return self.pairs and not self.join.hides


def key_steps(rights: Iterable[str], key: str, join: Join, duplicates: Duplicates = Duplicates.LATEST) -> list[Step]:
    """The steps of a view whose sources share a key: the first right side is joined to the left, and so on."""
    return [Step(right, key, key, join, duplicates) for right in rights]


def right_names(sources: Mapping[str, Sequence[str]], steps: Sequence[Step]) -> list[dict[str, str]]:
    """For each step: column -> its name in the view, with its source in front if that name is in use.

    `sources` are the columns of each side, the left one first.
    """
    left, *_ = sources.values()
    taken = {column.lower() for column in left}
    names = []
    for step in steps:
        names.append(
            {
                column: f"{step.right}_{column}" if column.lower() in taken else column
                for column in sources[step.right]
                if not (step.merged and column == step.right_on)
            }
        )
        taken |= {name.lower() for name in names[-1].values()}
    return names


def view_columns(sources: Mapping[str, Sequence[str]], steps: Sequence[Step]) -> list[str]:
    """The public columns of a view, in their order."""
    left, *_ = sources.values()
    return [*left, *(name for names in right_names(sources, steps) for name in names.values())]


def view_sql(sources: Mapping[str, Sequence[str]], steps: Sequence[Step]) -> str:
    """The SQL text of a view over relations named as its sources, which hold the rows that are shown.

    Its result has `_id` (the left row), a `right_id` for each right side and the public columns; `semi` and `anti`
    leave those of the right sides out, and they are null in the table. `inner` pairs all rows; the others take the
    newest right row of each key unless `duplicates` says all. Null keys never match, and a right row without a key is
    in no view.
    """
    left, *_ = sources
    return steps_sql(left, sources[left], steps, right_names(sources, steps), [step.fills for step in steps])


def steps_sql(
    left: str,
    left_columns: Sequence[str],
    steps: Sequence[Step],
    names: Sequence[Mapping[str, str]],
    fills: Sequence[bool],
) -> str:
    """The SQL text of several joins; `names` are the columns that each shows, `fills` whether `left_on` is both sides'.

    The column `left_on` is null in all rows where a semi or anti join has taken it away.
    """
    relation = quoted(left)
    there = ["_id", *left_columns]
    text = ""
    for number, (step, shown, filled) in enumerate(zip(steps, names, fills, strict=True)):
        key = quoted(step.right_on)
        left_key = f"l.{quoted(step.left_on)}" if step.left_on in there else "NULL"
        usable = f"(SELECT * FROM {quoted(step.right)} WHERE {key} IS NOT NULL)"
        other = usable if step.pairs else f"({newest_sql(usable, step.right_on)})"
        chosen = {column: f"l.{quoted(column)}" for column in there}
        if filled:
            chosen[step.left_on] = f"coalesce({left_key}, r.{key})"
        if not step.join.hides:
            chosen |= {right_id(number): "r._id"}
            chosen |= {name: f"r.{quoted(column)}" for column, name in shown.items()}
        selected = ", ".join(f"{value} AS {quoted(name)}" for name, value in chosen.items())
        # A hint for Spark, a comment for others: rows of few keys are hashed in less time than they are sorted.
        hint = f"/*+ SHUFFLE_HASH({'l' if step.join.outer and not step.join.keeps_all else 'r'}) */"
        text = f"SELECT {hint} {selected} FROM {relation} AS l {step.join.sql} {other} AS r ON {left_key} = r.{key}"
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
    names = [side(number) for number in range(rights + 1)]
    shown = () if join.hides else tuple(map(right_id, range(rights)))
    text = view_sql(dict.fromkeys(names, (KEY,)), key_steps(names[1:], KEY, join, duplicates))
    return f"SELECT {', '.join(['_id', *shown])} FROM ({text})"


def own_view_sql(sql: str, key: str, columns: Mapping[str, str]) -> str:
    """The text of a view with SQL of its own, its columns cast to their declared Spark types.

    A row's `_nth` is its number among the rows of its key, in the order of all columns: of equal rows it does not
    matter which is which. Rows without a key are left out. Names are quoted in Spark's own way.
    """
    typed = ", ".join(f"CAST({backquoted(name)} AS {kind}) AS {backquoted(name)}" for name, kind in columns.items())
    order = ", ".join(backquoted(name) for name in columns)
    return (
        f"SELECT CAST(row_number() OVER (PARTITION BY {backquoted(key)} ORDER BY {order}) AS BIGINT) AS _nth, {order} "
        f"FROM (SELECT {typed} FROM (\n{sql}\n)) WHERE {backquoted(key)} IS NOT NULL"
    )
