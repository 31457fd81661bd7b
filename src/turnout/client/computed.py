"""Live summaries, and live SELECTs: a slow consumer gets only the newest. Neither is taken up where it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout.client.events import (
    HistoryPoint,
    Json,
    LiveSummaryOptions,
    SqlOptions,
    SqlRows,
    Summary,
    SwapMoment,
    named_rows,
)
from turnout.client.newest import NewestSubscription
from turnout.client.wire import checked_options

if TYPE_CHECKING:
    from turnout.client.live import Live


class SummarySubscription(NewestSubscription[Summary]):
    """A summary of a table: an event is the whole summary, with its history where that was asked for."""

    _kind = _answer = "summary"
    _resumes = False

    def __init__(self, live: Live, table: str, options: LiveSummaryOptions) -> None:
        super().__init__(live, table, options)
        self._points: dict[int, HistoryPoint] = {}

    def move(self, options: LiveSummaryOptions) -> None:
        """Ask for another summary by the same subscription; what is not given stays."""
        with self._changed:
            self._options = checked_options(self._kind, self._subject, {**self._options, **options})
        self._live.ask_again(self)

    def _apply(self, message: Json) -> bool:
        if (history := message.get("history")) is not None:
            self._add(history, message["columns"])
        return super()._apply(message)

    def _add(self, history: Json, columns: list[Json]) -> None:
        """Points come once; the last one comes again while it changes."""
        known = {} if history["whole"] else dict(self._points)
        for point in history["points"]:
            known[point["time"]] = HistoryPoint(
                point["time"], point["generation"], named_rows(columns, point["groups"])
            )
        begin = max(known, default=0) - history["seconds"] * 1000
        older = [time for time in sorted(known) if time < begin]
        # The last value before the beginning is that of the beginning.
        self._points = {time: known[time] for time in sorted(known) if time not in older[:-1]}

    def _event(self, message: Json, swapped: bool) -> Summary:
        history = message.get("history")
        return Summary(
            table=message["table"],
            generation=message["generation"],
            version=message["version"],
            by=tuple(message["by"]),
            columns=tuple(message["columns"]),
            groups=named_rows(message["columns"], message["groups"]),
            total=message["total"],
            history=tuple(self._points.values()) if history else (),
            swaps=tuple(SwapMoment(swap["time"], swap["generation"]) for swap in history["swaps"]) if history else (),
            swapped=swapped,
        )


class SqlSubscription(NewestSubscription[SqlRows]):
    """The rows of a SELECT, again whenever a table that it names changed."""

    _kind = "sql"
    _answer = "rows"
    _resumes = False

    def __init__(self, live: Live, text: str, options: SqlOptions) -> None:
        super().__init__(live, "sql", options, {"sql": text})

    def _event(self, message: Json, swapped: bool) -> SqlRows:
        return sql_rows(message, named_rows(message["columns"], message["rows"]))


def sql_rows(answer: Json, rows: tuple[Json, ...]) -> SqlRows:
    return SqlRows(
        table=answer["table"],
        generation=answer["generation"],
        version=answer["version"],
        total=answer["total"],
        columns=tuple(answer["columns"]),
        rows=rows,
        complete=answer.get("complete", True),
    )
