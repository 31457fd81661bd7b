"""The filter and sort language: what it takes, what it refuses, and that no text of a user becomes SQL."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal

import duckdb
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnout.errors import TurnoutError
from turnout.plan.where import (
    MAX_VALUES,
    Op,
    SortKey,
    Term,
    compile_key,
    compile_sort,
    compile_where,
    parse_columns,
    parse_sort,
    parse_terms,
    term_columns,
    weight,
)
from turnout_client.column_types import ColumnType

COLUMNS = {
    name: ColumnType.parse(kind)
    for name, kind in {
        "name": "string",
        "age": "int64",
        "small": "int32",
        "balance": "double",
        "ratio": "float",
        "price": "decimal(10,2)",
        "day": "date",
        "at": "timestamp",
        "active": "boolean",
        'odd, "name"': "string",
    }.items()
}


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", ()),
        (" , ", ()),
        ("age>=30,name=gold", (Term("age", Op.GE, "30"), Term("name", Op.EQ, "gold"))),
        ("age == 30", (Term("age", Op.EQ, "30"),)),
        ("age<>30", (Term("age", Op.NE, "30"),)),
        ('name contains "Bo, b"', (Term("name", Op.CONTAINS, "Bo, b"),)),
        (r"name = 'it\'s'", (Term("name", Op.EQ, "it's"),)),
        ("name = O'Brien", (Term("name", Op.EQ, "O'Brien"),)),
        ('name=""', (Term("name", Op.EQ, ""),)),
        ("name STARTS  WITH Bo b", (Term("name", Op.STARTS, "Bo b"),)),
        ("name endswith x", (Term("name", Op.ENDS, "x"),)),
        ("name icontains x", (Term("name", Op.ICONTAINS, "x"),)),
        ("name is null,age is not null", (Term("name", Op.NULL), Term("age", Op.NOT_NULL))),
        ("name in (gold, 'a, b' ,c)", (Term("name", Op.IN, ("gold", "a, b", "c")),)),
        ("age not in(1,2), small<3", (Term("age", Op.NOT_IN, ("1", "2")), Term("small", Op.LT, "3"))),
        (r'"odd, \"name\""=x', (Term('odd, "name"', Op.EQ, "x"),)),
        ("`name`=x", (Term("name", Op.EQ, "x"),)),
        ('[{"column": "age", "op": ">", "value": 3}]', (Term("age", Op.GT, 3),)),
    ],
)
def test_terms_are_read_from_text(text: str, terms: tuple[Term, ...]) -> None:
    assert parse_terms(text) == terms


def test_terms_of_several_texts_and_objects_add_up() -> None:
    terms = parse_terms(["age>1", {"column": "name", "op": "IN", "value": ["a"]}])
    assert terms == (Term("age", Op.GT, "1"), Term("name", Op.IN, ("a",)))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("age", "no operator after 'age'"),
        ("name=Bo, b", "no operator after 'b'"),
        ("age=", "no value for 'age'"),
        ("age=>3", "unknown operator before '>3'"),
        ("=3", "a term begins with a column"),
        ('name="open', "never closed"),
        ('name="a"b', "not a comma"),
        ("name in gold", "`in` takes a list"),
        ("name in (gold", "not closed"),
        ("name is null x", "not a comma"),
        ("[1]", "objects"),
        ("[{", "JSON"),
        (",".join(["age=1"] * 101), "more than 100"),
    ],
)
def test_malformed_terms_are_refused_with_the_reason(text: str, part: str) -> None:
    with pytest.raises(TurnoutError) as caught:
        parse_terms(text)
    assert part in caught.value.message
    assert (caught.value.code, caught.value.status) == ("bad_where", 400)


@pytest.mark.parametrize(
    ("item", "part"),
    [
        ({"column": "age", "op": "like", "value": 1}, "unknown operator 'like'"),
        ({"column": "age", "op": "=", "value": 1, "x": 1}, "unknown field 'x'"),
        ({"column": 1, "op": "="}, "texts"),
        ({"column": "age", "op": "in", "value": 1}, "takes a list"),
        ({"column": "age", "op": "is null", "value": 1}, "takes no value"),
    ],
)
def test_malformed_objects_are_refused_with_the_reason(item: dict[str, object], part: str) -> None:
    with pytest.raises(TurnoutError, match=re.escape(part)):
        parse_terms([item])


@pytest.mark.parametrize(
    ("column", "value", "typed"),
    [
        ("age", "-30", -30),
        ("age", 30.0, 30),
        ("balance", "1e3", 1000.0),
        ("ratio", 0.1, 0.1),
        ("price", "1.50", Decimal("1.5")),
        ("price", "99999999.99", Decimal("99999999.99")),
        ("day", "2026-01-31", date(2026, 1, 31)),
        ("at", "2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("at", "2026-01-31 13:00+01:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("at", "2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("at", "0001-01-01T00:00:00+05:00", "0000-12-31T19:00:00.000000Z"),
        ("at", "+058844-07-17T00:00:00Z", "058844-07-17T00:00:00.000000Z"),
        ("at", "-000043-03-15", "-000043-03-15T00:00:00.000000Z"),
        ("day", "58844-07-17", "058844-07-17"),
        ("active", "TRUE", True),
        ("active", False, False),
        ("name", " x ", " x "),
        ("name", 12, "12"),
    ],
)
def test_values_take_the_type_of_their_column(column: str, value: object, typed: object) -> None:
    text, parameters = compile_where((Term(column, Op.EQ, value),), COLUMNS)
    assert parameters == [typed]
    assert text == f'"{column}" = CAST(? AS {COLUMNS[column].duckdb})'


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("age", "old"),
        ("age", "30.5"),
        ("age", "9223372036854775808"),
        ("age", True),
        ("age", None),
        ("age", "٣"),
        ("small", "2147483648"),
        ("ratio", "1e39"),
        ("balance", "1e400"),
        ("price", "1.555"),
        ("price", "100000000"),
        ("price", "nan"),
        ("day", "31.1.2026"),
        ("day", 3),
        ("at", "+294247-01-10T04:00:54.775807Z"),
        ("day", "+5881580-07-11"),
        ("day", "58844-02-30"),
        ("active", "yes"),
        ("name", "\ud800"),
        ("name", ["x"]),
    ],
)
def test_value_of_another_type_is_refused_naming_column_type_and_value(column: str, value: object) -> None:
    with pytest.raises(TurnoutError) as caught:
        compile_where((Term(column, Op.EQ, value),), COLUMNS)
    assert f"column '{column}'" in caught.value.message
    assert COLUMNS[column].name in caught.value.message
    assert caught.value.code == "bad_where"
    assert caught.value.hint


def test_unknown_and_hidden_columns_are_refused_with_the_known_ones() -> None:
    columns = COLUMNS | {"_id": ColumnType.parse("int64")}
    for name in ("nope", "_id", "AGE"):
        with pytest.raises(TurnoutError) as caught:
            compile_where((Term(name, Op.EQ, "1"),), columns)
        assert "name, age, small" in caught.value.hint
        assert "_id" not in caught.value.hint


@pytest.mark.parametrize("where", ["_row >= 3", "_row is null", "_row in (3, 4)"])
def test_row_is_compared_with_one_id(where: str) -> None:
    with pytest.raises(TurnoutError, match="the id of a row"):
        compile_where(parse_terms(where), COLUMNS)


def test_text_operator_on_a_number_is_refused() -> None:
    with pytest.raises(TurnoutError, match="needs a string column; 'age' is int64"):
        compile_where(parse_terms("age contains 3"), COLUMNS)


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("", [1, 2, 3, 4]),
        ("age>=30", [2, 3]),
        ("name=Bob", [2]),
        ("name!=Bob", [1, 3, 4]),
        ("name in (Bob, Ann)", [1, 2]),
        ("name not in (Bob, Ann)", [3, 4]),
        ("name is null", [4]),
        ("name is not null, age>30", [3]),
        ("name icontains BO", [2, 3]),
        ("name starts with bo", [3]),
        ("name ends with 'b'", [2]),
        ('name = "bo, \\"b\\" %_\'"', [3]),
        ("ratio=0.1", [1]),
        ("price>=1.5", [2]),
        ("price<100000", [1, 2]),
        ("price=1E+5", []),
        ("day<2026-02-01", [1]),
        ("at>2026-01-31T12:00:00Z", [2]),
        ("active=true", [1]),
        ('_row = "r3"', [3]),
    ],
)
def test_where_selects_the_rows_it_says(where: str, ids: list[int]) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("""
            CREATE TABLE t (_id BIGINT, name VARCHAR, age BIGINT, ratio FLOAT, price DECIMAL(10,2), day DATE,
                            "at" TIMESTAMP WITH TIME ZONE, active BOOLEAN, _row VARCHAR AS ('r' || _id));
            INSERT INTO t VALUES
                (1, 'Ann', 29, 0.1, 1.49, '2026-01-31', '2026-01-31 12:00:00Z', true),
                (2, 'Bob', 30, 0.2, 1.50, '2026-02-01', '2026-01-31 12:00:01Z', false),
                (3, 'bo, "b" %_''', 31, NULL, NULL, NULL, NULL, NULL),
                (4, NULL, NULL, NULL, NULL, NULL, NULL, NULL)""")
        text, parameters = compile_where(parse_terms(where), COLUMNS)
        found = connection.execute(f"SELECT _id FROM t WHERE {text} ORDER BY _id", parameters).fetchall()
    assert [row[0] for row in found] == ids


def test_sort_reads_directions_and_puts_nulls_last() -> None:
    keys = parse_sort("-age, name,+small,age")
    assert keys == (SortKey("age", True), SortKey("name"), SortKey("small"))
    text = compile_sort(keys[:2], COLUMNS, ["_id", "_right_id"])
    assert text == '"age" DESC NULLS LAST, "name" ASC NULLS LAST, "_id" ASC NULLS LAST, "_right_id" ASC NULLS LAST'


def test_sort_is_a_key_in_the_same_order() -> None:
    text = compile_key(parse_sort("-age,name"), COLUMNS, ["_id"])
    expected = """create_sort_key("age", 'DESC NULLS LAST', "name", 'ASC NULLS LAST', "_id", 'ASC NULLS LAST')"""
    assert text == expected


def test_column_lists_take_quotes_and_refuse_the_rest() -> None:
    assert parse_columns('name, "odd, \\"name\\"",name') == ("name", 'odd, "name"')
    for raw in ("a b", "a,(", "a;b c"):
        with pytest.raises(TurnoutError) as caught:
            parse_columns(raw)
        assert caught.value.code == "bad_columns"
    with pytest.raises(TurnoutError) as caught:
        parse_sort("age desc")
    assert caught.value.code == "bad_sort"


# fmt: off
_PIECES = st.sampled_from([
    "age", "name", "price", "at", "_id", "=", "!=", ">=", "<", " in ", " not in ", "(", ")", ",", " is null", "'",
    '"', "`", "\\", " contains ", " starts with ", "1", "x", "--", ";", "drop table t", "1=1", " or ", "/*", "[", "{",
    "}", "?", "{0}", "\x00", "iſ null", "é", "\u3000", "\ud800", "1e9999",
])
# fmt: on
_RAW = st.one_of(st.text(), st.lists(_PIECES, max_size=12).map("".join))


@given(_RAW)
@example('name="" or 1=1 --"')
@example("name iſ null")
def test_where_of_any_text_is_refused_or_harmless(raw: str) -> None:
    try:
        text, parameters = compile_where(parse_terms(raw), COLUMNS)
    except TurnoutError as error:
        assert error.status == 400
        error.as_json()["error"]["message"].encode()
        return
    _assert_only_our_words(text, parameters)


@given(_RAW)
def test_value_of_any_text_never_reaches_the_sql(value: str) -> None:
    try:
        text, parameters = compile_where((Term("name", Op.EQ, value),), COLUMNS)
    except TurnoutError:
        return
    assert text == '"name" = CAST(? AS VARCHAR)'
    assert parameters == [value]


@given(_RAW, st.sampled_from(list(Op)))
def test_column_of_any_text_is_quoted_whole(name: str, op: Op) -> None:
    try:
        text, parameters = compile_where((Term(name, op, "x"),), {name: ColumnType.parse("string")})
    except TurnoutError:
        assert name.startswith("_")
        return
    _assert_only_our_words(text.replace('"' + name.replace('"', '""') + '"', '"name"'), parameters)


@given(_RAW)
def test_sort_of_any_text_is_refused_or_known_columns(raw: str) -> None:
    try:
        text = compile_sort(parse_sort(raw), COLUMNS)
    except TurnoutError:
        return
    known = "|".join(re.escape('"' + name.replace('"', '""') + '"') for name in COLUMNS)
    assert re.fullmatch(rf"((^|, )({known}) (ASC|DESC) NULLS LAST)*", text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["column", "op", "value"]), inner),
        max_leaves=8,
    ),
    st.sampled_from(sorted(COLUMNS)),
    st.sampled_from(list(Op)),
)
def test_objects_of_any_value_are_refused_or_harmless(value: object, column: str, op: Op) -> None:
    try:
        compiled = compile_where(parse_terms([{"column": column, "op": op.value, "value": value}]), COLUMNS)
    except TurnoutError:
        return
    _assert_only_our_words(*compiled)


def _assert_only_our_words(text: str, parameters: list[object]) -> None:
    """Without the names in quotes, nothing is left but what the compiler writes itself."""
    # Longest first: one of the names contains another in quotes.
    for name in sorted(COLUMNS, key=len, reverse=True):
        text = text.replace('"' + name.replace('"', '""') + '"', "C")
    slot = r"CAST\(\? AS [A-Z ]+(?:\(10,2\))?\)"
    kind = r"[A-Z ]+(?:\(10,2\))?"
    slots = rf"\(SELECT CAST\(unnest\(CAST\(CAST\(\? AS VARCHAR\[\]\) AS {kind}\[\]\)\) AS {kind}\)\)"
    any_text, any_case = (
        rf"(?:contains|starts_with|ends_with)\(C, {slot}\)",
        rf"contains\(lower\(C\), lower\({slot}\)\)",
    )
    part = "|".join(
        (
            rf"C (?:=|<|<=|>|>=|IS DISTINCT FROM) {slot}",
            any_text,
            any_case,
            rf"C IN {slots}",
            rf"\(C IS NULL OR C NOT IN {slots}\)",
            r"C IS (?:NOT )?NULL",
            rf"\({any_text}(?: OR {any_text})+\)",
            rf"\({any_case}(?: OR {any_case})+\)",
        )
    )
    assert re.fullmatch(rf"TRUE|(?:{part})(?: AND (?:{part}))*", text), text
    assert text.count("?") == len(parameters)


_SEARCH: dict[Op, Callable[[str, str], bool]] = {
    Op.CONTAINS: lambda text, part: part in text,
    Op.ICONTAINS: lambda text, part: part.lower() in text.lower(),
    Op.STARTS: str.startswith,
    Op.ENDS: str.endswith,
}
_TEXT = st.text("aAbB%_\\'*, ", max_size=4)


@given(
    st.lists(st.tuples(st.none() | _TEXT, st.none() | _TEXT), max_size=8),
    st.lists(st.tuples(st.sampled_from(list(_SEARCH)), _TEXT), min_size=1, max_size=2),
)
def test_search_keeps_the_rows_of_which_a_text_fulfils_each_term(
    rows: list[tuple[str | None, str | None]], searched: list[tuple[Op, str]]
) -> None:
    columns = {name: ColumnType.parse(kind) for name, kind in (("a", "string"), ("n", "int64"), ("b", "string"))}
    terms = parse_terms([{"column": "*", "op": op.value, "value": text} for op, text in searched])
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (_id BIGINT, a VARCHAR, b VARCHAR, n BIGINT)")
        for number, (a, b) in enumerate(rows):
            connection.execute("INSERT INTO t VALUES (?, ?, ?, 7)", [number, a, b])
        text, parameters = compile_where(terms, columns)
        found = connection.execute(f"SELECT _id FROM t WHERE {text} ORDER BY _id", parameters).fetchall()
    assert [number for (number,) in found] == [
        number
        for number, row in enumerate(rows)
        if all(any(cell is not None and _SEARCH[op](cell, part) for cell in row) for op, part in searched)
    ]
    assert term_columns(terms, columns) == {"a", "b"}


@pytest.mark.parametrize("where", ["* = x", "* in (a, b)", "* is null", "* > 3"])
def test_search_takes_operators_of_texts_alone(where: str) -> None:
    with pytest.raises(TurnoutError, match=r"`\*` searches text columns") as caught:
        compile_where(parse_terms(where), COLUMNS)
    assert "icontains" in caught.value.hint


def test_search_needs_a_text_column_and_leaves_a_column_of_its_name_alone() -> None:
    with pytest.raises(TurnoutError, match="this table has none"):
        compile_where(parse_terms("* contains x"), {"age": ColumnType.parse("int64")})
    text, _ = compile_where(parse_terms("* = 3"), {"*": ColumnType.parse("int64")})
    assert text == '"*" = CAST(? AS BIGINT)'


def test_search_counts_as_ten_terms() -> None:
    assert weight(parse_terms("* contains x, age > 3")) == 11
    assert len(parse_terms(", ".join(["* contains x"] * 10))) == 10
    with pytest.raises(TurnoutError, match="more than 100 terms"):
        parse_terms(", ".join(["* contains x"] * 11))


_LISTED: dict[str, list[object]] = {
    "name": ["", "a", "A", "a,b", "'", "null", "\x00"],
    "age": [0, -1, 2**63 - 1, -(2**63), 7],
    "small": [0, -1, 2**31 - 1],
    "ratio": [0.1, "nan", "inf", -0.0, 16777217, 1e-45],
    "balance": [0.1, "nan", "-inf", 0, 1e308],
    "price": ["1.5", "1E+5", "-0.01", "12345678.90"],
    "day": ["0001-01-01", "2026-01-31", "9999-12-31"],
    "at": ["2026-01-31T12:00:00Z", "2026-01-31T13:00:00+01:00", "9999-12-31T23:59:59.999999Z"],
    "active": [True, False],
}


@pytest.mark.parametrize("column", sorted(_LISTED))
@pytest.mark.parametrize("op", ["in", "not in"])
def test_list_means_what_its_values_mean_one_by_one(column: str, op: str) -> None:
    """Nulls, NaN, zeros of both signs and decimals, too."""
    values, kind = _LISTED[column], COLUMNS[column]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f'CREATE TABLE t ("{column}" {kind.duckdb})')
        connection.execute("INSERT INTO t VALUES (NULL)")
        for value in values:
            _, parameters = compile_where(parse_terms([{"column": column, "op": "=", "value": value}]), COLUMNS)
            connection.execute(f"INSERT INTO t SELECT CAST(? AS {kind.duckdb})", parameters)
        for size in (1, 2, len(values)):
            listed = values[:size]
            text, parameters = compile_where(parse_terms([{"column": column, "op": op, "value": listed}]), COLUMNS)
            single = "=" if op == "in" else "!="
            terms = [
                compile_where(parse_terms([{"column": column, "op": single, "value": v}]), COLUMNS) for v in listed
            ]
            joined = (" OR " if op == "in" else " AND ").join(term for term, _ in terms)
            wanted = f"SELECT rowid FROM t WHERE {joined} ORDER BY rowid"
            found = connection.execute(f"SELECT rowid FROM t WHERE {text} ORDER BY rowid", parameters).fetchall()
            assert found == connection.execute(wanted, [p for _, given in terms for p in given]).fetchall()


def test_values_of_lists_are_one_parameter_and_bounded() -> None:
    text, parameters = compile_where(parse_terms("age in (1, 2, 3), name not in (a, b)"), COLUMNS)
    assert (text.count("?"), len(parameters)) == (2, 2)
    terms = [{"column": "age", "op": "in", "value": list(range(MAX_VALUES // 2 + 1))}] * 2
    with pytest.raises(TurnoutError, match=f"more than {MAX_VALUES} values"):
        parse_terms(terms)
    assert weight(parse_terms("age in (1, 2, 3), name = a")) == 4
