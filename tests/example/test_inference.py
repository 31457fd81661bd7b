"""InferredColumn types by example: the type that values have, and the evidence that stands behind it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.decode.columns import fit_of
from turnout.decode.json_exact import reader
from turnout.example.topic_example import InferredColumn, infer

READ = reader(())


def inferred(*values: Any, name: str = "field", declared: str | None = None) -> InferredColumn:
    """The column of a field with these values of JSON; a text is JSON already."""
    texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
    rows: list[Any] = [READ(b'{"field": %s}' % text.encode()) for text in texts]
    return infer(name, [row["field"] for row in rows], len(rows), declared)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("boolean", [True, False]),
        ("int64", [1, -5, 2**31]),
        ("int64", [2**63 - 1, None]),
        ("decimal(38,0)", [2**63, 1]),
        ("string", [10**40, 1]),
        ("double", [1, 2.5]),
        ("double", ["1e5", "2E-3", "-0"]),
        ("double", ["1e-400", "2.5"]),
        ("decimal(38,2)", ["12345678901234567.89", "1"]),
        ("double", ["0.1234567890123456789012345678901234567890"]),
        ("string", ["1e400"]),
        ("string", ['"1"', '"22"']),
        ("string", ['"1.5"']),
        ("string", ['"true"']),
        ("string", ['""', '"2026-01-31"']),
        ("date", ['"2026-01-31"', '"1999-12-01"', None]),
        ("string", ['"2026-02-30"']),
        ("string", ['"2026-1-31"']),
        ("string", ['"12345-01-01"']),
        ("timestamp", ['"2026-01-31T12:00:00Z"', '"2026-01-31 12:00:00.5+01:00"']),
        ("timestamp", ['"2026-01-31T12:00:00Z"', '"2026-01-31"']),
        ("string", ['"2026-01-31T25:00:00Z"']),
        ("string", [1, '"one"']),
        ("string", [True, 1]),
        ("string", [{"a": 1}]),
        ("string", [[1, 2]]),
        ("string", [None, None]),
    ],
)
def test_type_is_the_one_that_all_values_have(kind: str, values: list[Any]) -> None:
    assert inferred(*values).kind == kind


@pytest.mark.parametrize(
    ("evidence", "values"),
    [
        ("3 of 4 records, 18 to 97", [18, 97, 20, None]),
        ("1 of 1 records, 7", [7]),
        ("2 of 2 records, -1e3 to 0.5", ["0.5", "-1e3"]),
        ("2 of 2 records, 1999-12-01 to 2026-01-31", ['"2026-01-31"', '"1999-12-01"']),
        ("3 of 3 records, 2 different values", ['"a"', '"b"', '"a"']),
        ("1 of 1 records, 1 value", ['"a"']),
        ("2 of 2 records", [True, False]),
        ("3 of 3 records, 2 whole numbers, 1 text: kept as JSON text", [1, 2, '"x"']),
        ("1 of 1 records, 1 object: kept as JSON text", [{"a": 1}]),
        ("0 of 2 records, never a value: its type is a guess", [None, None]),
    ],
)
def test_evidence_counts_records_and_shows_what_they_have(evidence: str, values: list[Any]) -> None:
    assert inferred(*values).evidence == evidence


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("createdAt", 1_767_355_200, "seconds since 1970? then timestamp shows them as times"),
        ("ts", 1_767_355_200_000, "milliseconds since 1970?"),
        ("amount", 1_767_355_200, ""),
        ("createdAt", 12, ""),
    ],
)
def test_numbers_that_may_be_times_stay_numbers_with_a_hint(name: str, value: int, hint: str) -> None:
    column = inferred(value, name=name)
    assert column.kind == "int64"
    assert hint in column.evidence if hint else "1970" not in column.evidence


def test_type_of_a_schema_stays_and_what_does_not_fit_is_counted() -> None:
    column = infer("rate", [1.5, float("nan"), None], 3, "double")
    assert (column.kind, column.evidence) == ("double", '2 of 3 records, 1.5, 1 do not fit: "NaN"')


def test_long_values_are_cut_in_the_evidence() -> None:
    assert len(inferred("9" * 38).evidence) < 80


# A type, values that mean it, and values that do not fit it.
MEANT: dict[str, tuple[st.SearchStrategy[str], st.SearchStrategy[str]]] = {
    "boolean": (st.sampled_from(["true", "false"]), st.sampled_from(['"n/a"', "1", "{}"])),
    "int64": (st.integers(-(2**63), 2**63 - 1).map(str), st.sampled_from(['"n/a"', "true", "[1]"])),
    "double": (st.integers(1, 10**6).map(lambda n: f"{n}.5"), st.sampled_from(['"n/a"', "true", "[1]", "1e999"])),
    "date": (st.dates().map(lambda day: f'"{day.isoformat()}"'), st.sampled_from(['""', '"n/a"', "1"])),
    "timestamp": (st.integers(10, 23).map(lambda hour: f'"2026-01-31T{hour}:00:00Z"'), st.sampled_from(['""', "true"])),
}


@pytest.mark.parametrize("kind", MEANT)
@given(data=st.data())
def test_type_is_the_one_of_at_least_95_in_100_values(kind: str, data: st.DataObject) -> None:
    good, bad = MEANT[kind]
    meant = data.draw(st.lists(good, min_size=1, max_size=60))
    others = data.draw(st.lists(bad, max_size=8))
    values = data.draw(st.permutations([*meant, *others]))
    column = inferred(*values)
    nearly_all = len(meant) >= 0.95 * len(values)
    assert column.kind == (kind if nearly_all else "string")
    fit = fit_of(column.kind)
    rows: list[Any] = [READ(b'{"field": %s}' % text.encode()) for text in values]
    assert column.exceptions == sum(fit(row["field"]) is None for row in rows) == (len(others) if nearly_all else 0)
    assert (f"{len(others):,} do not fit" in column.evidence) == (nearly_all and bool(others))


def test_exceptions_are_named_the_most_frequent_first() -> None:
    column = inferred(*range(18, 97), '"n/a"', '"forty-two"', '"n/a"')
    assert column.kind == "int64"
    assert column.evidence == '82 of 82 records, 18 to 96, 3 do not fit: "n/a" (2x), "forty-two"'


def test_one_number_that_is_too_large_costs_no_type() -> None:
    assert inferred(*range(99), 10**40).kind == "int64"
    assert inferred(*range(99), 2**63).kind == "decimal(38,0)"
