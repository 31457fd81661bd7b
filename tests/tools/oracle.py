"""The reference computation for every table: plain Python over all records, without batches, keys and SQL."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from turnout.plan.joins import Duplicates, Join
from turnout.plan.times import duckdb_date, duckdb_moment
from turnout_client.iso_times import iso_moment_text, parse_date, parse_moment

Row = dict[str, Any]

_DATE = re.compile(r"[+-]?[0-9]{4,7}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(
    rf"{_DATE.pattern}(T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,6}})?(Z|[+-][0-9]{{2}}:[0-9]{{2}}))?"
)


@dataclass(frozen=True, slots=True)
class Sent:
    """A record in Kafka."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Kept:
    """A record that produced a row, or a tombstone that removes one."""

    record: Sent
    row: Row
    removes: bool = False


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as a list of its pairs in order."""


def _no_constant(text: str) -> Any:
    raise ValueError(text)


def read_object(value: bytes) -> dict[str, Any]:
    """Parse the JSON object of a record; raise ValueError with the reason if there is none."""
    text = value.decode("utf-8")
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise ValueError("not valid JSON") from None
    if not isinstance(found, dict):
        raise ValueError("not an object")  # noqa: TRY004
    return found


def field_text(text: str, name: str) -> str:
    """Return the unparsed text of a field, found with the scanner of the standard library."""
    found = ""
    decoder = json.JSONDecoder()
    at = text.index("{") + 1
    while True:
        at = re.compile(r"[\s,]*").match(text, at).end()  # type: ignore[union-attr]
        if text[at] == "}":
            return found
        key, at = decoder.raw_decode(text, at)
        at = re.compile(r"\s*:\s*").match(text, at).end()  # type: ignore[union-attr]
        _, end = decoder.raw_decode(text, at)
        if key == name:
            found = text[at:end]
        at = end


def convert(text: str, name: str, kind: str, value: Any) -> tuple[Any, bool]:
    """Convert a value to the type of its column; return it, and whether its type was correct."""
    if value is None:
        return None, True
    if kind == "string":
        return (value if isinstance(value, str) else field_text(text, name)), True
    if kind == "int64":
        good = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
        return (value, True) if good else (None, False)
    if kind == "double":
        good = isinstance(value, int | float) and not isinstance(value, bool)
        good = good and abs(float(value)) != float("inf")
        return (float(value), True) if good else (None, False)
    if kind == "date":
        return _time(value, _DATE, parse_date, duckdb_date)
    if kind == "timestamp":
        if isinstance(value, int) and not isinstance(value, bool):  # seconds
            value = iso_moment_text(value * 1_000_000)
        return _time(value, _MOMENT, parse_moment, duckdb_moment)
    raise AssertionError(kind)


def _time(
    value: Any, form: re.Pattern[str], parse: Callable[[str], int], held: Callable[[int], str]
) -> tuple[int | None, bool]:
    """Parse a time into a number, because Python cannot represent all years; return it, and whether it is valid."""
    if not isinstance(value, str) or not form.fullmatch(value):
        return None, False
    try:
        number = parse(value)
        held(number)
    except ValueError:
        return None, False
    return number, True


def numbered(rows: pa.Table) -> list[Row]:
    """Return the rows with dates as days and timestamps as microseconds."""
    for place, column in enumerate(rows.schema):
        if pa.types.is_timestamp(column.type) or pa.types.is_date32(column.type):
            whole = pa.int64() if pa.types.is_timestamp(column.type) else pa.int32()
            rows = rows.set_column(place, column.name, rows[place].cast(whole))
    found: list[Row] = rows.to_pylist()
    return found


@dataclass(frozen=True, slots=True)
class Source:
    """A source, as the oracle needs it."""

    name: str
    topic: str
    key: str
    columns: Mapping[str, str]
    latest: bool
    max_rows: int | None = None


def read_source(source: Source, records: Iterable[Sent]) -> tuple[list[Kept], set[tuple[Any, ...]]]:
    """Return a source's rows before `rows: latest`, and its faults as (topic, partition, offset, field, reason)."""
    kept: list[Kept] = []
    bad: set[tuple[Any, ...]] = set()
    for record in records:
        if record.topic != source.topic:
            continue
        place = (record.topic, record.partition, record.offset)
        if record.value is None:
            if source.latest and record.key is not None:
                row = dict.fromkeys(source.columns) | {source.key: record.key.decode()}
                kept.append(Kept(record, row, removes=True))
            else:
                bad.add((*place, None, "null value"))
            continue
        try:
            found = read_object(record.value)
        except UnicodeDecodeError:
            bad.add((*place, None, "not valid JSON"))
            continue
        except ValueError as error:
            bad.add((*place, None, str(error)))
            continue
        row = {}
        for name, kind in source.columns.items():
            row[name], good = convert(record.value.decode(), name, kind, found.get(name))
            if not good:
                bad.add((*place, name, f"expected {kind}"))
        kept.append(Kept(record, row))
    return kept, bad


def newest(rows: Sequence[Kept]) -> Kept:
    """Return the newest row: by offset in a partition; between partitions by timestamp, then by partition."""
    last: dict[int, Kept] = {}
    for kept in rows:
        current = last.get(kept.record.partition)
        if current is None or kept.record.offset > current.record.offset:
            last[kept.record.partition] = kept
    return max(last.values(), key=lambda kept: (kept.record.timestamp_ms, kept.record.partition))


def by_key(rows: Iterable[Kept], key: str) -> dict[Any, list[Kept]]:
    groups: dict[Any, list[Kept]] = {}
    for kept in rows:
        groups.setdefault(kept.row[key], []).append(kept)
    return groups


def shown(source: Source, rows: list[Kept]) -> list[Kept]:
    """Return the rows of the source's table."""
    if source.latest:
        return [last for group in by_key(rows, source.key).values() if not (last := newest(group)).removes]
    if source.max_rows is not None:
        order = sorted(rows, key=lambda k: (k.record.timestamp_ms, k.record.partition, k.record.offset))
        return order[max(0, len(order) - source.max_rows) :]
    return rows


def pairs(join: Join, duplicates: Duplicates) -> bool:
    """Whether a left row appears once for each right row with its key."""
    return join is Join.INNER or (duplicates is Duplicates.ALL and join not in (Join.SEMI, Join.ANTI))


def left_out(join: Join, duplicates: Duplicates, most: int | None, *sides: tuple[Source, list[Kept]]) -> set[Any]:
    """Return the keys that are left out of a view because a join would give them too many rows.

    This happens only if several sides can have many rows of a key; a side with `rows: latest` has one.
    """
    if most is None or not pairs(join, duplicates) or sum(not source.latest for source, _ in sides) < 2:
        return set()
    counts = [Counter(kept.row[source.key] for kept in rows) for source, rows in sides]
    found = set()
    for key in set().union(*counts) - {None}:
        rows = counts[0][key]
        for others in counts[1:]:
            if rows and others[key]:
                rows *= others[key]
            elif join in (Join.LEFT, Join.NATURAL) or (join is Join.FULL and rows):
                pass
            else:
                rows = others[key] if join in (Join.RIGHT, Join.FULL) else 0
            if rows > most:
                found.add(key)
    return found


def join_rows(
    left: Source, left_rows: list[Kept], right: Source, right_rows: list[Kept], join: Join, duplicates: Duplicates
) -> list[Row]:
    """Return the rows of a view with one join."""
    groups = {key: rows for key, rows in by_key(right_rows, right.key).items() if key is not None}
    if join is not Join.INNER and duplicates is Duplicates.LATEST:
        groups = {key: [newest(rows)] for key, rows in groups.items()}
    empty_right = dict.fromkeys(c for c in right.columns if c != right.key)
    empty_left = dict.fromkeys(left.columns)
    rows: list[Row] = []
    for kept in left_rows:
        matches = groups.get(kept.row[left.key], [])
        if join is Join.SEMI:
            rows += [kept.row | empty_right] if matches else []
        elif join is Join.ANTI:
            rows += [] if matches else [kept.row | empty_right]
        else:
            rows += [kept.row | {c: m.row[c] for c in empty_right} for m in matches]
            if not matches and join in (Join.LEFT, Join.NATURAL, Join.FULL):
                rows.append(kept.row | empty_right)
    if join in (Join.RIGHT, Join.FULL):
        known = {kept.row[left.key] for kept in left_rows}
        for key, matches in groups.items():
            if key not in known:
                rows += [empty_left | m.row for m in matches]
    return rows


def quality(left: Source, left_rows: list[Kept], right: Source, right_rows: list[Kept], left_out_keys: int = 0) -> Row:
    """Return the row of `join_quality`, without the view's name."""
    left_keys = Counter(kept.row[left.key] for kept in left_rows)
    right_keys = Counter(kept.row[right.key] for kept in right_rows)
    nulls = left_keys.pop(None, 0) + right_keys.pop(None, 0)
    matched = sum(n for key, n in left_keys.items() if key in right_keys)
    matched_right = sum(n for key, n in right_keys.items() if key in left_keys)
    return {
        "leftRows": len(left_rows),
        "rightRows": len(right_rows),
        "matched": matched,
        "unmatchedLeft": len(left_rows) - matched,
        "unmatchedRight": len(right_rows) - matched_right,
        "duplicateRightKeys": sum(n > 1 for n in right_keys.values()),
        "nullKeys": nulls,
        "leftOutKeys": left_out_keys,
    }


@dataclass(frozen=True, slots=True)
class Link:
    """A step of a chain: it joins the column `left_on` so far with `right_on` of the source `right`."""

    right: str
    left_on: str
    right_on: str
    join: Join
    duplicates: Duplicates


def names_of(link: Link, columns: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """Return the columns that a step adds, with their names in the view."""
    return {
        column: f"{link.right}_{column}" if column in taken else column
        for column in columns
        if not (link.left_on == link.right_on == column)
    }


def chain_left_out(
    sources: Mapping[str, list[Kept]],
    latest: Mapping[str, str],
    left: str,
    columns: Mapping[str, Sequence[str]],
    links: Sequence[Link],
    most: int | None,
) -> dict[str, set[Any]]:
    """Return for each right source the values that match nothing, because they would pair too many rows.

    They are counted in the sources of the left column; `latest` has the key of each source with one row of a key.
    """
    there = {column: [(left, column)] for column in columns[left]}
    taken = list(columns[left])
    found = {}
    for link in links:
        names = names_of(link, columns[link.right], taken)
        taken += names.values()
        lefts, own = there.get(link.left_on, []), (link.right, link.right_on)
        once = set(latest.items())
        alone = own in once or (len(lefts) == 1 and lefts[0] in once)
        counted = pairs(link.join, link.duplicates) and most is not None and not alone
        some = Counter(kept.row[column] for source, column in lefts for kept in sources[source])
        others = Counter(kept.row[link.right_on] for kept in sources[link.right])
        values = some.keys() & others.keys() - {None} if counted else set()
        found[link.right] = {value for value in values if some[value] * others[value] > (most or 0)}
        if link.join not in (Join.SEMI, Join.ANTI):
            there |= {name: [(link.right, column)] for column, name in names.items()}
            if link.join in (Join.RIGHT, Join.FULL) and link.left_on == link.right_on:
                there[link.left_on] = [*lefts, own]
    return found


def chain_rows(
    sources: Mapping[str, list[Kept]],
    left: str,
    columns: Mapping[str, Sequence[str]],
    links: Sequence[Link],
    left_out: Mapping[str, set[Any]],
) -> list[Row]:
    """Return the rows of a chain: the rows of a step are the left side of the next; left-out right rows are ignored."""
    rows = [dict(kept.row) for kept in sources[left]]
    there = list(columns[left])
    for link in links:
        names = names_of(link, columns[link.right], there)
        out = {None, *left_out[link.right]}
        rights = by_key((kept for kept in sources[link.right] if kept.row[link.right_on] not in out), link.right_on)
        if link.join is not Join.INNER and link.duplicates is Duplicates.LATEST:
            rights = {value: [newest(some)] for value, some in rights.items()}
        nothing = dict.fromkeys(names.values())
        found: list[Row] = []
        for row in rows:
            matches = rights.get(row[link.left_on], [])
            if link.join in (Join.SEMI, Join.ANTI):
                found += [row | nothing] if bool(matches) == (link.join is Join.SEMI) else []
                continue
            found += [row | {name: kept.row[column] for column, name in names.items()} for kept in matches]
            if not matches and link.join in (Join.LEFT, Join.NATURAL, Join.FULL):
                found.append(row | nothing)
        if link.join in (Join.RIGHT, Join.FULL):
            known = {row[link.left_on] for row in rows}
            for value, some in rights.items():
                for kept in some if value not in known else []:
                    alone = dict.fromkeys(there) | {name: kept.row[column] for column, name in names.items()}
                    found.append(alone | ({link.left_on: value} if link.left_on == link.right_on else {}))
        rows, there = found, [*there, *names.values()]
    return rows


def chain_quality(
    sources: Mapping[str, list[Kept]],
    left: str,
    columns: Mapping[str, Sequence[str]],
    links: Sequence[Link],
    left_out: Mapping[str, set[Any]],
) -> dict[str, Row]:
    """Return the rows of `join_quality` by right source, compared with the source that has the left column."""
    owners = {column: (left, column) for column in columns[left]}
    found = {}
    for link in links:
        source, column = owners[link.left_on]
        one, other = (Source(name, name, name, {}, latest=False) for name in ("l", "r"))
        lefts = [Kept(kept.record, {"l": kept.row[column]}) for kept in sources[source]]
        rights = [Kept(kept.record, {"r": kept.row[link.right_on]}) for kept in sources[link.right]]
        found[link.right] = quality(one, lefts, other, rights, len(left_out[link.right]))
        names = names_of(link, columns[link.right], owners)
        owners |= {name: (link.right, column) for column, name in names.items()}
    return found


def bag(rows: Iterable[Mapping[str, Any]]) -> Counter[tuple[tuple[str, Any], ...]]:
    """Return rows as a multiset, in which duplicates count but the order does not."""
    return Counter(tuple(sorted(row.items())) for row in rows)
