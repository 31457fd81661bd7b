"""One query that merges changed rows into the kept groups of several summaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnout.store.query.summary_sql import ROWS, Statement, named, ordered

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
            self.names.update(dict.fromkeys([*one.groups, *one.parts, *one.ends.values()]))
        texts = dict.fromkeys(text for one in statements for text in one.shown)
        self.shown = {text: f"c{number}" for number, text in enumerate(texts)}

    def sql(self, kept: str, changed: str, cells: Mapping[str, str]) -> tuple[str, list[object]]:
        """Groups as of `read_kept`, those of the first summary first, with what is shown of them; its parameters.

        `cells` are the columns of `changed` that have the SQL of rows.
        """
        rows = [f"SELECT {', '.join([NUMBER, *self.names])} FROM {kept}"]
        for number, one in enumerate(self._statements):
            made = {name: cells[text] for name, text in one.of_row.items()}
            columns = [f"{number}", *(made.get(name, "NULL") for name in self.names)]
            rows.append(f"SELECT {', '.join(columns)} FROM {changed} WHERE {one.where}")
        parameters = [value for one in self._statements for value in one.parameters]
        return f"WITH r AS MATERIALIZED ({' UNION ALL '.join(rows)}) {self._merged()}", parameters

    def _merged(self) -> str:
        groups, parts, ends = self._all("groups"), self._all("parts"), self._all("ends")
        names = [NUMBER, *groups]
        made = [
            f"any_value(m{name}) AS {name}" if part.is_end else f"CAST(sum({name}) AS {part.kind}) AS {name}"
            for name, part in parts.items()
        ]
        made += [f"CAST(sum({k}) FILTER ({p} = m{p}) AS BIGINT) AS {k}" for p, k in ends.items()]
        tops = [f"{parts[p].merge}({p}) FILTER ({k} > 0) AS m{p}" for p, k in ends.items()]
        same = " AND ".join(f"r.{name} IS NOT DISTINCT FROM e.{name}" for name in names)
        joined = f"r JOIN (SELECT {', '.join([*names, *tops])} FROM r GROUP BY ALL) e ON {same}" if ends else "r"
        chosen = ", ".join([*(f"r.{name}" for name in names), *made])
        # A group without rows is none, but where there is only one.
        single = ["-1", *(f"{number}" for number, one in enumerate(self._statements) if not one.groups)]
        some = f"HAVING sum({ROWS}) > 0 OR r.{NUMBER} IN ({', '.join(single)})"
        order = ", ".join(filter(None, [NUMBER, ordered(_common_order(self._statements), self.shown)]))
        return (
            f"SELECT *, {named(self.shown)} FROM (SELECT {chosen} FROM {joined} GROUP BY ALL {some}) ORDER BY {order}"
        )

    def _all(self, field: str) -> dict[str, Any]:
        return {name: value for one in self._statements for name, value in getattr(one, field).items()}


def merged_together(statements: Sequence[Statement]) -> list[list[int]]:
    """Which of them one `Merge` can take: their groups have to come in one order."""
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
    """That of the longest; groups that another summary does not have are null there, and order nothing."""
    return max((one.order for one in statements), key=len)
