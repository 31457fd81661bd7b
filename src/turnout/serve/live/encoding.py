"""Messages of the server as JSON bytes.

A message that goes to many is encoded once, as a body without the `type` and `id` that differ; `message` completes it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from turnout.errors import TurnoutError
from turnout.messages import SNAPSHOT_PART_ROWS
from turnout.serve.formats import json_list, json_object, to_json
from turnout.store.identity import ROW
from turnout.store.query.tracked_read import TrackedWindow
from turnout.store.query.window_rows import ChangeSet
from turnout.store.query.windows import Column


def message(kind: str, identity: str | None, body: bytes) -> str:
    """A whole message from a body, which is a JSON object with at least one field."""
    return f'{{"type":"{kind}","id":{to_json(identity).decode()},{body[1:].decode()}'


def rows_json(rows: pa.Table | pa.RecordBatch) -> bytes:
    """Rows as lists in the order of the columns."""
    return json_list(rows, lambda columns: list(zip(*columns, strict=True)))


def window_rows(rows: pa.RecordBatch, columns: Sequence[Column], offset: int) -> bytes:
    """The part of a window that stays while only its total changes."""
    shown = rows.select([column.name for column in columns])
    ids = to_json(rows.column(ROW).to_pylist())
    return json_object({"offset": offset, "columns": columns}, ids=ids, rows=rows_json(shown))


def window_body(table: str, generation: int, version: int, total: int, rows: bytes) -> bytes:
    """The whole of a window; `rows` is of `window_rows`."""
    head = to_json({"table": table, "generation": generation, "version": version, "total": total})
    return head[:-1] + b"," + rows[1:]


def snapshot_starts(tracked: TrackedWindow) -> range:
    """Where the bodies of a whole table begin, each of a bounded size; an empty one is one body."""
    return range(0, max(1, tracked.result.rows.num_rows), SNAPSHOT_PART_ROWS)


def snapshot_part(tracked: TrackedWindow, reason: str, start: int) -> bytes:
    result = tracked.result
    fields = {
        "table": result.table,
        "generation": result.generation,
        "version": result.version,
        "reason": reason,
        "last": start == snapshot_starts(tracked)[-1],
        "columns": result.columns,
    }
    rows = result.rows.slice(start, SNAPSHOT_PART_ROWS)
    ids = tracked.ids.slice(start, SNAPSHOT_PART_ROWS)
    return json_object(fields, ids=to_json(ids.to_pylist()), rows=rows_json(rows))


def changes_body(table: str, generation: int, since: int, version: int, changes: ChangeSet) -> bytes:
    """What happened between two versions."""
    fields = {"table": table, "generation": generation, "version": version, "since": since}
    insert, update = _row_set(changes.insert), _row_set(changes.update)
    return json_object(fields, insert=insert, update=update, delete=to_json(changes.delete))


def current_body(table: str, generation: int, version: int) -> bytes:
    return to_json({"table": table, "generation": generation, "version": version})


def problem_body(error: TurnoutError) -> bytes:
    return to_json(error.as_json())


def unexpected() -> TurnoutError:
    """A fault of ours: logged in full, sent without internals."""
    return TurnoutError(
        code="internal_error",
        message="the server failed on this subscription",
        hint="subscribe again; its log has the details",
        status=500,
    )


def _row_set(rows: pa.Table) -> bytes:
    """Rows that have their ids in the last column."""
    ids, values = rows.columns[-1], rows.select(rows.column_names[:-1])
    return json_object({}, ids=to_json(ids.to_pylist()), rows=rows_json(values))
