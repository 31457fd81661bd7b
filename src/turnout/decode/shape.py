"""What a decoder is given and gives: the sources, and the columns of raw records and of faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from turnout_client.arrow_columns import arrow_type

Definition = Any
"""What a schema is to the reader of its format; it can be pickled."""

RAW = pa.schema(
    [
        ("_topic", pa.int32()),
        ("_id", pa.int64()),
        ("_ts", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
"""Records as Kafka has them. `_topic` is a number, `_id` is `partition << 44 | offset`, `_ts` milliseconds."""

FAULTS = pa.schema(
    [
        ("source", pa.int32()),
        ("_id", pa.int64()),
        ("_ts", pa.int64()),
        ("field", pa.string()),
        ("reason", pa.string()),
        ("text", pa.string()),
        ("whole", pa.bool_()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
"""What is wrong with records. `whole`: the record gave no row; only then `key` and `value` are kept."""


@dataclass(frozen=True, slots=True)
class SourceShape:
    """How the records of one topic become rows of one source."""

    name: str
    topic: int
    """The number of its topic in the list of topics."""
    key: str
    columns: Mapping[str, str]
    """Columns and the names of their types: `string`, `int64`, `decimal(10,2)`, ..."""
    tombstones: bool
    """Whether a null value removes a row (`rows: latest`), or is a fault."""
    form: str = "json"
    """`json`, `avro` or `protobuf`."""
    schemas: Mapping[int, Definition] = field(default_factory=dict)
    """Known schemas by id; where records carry no id, the one schema under 0."""
    framed: bool = False
    """Whether each record begins with the id of its schema."""
    unusable: Mapping[int, str] = field(default_factory=dict)
    """Ids of schemas that cannot be used, and why."""
    complete: bool = True
    """Whether a record of a schema in neither mapping is a fault; otherwise it is left over."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        fields = [(name, arrow_type(kind)) for name, kind in self.columns.items()]
        own = [("_id", pa.int64()), ("_ts", pa.int64()), *([("_deleted", pa.bool_())] if self.tombstones else [])]
        return pa.schema([*fields, *own])
