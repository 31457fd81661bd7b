"""The values of records, in the form of a sink: the row's JSON as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from turnout.sink.topic_writer import Header
from turnout.sink.waiting import ShownTable

Encode = Callable[[str | None, str | None], tuple[bytes | str | None, list[Header]]]
"""From a row as JSON and its fingerprint: the value of its record, and its headers; None is a row that went."""


class Values(Protocol):
    """Makes values of a sink."""

    @property
    def needs_fingerprint(self) -> bool:
        """Whether the value does not tell the row's fingerprint."""

    def encoder(self, shown: ShownTable) -> Encode: ...


class JsonValues:
    """The JSON of the row."""

    needs_fingerprint = False

    def encoder(self, shown: ShownTable) -> Encode:
        return lambda text, _: (text, [])
