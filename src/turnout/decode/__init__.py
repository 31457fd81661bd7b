"""Kafka's bytes -> typed Arrow rows: JSON, Avro and Protobuf, all column types.

Arrow reads plain records, many at a time; one exact function reads every other record, and decides where both differ.
It runs on the driver and in Spark's Python workers, which get this package by value: so it imports of Turnout only
itself and what `spark.read.bulk.carry_code` sends beside it, and of others only numpy and pyarrow; fastavro and
protobuf where a source needs them.
"""
