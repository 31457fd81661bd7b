"""Spark's JVM: how it is started, watched, reached and ended, here or as the driver of a cluster."""
