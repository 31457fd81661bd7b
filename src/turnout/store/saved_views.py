"""Views that operators keep: a name for a table with a filter, a sort, columns and a chart, as a small JSON text."""

from __future__ import annotations

from turnout.errors import TurnoutError
from turnout.plan.filter_values import show
from turnout.store.database import Database, Readable, first_row, scalar
from turnout.store.query.windows import store_faults

MAX_SAVED = 200


def list_saved(database: Readable) -> dict[str, str]:
    """The texts of all views, by name."""
    with store_faults("read"), database.read() as cursor:
        return dict(cursor.execute("SELECT name, view FROM turnout.saved_views ORDER BY name").fetchall())


def read_view(database: Readable, name: str) -> str:
    """The text of one view."""
    with store_faults("read"), database.read() as cursor:
        row = first_row(cursor, "SELECT view FROM turnout.saved_views WHERE name = ?", [name])
    if row is None:
        raise _unknown(name)
    return str(row[0])


def save_view(database: Database, name: str, view: str) -> None:
    """Keep a view, in place of the one of its name."""
    with store_faults("written"), database.write() as cursor:
        cursor.execute("DELETE FROM turnout.saved_views WHERE name = ?", [name])
        if scalar(cursor, "SELECT count(*) FROM turnout.saved_views") >= MAX_SAVED:
            raise TurnoutError(
                code="too_many_saved",
                message=f"saved: {MAX_SAVED} views are saved, which is the most",
                hint="remove one: DELETE /api/saved/{name}",
            )
        cursor.execute("INSERT INTO turnout.saved_views VALUES (?, ?)", [name, view])


def remove_view(database: Database, name: str) -> None:
    with store_faults("written"), database.write() as cursor:
        removed = cursor.execute("DELETE FROM turnout.saved_views WHERE name = ? RETURNING name", [name]).fetchall()
        if not removed:
            raise _unknown(name)


def _unknown(name: str) -> TurnoutError:
    return TurnoutError("unknown_saved", f"no saved view {show(name)}", "GET /api/saved lists them")
