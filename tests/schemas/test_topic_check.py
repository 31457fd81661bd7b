"""The look at a topic's newest records before a swap: what it complains of, and that no value makes it fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout.config import parse
from turnout.config.tables import first_plan, layout_of
from turnout.schemas.record_decoder import Sample, take_samples

COLUMNS = {"userId": "string", "born": "date", "seen": "timestamp"}


def sample_of(folder: Path, values: list[bytes | None], key: str = "userId") -> Sample:
    source = {"topic": "t", "table": "users_ui", "key": key, "columns": COLUMNS}
    settings = parse({"sources": {"users": source}, "views": {}}, folder, {})
    [sample] = take_samples(layout_of(settings, first_plan(settings)), {"t": values})
    return sample


@pytest.mark.parametrize("key", ["userId", "born", "seen"])
def test_times_that_python_cannot_hold_are_sampled(tmp_path: Path, key: str) -> None:
    far = b'{"userId":"a","born":"+058844-02-03","seen":"+058844-02-03T04:05:06Z"}'
    early = b'{"userId":"b","born":"-000044-03-15","seen":"-000044-03-15T12:00:00Z"}'
    sample = sample_of(tmp_path, [far, early], key)
    assert (sample.records, sample.useful, sample.faults, sample.complaint()) == (2, 2, [], None)
    assert len(sample.values[key]) == 2


def test_topic_without_a_row_is_complained_of_and_tombstones_say_nothing(tmp_path: Path) -> None:
    assert sample_of(tmp_path, [None, None]).complaint() is None
    complaint = sample_of(tmp_path, [b"nope", b"[1]", None]).complaint()
    assert complaint is not None
    assert "none of its newest 2 records is a row of source 'users' (not valid JSON, not an object)" in complaint
    nothing = sample_of(tmp_path, [b'{"other": 1}']).complaint()
    assert nothing is not None and "none has a declared column" in nothing
