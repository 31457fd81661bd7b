"""Who the owner of a token is, and which role its claims give."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.config.server import Role, RoleSettings
from turnout.errors import TurnoutError
from turnout.issuer.people import claim_at, person_of

NAMES = st.sampled_from(["ops", "look", "all", "Ops", "", "ops look"])
VALUES = st.none() | NAMES | st.lists(NAMES | st.integers() | st.none(), max_size=3) | st.integers() | st.booleans()
JSON = st.recursive(VALUES, lambda inner: st.dictionaries(st.sampled_from(["groups", "a", "b"]), inner, max_size=3))


def plain_role(value: Any, operator: set[str], viewer: set[str]) -> Role | None:
    """The rule, told once more: text or a list of texts, operators first."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or any(not isinstance(one, str) for one in value):
        return None
    for one in value:
        if one in operator:
            return Role.OPERATOR
    return Role.VIEWER if any(one in viewer for one in value) else None


@given(value=JSON, operator=st.sets(NAMES), viewer=st.sets(NAMES))
def test_role_is_that_of_the_plain_rule_whatever_the_claim(value: Any, operator: set[str], viewer: set[str]) -> None:
    roles = RoleSettings(claim="groups", operator=tuple(operator), viewer=tuple(viewer))
    claims = {"sub": "s", "exp": 5, "groups": value}
    wanted = plain_role(value, operator, viewer)
    if wanted is None:
        with pytest.raises(TurnoutError) as caught:
            person_of(claims, roles)
        assert (caught.value.code, caught.value.status) == ("forbidden", 403)
    else:
        assert person_of(claims, roles).role is wanted


@given(claims=JSON, steps=st.lists(st.sampled_from(["groups", "a", "b"]), min_size=1, max_size=3))
def test_claim_inside_another_is_found_by_dots(claims: Any, steps: list[str]) -> None:
    found: Any = claims
    for step in steps:
        found = found.get(step) if isinstance(found, dict) else None
    if isinstance(claims, dict):
        assert claim_at(claims, ".".join(steps)) == found


def test_claim_whose_name_has_dots_is_found_by_its_whole_name() -> None:
    assert claim_at({"https://id.example/groups": ["a"]}, "https://id.example/groups") == ["a"]


@given(name=st.text(max_size=200), subject=st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=255))
def test_requester_is_one_line_that_ends_with_the_subject_alone(name: str, subject: str) -> None:
    claims = {"sub": subject, "exp": 10**400, "name": name, "groups": "all"}
    person = person_of(claims, RoleSettings(viewer=("all",)))
    assert person.requester.isprintable() and len(person.requester) < 600
    assert person.requester.endswith(f" ({subject})")
    assert person.requester.count("(") == 1
    assert person.until > 2**40
