"""Kafka's bytes -> typed Arrow rows: JSON, Avro and Protobuf, all column types.

Arrow reads plain records, many at a time; one exact function reads every other record, and decides where both differ.
It runs on the driver and in Spark's Python workers, which get this package by value: so it imports nothing of Turnout
but itself, and of others only numpy and pyarrow; fastavro and protobuf where a source needs them.
"""

from turnout.decode.columns import arrow_type
from turnout.decode.decoder import Decode, open_decoder
from turnout.decode.exact_reader import open_reader, schema_id, shown
from turnout.decode.packing import read, write
from turnout.decode.shape import FAULTS, RAW, Decoded, Definition, SourceShape, merge

__all__ = [
    "FAULTS",
    "RAW",
    "Decode",
    "Decoded",
    "Definition",
    "SourceShape",
    "arrow_type",
    "merge",
    "open_decoder",
    "open_reader",
    "read",
    "schema_id",
    "shown",
    "write",
]
