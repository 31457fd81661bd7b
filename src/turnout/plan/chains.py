"""A chain: a view whose joins are over different columns, one step after the other.

Which columns a step brings, from which sources the column that it joins by comes, and the SQL text of it all. Names and
rules only; `store/views/chained.py` finds out which rows of a chain a batch changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turnout.plan.joins import Duplicates, Step, right_id, right_names, side, steps_sql

Origin = tuple[int, str]
"""A column of a side: its number, 0 for the left one, and its name in the source."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The steps of a view, and what follows from them; `chain_of` makes it."""

    steps: tuple[Step, ...]
    origins: tuple[tuple[Origin, ...], ...]
    """For each step: where `left_on` comes from. Several where a right or full join has filled it; none where a semi
    or anti join has taken it away."""
    owners: tuple[Origin, ...]
    """For each step: the column that `left_on` is, whatever the joins are."""
    used: tuple[tuple[str, ...], ...]
    """For each side: the columns that steps join by; of a right side first its own."""
    domains: tuple[tuple[Origin, ...], ...]
    """The columns whose values are compared with each other, directly or by way of others."""

    @property
    def outer(self) -> bool:
        return any(step.join.outer for step in self.steps)


def chain_of(sources: Mapping[str, Sequence[str]], steps: Sequence[Step]) -> Chain:
    """The chain of these steps; `sources` are the columns of each side, the left one first."""
    names = right_names(sources, steps)
    left, *_ = sources
    owned: dict[str, Origin] = {column: (0, column) for column in sources[left]}
    there = {column: [origin] for column, origin in owned.items()}
    owners: list[Origin] = []
    origins: list[tuple[Origin, ...]] = []
    used: list[list[str]] = [[], *([step.right_on] for step in steps)]
    domains: list[set[Origin]] = []
    for number, step in enumerate(steps, 1):
        found = there.get(step.left_on, [])
        origins.append(tuple(found))
        owners.append(owned[step.left_on])
        for at, column in (owners[-1], *found):
            used[at] = list(dict.fromkeys([*used[at], column]))
        meeting = {owners[-1], *found, (number, step.right_on)}
        apart = [domain for domain in domains if not domain & meeting]
        domains = [*apart, meeting.union(*(domain for domain in domains if domain & meeting))]
        owned |= {name: (number, column) for column, name in names[number - 1].items()}
        if not step.join.hides:
            there |= {name: [(number, column)] for column, name in names[number - 1].items()}
            if step.fills:
                there[step.left_on] = [*found, (number, step.right_on)]
    return Chain(
        steps=tuple(steps),
        origins=tuple(origins),
        owners=tuple(owners),
        used=tuple(map(tuple, used)),
        domains=tuple(tuple(sorted(domain)) for domain in domains),
    )


def number_name(place: int) -> str:
    """The column of a side's rows, as Spark gets them, that has the numbers of its column `place` among those used."""
    return f"k{place + 1}"


def narrow_chain_sql(chain: Chain) -> str:
    """`view_sql` of a chain over rows of numbers in place of what is joined by, and ids.

    There is one row of each number where a step takes the newest. Chains of the same form have the same text.
    """
    steps, used = chain.steps, chain.used

    def shown(at: int, column: str) -> str:
        name = number_name(used[at].index(column))
        return name if at == 0 else f"{name}_{at}"

    # The newest were chosen before.
    narrow = [
        Step(
            side(number),
            shown(*(found[0] if found else (number, step.right_on))),
            number_name(0),
            step.join,
            Duplicates.ALL,
        )
        for number, (step, found) in enumerate(zip(steps, chain.origins, strict=True), 1)
    ]
    names = [
        {number_name(place): shown(number, column) for place, column in enumerate(columns)}
        for number, columns in enumerate(used[1:], 1)
    ]
    ids = ["_id", *(right_id(number) for number, step in enumerate(steps) if not step.join.hides)]
    left = [number_name(place) for place in range(len(used[0]))]
    return f"SELECT {', '.join(ids)} FROM ({steps_sql(side(0), left, narrow, names, [step.fills for step in steps])})"
