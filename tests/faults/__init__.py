"""Faults, made on purpose against real parts, and what Turnout shows after each compared with what Kafka holds.

`make faults` runs them all; `python -m faults --list` names them.
"""
