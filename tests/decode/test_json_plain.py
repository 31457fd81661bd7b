"""Tens of thousands of hostile records: Arrow's way and the exact function agree on each."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoded_records import found, raw, shape
from hostile_json import COLUMNS, a_record
from lengths import FUZZ_EXAMPLES, HOSTILE_RECORDS, LONG
from turnout.decode.decoder import PlainReader, open_decoder
from turnout.decode.exact_reader import ExactReader, Faults

RECORDS = HOSTILE_RECORDS


@pytest.fixture(scope="module")
def hostile() -> list[bytes | None]:
    """In stretches of several hundred that are plain, nearly so, or odd; in some, texts come as numbers."""
    rng = random.Random(20_261_115)
    values: list[bytes | None] = []
    while len(values) < RECORDS:
        odd = rng.choice((0.002, 0.02, 0.5, 1.0, 1.0, 1.0))
        some = [a_record(rng, None if rng.random() < odd else 0.0) for _ in range(rng.randint(100, 900))]
        if rng.random() < 0.3:
            numbers = (b"7", b"7", b"0", b"-12", b'"a"' if odd == 1.0 else b"1", b"-0" if odd > 0.1 else b"2")
            some = [value and value.replace(b'"a"', rng.choice(numbers)) for value in some]
        values += some
    return values[:RECORDS]


Exact = tuple[pa.Table, pa.Table]


@pytest.fixture(scope="module")
def exact(hostile: list[bytes | None]) -> Exact:
    """Rows and faults of these by the exact function alone."""
    faults = Faults()
    each = zip(range(RECORDS), range(0, -RECORDS, -1), [b"k"] * RECORDS, hostile, strict=True)
    rows = ExactReader(0, shape(COLUMNS)).read(each, faults)
    wrong = faults.table()
    assert rows is not None and wrong is not None
    return rows, wrong


def test_both_ways_agree_on_hostile_records(hostile: list[bytes | None], exact: Exact) -> None:
    rows, wrong = exact
    assert 0.2 < rows.num_rows / RECORDS < 0.95
    decoded = open_decoder([shape(COLUMNS)])(raw(hostile))
    assert decoded.records == RECORDS
    assert same(decoded.rows[0].sort_by("_id"), rows)
    assert decoded.faults is not None
    assert decoded.faults.sort_by("_id").equals(wrong)


def test_no_record_that_is_wrong_in_any_way_is_read_by_arrow(hostile: list[bytes | None], exact: Exact) -> None:
    _, wrong = exact
    reader = PlainReader(COLUMNS, fewest=1)
    for place in pc.unique(wrong["_id"]).to_pylist()[:: 2 if LONG else 20]:
        assert reader.read(pa.array([hostile[place]], pa.binary())) == [], hostile[place]


def test_records_that_arrow_reads_alone_are_read_as_by_the_exact_function(
    hostile: list[bytes | None], exact: Exact
) -> None:
    rows, _ = exact
    reader = PlainReader(COLUMNS, fewest=1)
    taken = 0
    for row in range(0, rows.num_rows, 5 if LONG else 40):
        own = rows.slice(row, 1)
        for _, table in reader.read(pa.array([hostile[own["_id"][0].as_py()]], pa.binary())):
            assert same(table, own.select(list(COLUMNS))), own
            taken += 1
    assert taken > RECORDS / 400


def same(one: pa.Table, other: pa.Table) -> bool:
    """Equal, and in the signs of zeros too."""
    if not one.equals(other):
        return False
    for name in ("balance", "ratio"):
        if name in one.column_names:
            signs = [np.signbit(table[name].fill_null(1.0).to_numpy()) for table in (one, other)]
            if not (signs[0] == signs[1]).all():
                return False
    return True


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
objects = st.dictionaries(st.sampled_from([*COLUMNS, "z"]), json_values, max_size=5)
texts = (
    objects.map(lambda o: json.dumps(o).encode())
    | objects.map(lambda o: json.dumps(o, ensure_ascii=False, indent=1).encode("utf-8", "replace"))
    | st.binary(max_size=12)
    | st.randoms(use_true_random=False).map(a_record)
)


@settings(max_examples=FUZZ_EXAMPLES, deadline=None)
@given(st.lists(texts, max_size=12), st.integers(1, 60))
def test_every_record_is_read_as_python_reads_it(values: list[bytes | None], times: int) -> None:
    values = values * times
    for value, (row, faults) in zip(
        values, found(open_decoder([shape(COLUMNS)])(raw(values)), len(values)), strict=True
    ):
        try:
            expected: Any = json.loads((value or b"").decode(), parse_constant=refused)
        except ValueError:
            expected = None
        assert (row is not None) == isinstance(expected, dict), value
        if row is None:
            assert [field for field, _ in faults] == [None]
            continue
        wrong = {field for field, _ in faults}
        for name, kind in (("age", int), ("on", bool), ("id", str)):
            given_value = expected.get(name)
            if name not in wrong and type(given_value) is kind and "\\u" not in (value or b"").decode():
                assert row[name] == given_value, value
            elif given_value is None or name in wrong:
                assert row[name] is None, value


def refused(text: str) -> Any:
    raise ValueError(text)
