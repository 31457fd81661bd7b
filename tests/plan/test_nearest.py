"""Names that were probably meant."""

import pytest

from turnout.plan.nearest import nearest, suggestion


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("user_ui", ["accounts_ui", "users_ui"], "users_ui"),
        ("BALANCE", ["balance", "age"], "balance"),
        ("nothing", ["balance", "age"], None),
        ("", ["a"], None),
        ("a" * 61, ["a" * 60], None),
    ],
)
def test_nearest_is_the_known_name_that_is_most_like_it(name: str, known: list[str], meant: str | None) -> None:
    assert nearest(name, known) == meant
    assert suggestion(name, known) == (f"did you mean {meant}? " if meant else "")
