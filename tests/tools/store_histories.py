"""Random histories of a store: batches, swaps, rollbacks and restarts, over a few users and accounts."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from turnout.config import Settings
from turnout.plan.joins import Join

Operation = tuple[str, Any]
"""The kind and the value of an operation, such as the keys of a batch or the join of a swap."""

LATEST = {name: source.model_copy(update={"rows": "latest"}) for name, source in Settings().sources.items()}
"""The default sources with `rows: latest`."""


def user(number: int | None, **more: Any) -> dict[str, Any]:
    return {"userId": None if number is None else f"u{number}", "name": "n", "email": None, "age": 1, **more}


def account(number: int, balance: float | None) -> dict[str, Any]:
    return {"userId": f"u{number}", "accountType": "gold", "balance": balance}


def histories(*more: st.SearchStrategy[Operation]) -> st.SearchStrategy[list[Operation]]:
    """Return a strategy for three to 25 operations of the built-in kinds and of `more`."""
    keys = st.lists(st.integers(0, 5), min_size=1, max_size=4)
    kinds: list[st.SearchStrategy[Operation]] = [
        st.tuples(st.just("users"), keys),
        st.tuples(st.just("accounts"), keys),
        st.tuples(st.just("swap"), st.sampled_from([Join.LEFT, Join.INNER, Join.FULL, Join.RIGHT])),
        st.tuples(st.just("back"), st.none()),
        st.tuples(st.just("step"), st.none()),
        st.tuples(st.just("restart"), st.none()),
    ]
    return st.lists(st.one_of(*kinds, *more), min_size=3, max_size=25)
