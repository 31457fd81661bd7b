"""Turnout: live Kafka views on Spark, under names that never change."""

__version__ = "0.1.0"
