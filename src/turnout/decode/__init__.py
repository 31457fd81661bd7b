"""Kafka's bytes -> typed Arrow rows: JSON, Avro and Protobuf, all column types.

Records that are plain are read by Arrow, many at a time; every other one by one exact function, whose word is final.
It runs on the driver and in Spark's Python workers, which get this package by value: so it imports nothing of Turnout
but itself, and of others only numpy and pyarrow; fastavro and protobuf where a source needs them.
"""

from turnout.decode.columns import arrow_type
from turnout.decode.decoder import Decode, open_decoder
from turnout.decode.packing import read, write
from turnout.decode.reading import open_reader, schema_id, shown
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
