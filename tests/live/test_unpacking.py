"""Records of a few kilobytes that unpack to hundreds of megabytes, in every place that reads Kafka."""

from __future__ import annotations

import pytest

from bombs import send_bomb
from inboxes import reading
from turnout.testing import EmbeddedBroker, Record, create_topic, patience, produce

SECONDS = patience()


@pytest.fixture
def kafka(broker: EmbeddedBroker) -> str:
    return broker.bootstrap_servers


@pytest.mark.parametrize("records", [1, 5])
def test_inbox_rejects_a_batch_that_cannot_be_unpacked_and_reads_on(kafka: str, records: int) -> None:
    topic = f"inbox-bomb-{records}"
    create_topic(kafka, topic, partitions=2)
    produce(kafka, topic, [Record("before", partition=0)])
    send_bomb(kafka, topic, "zstd", b"x" * (150 << 20), records)
    produce(kafka, topic, [Record("after", partition=0), Record("beside", partition=1)])
    which = "record at offset 1" if records == 1 else f"batch of offsets 1 to {records}"
    unreadable = f"the {which} cannot be unpacked: it is damaged, or more than 100 MB"
    # From the start, after a restart before the batch, in it, and behind it.
    for after, bomb in (({}, True), ({0: 1}, True), ({0: records}, True), ({0: records + 1}, False)):
        with reading(kafka, topic, after) as (reader, inbox):
            assert inbox.caught_up.wait(SECONDS)
            found = [record for record in reader.records if record.partition == 0]
            read = [b"before"] * (not after) + [None] * bomb + [b"after"]
            assert [record.value for record in found] == read
            assert [(one.offset, one.unreadable) for one in found if one.unreadable] == [(records, unreadable)] * bomb
            assert [record.value for record in reader.records if record.partition == 1] == [b"beside"]
            assert len(reader.warnings) == len(reader.news) == bomb
            assert inbox.trouble is None
