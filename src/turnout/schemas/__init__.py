"""Schemas of Avro and Protobuf sources, from files or a registry, and what the driver decodes with them.

The driver alone asks a registry. Spark's workers get the schemas that are known (`decode`), and leave the rest to it.
"""
