"""The filter and sort language of tables: `column operator value` terms and column lists, never SQL.

Owns their texts, their structured form and the SQL they become: names are looked up among a table's columns
and quoted, values travel as parameters only. How a value is read is `filter_values.py`; `store` runs the SQL.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum
from typing import Self

import orjson

from turnout.errors import TurnoutError
from turnout.plan.filter_values import parse_value, show
from turnout.plan.nearest import suggestion
from turnout.plan.sql_text import quoted
from turnout_client.column_types import ColumnType

ROW = "_row"
"""The hidden column of a row's identity; `store/identity.py` says what that is."""

MAX_TERMS = 100
MAX_VALUES = 5_000
"""Values of all `in` and `not in` lists of a filter together."""


ANY_COLUMN = "*"
"""In place of a column: a term that one of the text columns fulfils."""

SEARCH_WEIGHT = 10
"""How many terms a search of all text columns counts as."""

MAX_SMALL_FILTER = 16
"""A filter of a greater weight is large, and costly: nobody waits for it but the client that asked for it."""


class Op(StrEnum):
    """What a term compares by: the canonical spelling, the SQL of a column and a value, and other spellings."""

    sql: str
    aliases: tuple[str, ...]

    def __new__(cls, spelling: str, sql: str = "", *aliases: str) -> Self:
        op = str.__new__(cls, spelling)
        op._value_ = spelling
        op.sql, op.aliases = sql, aliases
        return op

    EQ = "=", "{0} = {1}", "=="
    # So `=` and `!=` split a table in two (as `in` and `not in` do): a null is not equal to any value.
    NE = "!=", "{0} IS DISTINCT FROM {1}", "<>"
    LT = "<", "{0} < {1}"
    LE = "<=", "{0} <= {1}"
    GT = ">", "{0} > {1}"
    GE = ">=", "{0} >= {1}"
    CONTAINS = "contains", "contains({0}, {1})"
    ICONTAINS = "icontains", "contains(lower({0}), lower({1}))"
    STARTS = "starts with", "starts_with({0}, {1})", "startswith", "starts_with"
    ENDS = "ends with", "ends_with({0}, {1})", "endswith", "ends_with"
    IN = "in"
    NOT_IN = "not in"
    NULL = "is null"
    NOT_NULL = "is not null"


_SPELLINGS = {spelling: op for op in Op for spelling in (op.value, *op.aliases)}
_TEXT_ONLY = (Op.CONTAINS, Op.ICONTAINS, Op.STARTS, Op.ENDS)
_OPERATORS = ", ".join(op.value for op in Op)
_HINT = f"write `column operator value`, terms separated by commas; operators: {_OPERATORS}"

_QUOTED = r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`(?:[^`\\]|\\.)*`'
_NAME = re.compile(rf"\s*(?:(?P<quoted>{_QUOTED})|(?P<bare>[^\s=!<>,()\"'`]+))", re.DOTALL)
_SYMBOL = re.compile(r"\s*(==|=|!=|<>|<=|>=|<|>)")
_WORD = re.compile(
    r"""\s*(is\s+not\s+null|is\s+null|not\s+in(?=[\s(])|in(?=[\s(])|i?contains(?=[\s"'`])"""
    r"""|(?:starts|ends)(?:\s+|_)?with(?=[\s"'`]))""",
    re.IGNORECASE | re.ASCII,
)
_VALUE = re.compile(rf"\s*(?:(?P<quoted>{_QUOTED})|(?P<bare>[^,]*))", re.DOTALL)
_ITEM = re.compile(rf"\s*(?:(?P<quoted>{_QUOTED})|(?P<bare>[^,)]*))", re.DOTALL)
_BLANK = re.compile(r"\s*")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


@dataclass(frozen=True, slots=True)
class Term:
    """One condition. `value` is as it was given: the column's type is known only when it is compiled."""

    column: str
    op: Op
    value: object = None

    def __str__(self) -> str:
        if self.op in (Op.NULL, Op.NOT_NULL):
            return f"{self.column} {self.op.value}"
        if isinstance(self.value, tuple):
            return f"{self.column} {self.op.value} ({', '.join(map(show, self.value))})"
        return f"{self.column} {self.op.value} {show(self.value)}"


@dataclass(frozen=True, slots=True)
class SortKey:
    column: str
    descending: bool = False


def parse_terms(raw: str | Sequence[str | Mapping[str, object]]) -> tuple[Term, ...]:
    """The terms of a text, of several texts, or of a list of `{"column", "op", "value"}`; all must hold."""
    terms: list[Term] = []
    for item in (raw,) if isinstance(raw, str) else _listed(raw, "where"):
        if isinstance(item, str):
            terms.extend(_terms_of_text(item))
        elif isinstance(item, Mapping):
            terms.append(_term_of_mapping(item))
        else:
            raise _bad(f"where: a term is a text or an object, got {show(item)}")
        if sum(map(_terms_in, terms)) > MAX_TERMS:
            hint = f"use `in (...)` for many values of one column; a search with `*` counts as {SEARCH_WEIGHT} terms"
            raise _bad(f"where: more than {MAX_TERMS} terms", hint)
    if sum(len(term.value) for term in terms if isinstance(term.value, tuple)) > MAX_VALUES:
        raise _bad(f"where: more than {MAX_VALUES} values in lists", "split them over several requests")
    return tuple(terms)


def weight(terms: Sequence[Term]) -> int:
    """How much a filter asks for: its terms, where each value of a list counts as one."""
    return sum(len(term.value) if isinstance(term.value, tuple) else _terms_in(term) for term in terms)


def _terms_in(term: Term) -> int:
    return SEARCH_WEIGHT if term.column == ANY_COLUMN else 1


def term_columns(terms: Sequence[Term], columns: Mapping[str, ColumnType]) -> set[str]:
    """The columns that decide whether a row fulfils the terms."""
    return {name for term in terms for name in _columns_of(term, columns)}


def parse_sort(raw: str | Sequence[str]) -> tuple[SortKey, ...]:
    """`-age,name` as keys: a leading minus means descending."""
    keys: dict[str, SortKey] = {}
    for text in (raw,) if isinstance(raw, str) else _listed(raw, "sort"):
        for name, descending in _names(text, "sort"):
            # A column that comes again can change nothing.
            keys.setdefault(name, SortKey(name, descending))
    return tuple(keys.values())


def parse_columns(raw: str | Sequence[str]) -> tuple[str, ...]:
    """`name,age` as column names, each once, in the order given."""
    texts = (raw,) if isinstance(raw, str) else _listed(raw, "columns")
    return tuple(dict.fromkeys(name for text in texts for name, _ in _names(text, "columns")))


def compile_where(terms: Sequence[Term], columns: Mapping[str, ColumnType]) -> tuple[str, list[object]]:
    """A condition with `?` for each value, and the values; `TRUE` without terms."""
    parts: list[str] = []
    parameters: list[object] = []
    for term in terms:
        compiled = [_compile(replace(term, column=name), columns.get(name)) for name in _columns_of(term, columns)]
        parts.append(f"({' OR '.join(text for text, _ in compiled)})" if len(compiled) > 1 else compiled[0][0])
        parameters.extend(value for _, values in compiled for value in values)
    return " AND ".join(parts) or "TRUE", parameters


def _columns_of(term: Term, columns: Mapping[str, ColumnType]) -> list[str]:
    """The column that a term names, or the text columns that it searches."""
    if term.column == ROW:
        return [ROW]
    if term.column != ANY_COLUMN or ANY_COLUMN in columns:
        known_column(term.column, columns, "where", "bad_where")
        return [term.column]
    if term.op not in _TEXT_ONLY:
        known = ", ".join(op.value for op in _TEXT_ONLY)
        raise _bad(f"where: `*` searches text columns, not by `{term.op.value}`", f"operators of `*`: {known}")
    texts = [name for name, kind in columns.items() if kind.name == "string" and not name.startswith("_")]
    if not texts:
        raise _bad("where: `*` searches text columns, and this table has none", f"columns: {', '.join(columns)}")
    return texts


def compile_sort(keys: Sequence[SortKey], columns: Mapping[str, ColumnType], ties: Sequence[str] = ()) -> str:
    """The order's text, nulls last both ways; `ties` (hidden columns) make it total."""
    return ", ".join(f"{column} {direction}" for column, direction in _ordered(keys, columns, ties))


def compile_key(keys: Sequence[SortKey], columns: Mapping[str, ColumnType], ties: Sequence[str] = ()) -> str:
    """The order of `compile_sort` as one expression: rows are in it as the bytes of its values are."""
    parts = [f"{column}, '{direction}'" for column, direction in _ordered(keys, columns, ties)]
    return f"create_sort_key({', '.join(parts)})" if parts else "CAST('' AS BLOB)"


def _ordered(
    keys: Sequence[SortKey], columns: Mapping[str, ColumnType], ties: Sequence[str]
) -> Iterator[tuple[str, str]]:
    for key in keys:
        known_column(key.column, columns, "sort", "bad_sort")
        yield quoted(key.column), f"{'DESC' if key.descending else 'ASC'} NULLS LAST"
    for tie in ties:
        yield quoted(tie), "ASC NULLS LAST"


def known_column(name: str, columns: Collection[str], place: str, code: str) -> None:
    """Refuse a column that the table does not show."""
    if name not in columns or name.startswith("_"):
        known = [column for column in columns if not column.startswith("_")]
        hint = f"{suggestion(name, known)}columns: {', '.join(known)}"
        raise TurnoutError(code=code, message=f"{place}: no column {show(name)}", hint=hint)


def _compile(term: Term, column: ColumnType | None) -> tuple[str, list[object]]:
    """A condition over one column; without a type it is `ROW`."""
    if column is None:
        if term.op is not Op.EQ or not isinstance(term.value, str):
            raise _bad(f"where: {ROW} is compared by = with the id of a row", f'write {ROW} = "id"')
        return f"{ROW} = CAST(? AS VARCHAR)", [term.value]
    name = quoted(term.column)
    if term.op in (Op.NULL, Op.NOT_NULL):
        return f"{name} {term.op.value.upper()}", []
    if term.op in _TEXT_ONLY and column.name != "string":
        raise _bad(f"where: `{term.op.value}` needs a string column; {show(term.column)} is {column.name}")
    given = term.value if isinstance(term.value, tuple) else (term.value,)
    values = [parse_value(value, column, f"where: column {show(term.column)}") for value in given]
    # The cast makes both sides one type: 0.1 equals the float 0.1, and no comparison can fail while it runs.
    if term.op is Op.IN:
        return f"{name} IN ({_listed_values(column)})", [_texts(values)]
    if term.op is Op.NOT_IN:
        return f"({name} IS NULL OR {name} NOT IN ({_listed_values(column)}))", [_texts(values)]
    return term.op.sql.format(name, f"CAST(? AS {column.duckdb})"), values


def _listed_values(column: ColumnType) -> str:
    """The values of one list parameter as a subquery: a hash lookup for each row, however long the list is."""
    # A float is read by way of a double, as a single value is: texts may round otherwise.
    read = "DOUBLE" if column.name == "float" else column.duckdb
    return f"SELECT CAST(unnest(CAST(CAST(? AS VARCHAR[]) AS {read}[])) AS {column.duckdb})"


def _texts(values: Sequence[object]) -> tuple[str, ...]:
    """The values of a list as one parameter.

    As texts: in a Python list DuckDB takes NaN for null, and all decimals for as short as the first.
    """
    return tuple(value.isoformat() if isinstance(value, date) else str(value) for value in values)


def _terms_of_text(text: str) -> Iterator[Term]:
    if text.lstrip().startswith("["):
        try:
            items = orjson.loads(text)
        except (orjson.JSONDecodeError, UnicodeEncodeError) as error:
            raise _bad(f"where: begins like a JSON list but is not one: {error}") from error
        if any(not isinstance(item, dict) for item in items):
            raise _bad("where: a JSON list holds objects with column, op and value")
        yield from parse_terms(items)
        return
    position = _skip_blank(text, 0)
    while position < len(text):
        if text[position] != ",":
            term, position = _read_term(text, position)
            yield term
            position = _skip_blank(text, position)
            if position < len(text) and text[position] != ",":
                raise _bad(f"where: after {show(str(term))} comes {show(text[position:])}, not a comma")
        position = _skip_blank(text, position + 1)


def _term_of_mapping(item: Mapping[str, object]) -> Term:
    unknown = set(item) - {"column", "op", "value"}
    if unknown:
        raise _bad(f"where: unknown field {show(min(map(str, unknown)))} in a term (known: column, op, value)")
    column, spelling, value = item.get("column"), item.get("op"), item.get("value")
    if not isinstance(column, str) or not isinstance(spelling, str):
        raise _bad(f"where: a term needs column and op as texts, got {show(column)} and {show(spelling)}")
    op = _op(spelling)
    if op is None:
        raise _bad(f"where: unknown operator {show(spelling)}", f"operators: {_OPERATORS}")
    if op in (Op.NULL, Op.NOT_NULL):
        if value is not None:
            raise _bad(f"where: `{op.value}` takes no value, got {show(value)}")
    elif op in (Op.IN, Op.NOT_IN):
        if not isinstance(value, (list, tuple)) or not value:
            raise _bad(f"where: `{op.value}` takes a list of at least one value, got {show(value)}")
        value = tuple(value)
    elif isinstance(value, tuple):
        raise _bad(f"where: `{op.value}` takes one value, got {show(value)}", "for a list use `in`")
    return Term(column, op, value)


def _read_term(text: str, position: int) -> tuple[Term, int]:
    name = _NAME.match(text, position)
    if name is None:
        raise _bad(f"where: a term begins with a column, got {show(text[position:])}")
    column = _unquoted(name)
    found = _SYMBOL.match(text, name.end()) or _WORD.match(text, name.end())
    op = _op(found[1]) if found else None
    if found is None or op is None:
        raise _bad(
            f"where: no operator after {show(column)}, got {show(text[name.end() :].strip())}",
            f"operators: {_OPERATORS}; put a value that has a comma in quotes",
        )
    end = found.end()
    if op in (Op.NULL, Op.NOT_NULL):
        return Term(column, op), end
    if op in (Op.IN, Op.NOT_IN):
        values, end = _read_list(text, end, column, op)
        return Term(column, op, values), end
    value, end = _read_value(_VALUE, text, end, column)
    return Term(column, op, value), end


def _op(spelling: str) -> Op | None:
    return _SPELLINGS.get(" ".join(spelling.lower().split()))


def _read_value(pattern: re.Pattern[str], text: str, position: int, column: str) -> tuple[str, int]:
    found = pattern.match(text, position)
    assert found is not None, "both patterns match the empty text"
    if found["quoted"] is not None:
        return _unquoted(found), found.end()
    value = found["bare"].strip()
    if not value:
        raise _bad(
            f"where: no value for {show(column)}",
            f'for an empty text write {column} = "", for none {column} is null',
        )
    if value[0] in "\"'`":
        raise _bad(f"where: the quotes in {show(value)} are never closed")
    if value[0] in "=<>!":
        raise _bad(
            f"where: unknown operator before {show(value)}",
            f"operators: {_OPERATORS}; or put the value in quotes",
        )
    return value, found.end()


def _read_list(text: str, position: int, column: str, op: Op) -> tuple[tuple[str, ...], int]:
    position = _skip_blank(text, position)
    values: list[str] = []
    if not text.startswith("(", position):
        raise _bad(f"where: `{op.value}` takes a list", f"write {column} {op.value} (first, second)")
    while True:
        value, position = _read_value(_ITEM, text, position + 1, column)
        values.append(value)
        position = _skip_blank(text, position)
        if text.startswith(")", position):
            return tuple(values), position + 1
        if not text.startswith(",", position):
            raise _bad(f"where: the list of {show(column)} is not closed by `)`")


def _names(text: object, place: str) -> Iterator[tuple[str, bool]]:
    if not isinstance(text, str):
        raise TurnoutError(code=f"bad_{place}", message=f"{place}: a column is a text, got {show(text)}")
    position = _skip_blank(text, 0)
    while position < len(text):
        descending = place == "sort" and text[position] == "-"
        signed = place == "sort" and text[position] in "+-"
        name = _NAME.match(text, position + signed)
        end = _skip_blank(text, name.end()) if name else position
        if name is None or (end < len(text) and text[end] != ","):
            raise TurnoutError(
                code=f"bad_{place}",
                message=f"{place}: not a list of columns at {show(text[position:])}",
                hint="write column names separated by commas" + (", `-` for descending: -age,name" * (place == "sort")),
            )
        yield _unquoted(name), descending
        position = _skip_blank(text, end + 1)


def read_name(text: str, position: int, place: str, stop: str) -> tuple[str, int]:
    """A column's name, quoted or bare, at `position`, and where it ends; a bare one ends before any of `stop`, too."""
    found = _NAME.match(text, position)
    if found is None:
        raise TurnoutError(code=f"bad_{place}", message=f"{place}: no column at {show(text[position:])}")
    name, end = _unquoted(found), found.end()
    if found["quoted"] is None and stop:
        kept = re.split(f"[{re.escape(stop)}]", name, maxsplit=1)[0]
        name, end = kept, end - len(name) + len(kept)
    return name, end


def _listed(raw: object, place: str) -> Sequence[object]:
    if not isinstance(raw, Sequence) or isinstance(raw, (bytes, bytearray)):
        raise TurnoutError(code=f"bad_{place}", message=f"{place}: needs a text or a list, got {show(raw)}")
    return raw


def _unquoted(found: re.Match[str]) -> str:
    if found["quoted"] is None:
        return found["bare"]
    return _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), found["quoted"][1:-1])


def _skip_blank(text: str, position: int) -> int:
    blank = _BLANK.match(text, position)
    return blank.end() if blank else position


def _bad(message: str, hint: str = _HINT) -> TurnoutError:
    return TurnoutError(code="bad_where", message=message, hint=hint)
