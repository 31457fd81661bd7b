"""One query that merges changed rows into the kept groups of several summaries.

An example: `by=kind, values=count,max(balance)` over 12 rows of gold. The kept group has the number of rows, and of the
end `max` the ten greatest values with their *bound*, the last value up to which none is missing:

    gold: rows 12, values [90, 80, 80, 70, 60, 50, 40, 30, 20, 10], bound 10     (two smaller values are not kept)

A batch removes the rows with 90 and 80, and adds one with 85. Changed rows are groups of their own, with a sign:

    came: rows +1, [85]        went: rows -2, [90, 80]

`_gathered` puts the three lists beside each other, `_pooled` joins what was kept and what came, `_near` cuts at the
bound, `_left` takes away as many of equal values as went, and `_kept` has the result:

    gold: rows 11, values [85, 80, 70, 60, 50, 40, 30, 20, 10], bound 10

Had all values down to the bound gone, the two smaller ones would be the greatest, and nobody knows them: the end is
*lost*, and the table is read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from turnout.store.query.summary_sql import MOST_KEPT, ROWS, SIGN, End, Statement, named, ordered

NUMBER = "_number"
"""Tells groups of several summaries apart."""


class Merge:
    """Planning takes most of a small query, so one takes all.

    Columns that a summary does not have are null in its groups.
    """

    def __init__(self, statements: Sequence[Statement]) -> None:
        self._statements = statements
        self.names: dict[str, None] = {}
        for one in statements:
            self.names.update(dict.fromkeys([*one.groups, *one.parts]))
            self.names.update(dict.fromkeys(name for end in one.ends for name in (end.values, end.bound)))
        texts = dict.fromkeys(text for one in statements for text in one.shown)
        self.shown = {text: f"c{number}" for number, text in enumerate(texts)}

    def sql(self, kept: str, changed: str, cells: Mapping[str, str]) -> tuple[str, list[object]]:
        """Groups as of `read_kept`, those of the first summary first, with what is shown of them; its parameters.

        `cells` are the columns of `changed` that have the SQL of rows.
        """
        rows = [f"SELECT {', '.join([NUMBER, f'0 AS {SIGN}', *self.names])} FROM {kept}"]
        for number, one in enumerate(self._statements):
            made = {name: cells[text] for name, text in one.of_row.items()}
            columns = [f"{number}", SIGN, *(made.get(name, "NULL") for name in self.names)]
            rows.append(f"SELECT {', '.join(columns)} FROM {changed} WHERE {one.where}")
        parameters = [value for one in self._statements for value in one.parameters]
        return self._shown(f"({' UNION ALL '.join(rows)})"), parameters

    def _shown(self, rows: str) -> str:
        parts = {name: part for one in self._statements for name, part in one.parts.items()}
        ends = dict.fromkeys(end for one in self._statements for end in one.ends)
        groups = dict.fromkeys(name for one in self._statements for name in one.groups)
        made = [NUMBER, *groups]
        made += [f"CAST(sum({name}) AS {part.kind}) AS {name}" for name, part in parts.items() if not part.is_end]
        # A group without rows is none, but where there is only one.
        single = ["-1", *(f"{number}" for number, one in enumerate(self._statements) if not one.groups)]
        some = f"HAVING sum({ROWS}) > 0 OR {NUMBER} IN ({', '.join(single)})"
        text = f"SELECT {', '.join([*made, *map(_gathered, ends)])} FROM {rows} GROUP BY ALL {some}"
        for step in (_pooled, _near, _left, _kept) if ends else ():
            text = f"SELECT {', '.join(['*', *map(step, ends)])} FROM ({text})"
        order = ", ".join(filter(None, [NUMBER, ordered(_common_order(self._statements), self.shown)]))
        return f"SELECT *, {named(self.shown)} FROM ({text}) ORDER BY {order}"


def _gathered(end: End) -> str:
    """Select for a group what was kept of an end, and the values next to it of rows that came and rows that went.

    Of those that went one more than is kept: it tells whether more went than are listed.
    """
    near = f"{end.function}({end.part}"
    return (
        f"any_value({end.values}) AS old_{end.values}, any_value({end.bound}) AS old_{end.bound}, "
        f"{near}, {MOST_KEPT}) FILTER ({SIGN} > 0) AS came_{end.values}, "
        f"{near}, {MOST_KEPT + 1}) FILTER ({SIGN} < 0) AS went_{end.values}"
    )


def _pooled(end: End) -> str:
    """All known values; none is missing up to the nearest bound of the three lists they are from."""
    nearest, direction = ("greatest", "DESC") if end.function == "max" else ("least", "ASC")
    values = end.values
    return (
        f"list_sort(list_concat(old_{values}, came_{values}), '{direction}') AS all_{values}, "
        f"{nearest}(old_{end.bound}, came_{values}[{MOST_KEPT}], went_{values}[{MOST_KEPT + 1}]) AS new_{end.bound}"
    )


def _near(end: End) -> str:
    """Cut both lists, known values and those that went, at the bound.

    That some are missing at the bound does no harm. Where more went than are listed, all values like the last one that
    is listed may have gone.
    """
    sign, last = ">" if end.function == "max" else "<", f"went_{end.values}[{MOST_KEPT + 1}]"
    within = f"(new_{end.bound} IS NULL OR v {sign}= new_{end.bound})"
    sure = f"({last} IS NULL OR v {sign} {last})"
    return (
        f"list_filter(all_{end.values}, lambda v: {within} AND {sure}) AS near_all_{end.values}, "
        f"list_filter(went_{end.values}, lambda v: {within}) AS near_went_{end.values}"
    )


def _left(end: End) -> str:
    """Without those that went: of equal values as many as went. Mostly none did, and the lists are as they are."""
    known, went = f"near_all_{end.values}", f"near_went_{end.values}"
    before = f"len(list_filter({known}[1:i - 1], lambda w: w = v))"
    left = f"list_filter({known}, lambda v, i: {before} >= len(list_filter({went}, lambda w: w = v)))"
    return f"CASE WHEN len({went}) > 0 THEN {left} ELSE {known} END AS left_{end.values}"


def _kept(end: End) -> str:
    """Select what is kept of an end; it is lost where all values went that were known, and there may be others."""
    left = f"left_{end.values}"
    bound = f"CASE WHEN len({left}) > {MOST_KEPT} THEN {left}[{MOST_KEPT}] ELSE new_{end.bound} END"
    return (
        f"{left}[1] AS {end.part}, {left}[1:{MOST_KEPT}] AS {end.values}, {bound} AS {end.bound}, "
        f"coalesce(len({left}), 0) = 0 AND new_{end.bound} IS NOT NULL AS {end.lost}"
    )


def merged_together(statements: Sequence[Statement]) -> list[list[int]]:
    """Divide summaries into those that one `Merge` can take: their groups have to come in one order."""
    found: list[list[int]] = []
    for number in sorted(range(len(statements)), key=lambda number: -len(statements[number].order)):
        one = statements[number]
        for numbers in found:
            common = _common_order([statements[n] for n in numbers])
            if [key for key in common if key[0] in one.groups or not key[0].startswith("g_")] == list(one.order):
                numbers.append(number)
                break
        else:
            found.append([number])
    return found


def _common_order(statements: Sequence[Statement]) -> tuple[tuple[str, bool], ...]:
    """The longest order of all; groups that another summary does not have are null there, and order nothing."""
    return max((one.order for one in statements), key=len)
