"""Views that are somebody's own SQL: what it may hold, and whether the rows of a key need no other key.

Spark's SQL reaches files, programs, Java methods, other tables and the environment of the process. What a view may have
is told from the parsed text, before Spark looks anything up or runs anything. Lists say what is allowed: parts of a
query, relations, groups of functions. What is on none of them is refused, also where a later Spark adds it.

A view is kept up to date by running its SQL over the rows of a few keys. That gives the same table as running it over
everything only if rows of different keys never meet, which is tried out here on a handful of rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from turnout.errors import TurnoutError, first_line
from turnout.plan.sql_text import backquoted
from turnout.plan.tables import SourceTable, ViewTable
from turnout.spark.jvm.session import view_session
from turnout_client.column_types import ColumnType

_CATALYST = "org.apache.spark.sql.catalyst"
_LOOKED_UP = f"{_CATALYST}.analysis."
_EXPRESSIONS = f"{_CATALYST}.expressions."
_RELATIONAL = f"{_CATALYST}.plans.logical."
_TYPES = "org.apache.spark.sql.types."
_KINDS = {"node": f"{_CATALYST}.trees.TreeNode", "many": "scala.collection.Iterable", "product": "scala.Product"}

Names = frozenset[str]
"""Names of relations, in small letters."""


def _words(text: str, before: str = "", after: str = "") -> Names:
    return frozenset(f"{before}{word}{after}" for word in text.split())


_PARTS = _words(
    "Project Filter Aggregate Join LateralJoin Union Intersect Except Distinct Sort SubqueryAlias UnresolvedWith "
    "WithWindowDefinition OneRowRelation LocalRelation Generate Pivot Unpivot PipeOperator GlobalLimit LocalLimit "
    "Offset",
    before=_RELATIONAL,
) | _words(
    "UnresolvedRelation UnresolvedSubqueryColumnAliases UnresolvedInlineTable UnresolvedHaving UnresolvedAttribute "
    "UnresolvedTableValuedFunction UnresolvedTVFAliases UnresolvedFunction UnresolvedGenerator UnresolvedAlias "
    "UnresolvedStar UnresolvedStarExceptOrReplace UnresolvedStarWithColumns UnresolvedExtractValue UnresolvedOrdinal "
    "UnresolvedCollation MultiAlias",
    before=_LOOKED_UP,
)
"""Parts of a query, besides expressions that Spark's grammar has signs or words for. Limits are refused later, with
their own reason."""

_GROUPS = _words(
    "agg array bitwise collection conditional conversion csv datetime generator hash json lambda map math predicate "
    "sketch string struct url variant vector window",
    after="_funcs",
)
"""Spark's own groups of functions that need nothing but their arguments. Not: `misc` (Java methods, the session, input
files), `xml` (files of schemas), `avro` and `protobuf` (files of messages), `table`."""

# The last one depends on chance, which is told with its own reason.
_OTHER_FUNCTIONS = _words(
    "typeof aes_encrypt aes_decrypt try_aes_decrypt bitmap_count bitmap_bit_position bitmap_bucket_number uuid"
)
_TABLE_FUNCTIONS = _words(
    "range explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple variant_explode "
    "variant_explode_outer"
)
_WRITTEN_OUT = dict.fromkeys(_words("from_json to_json schema_of_json from_csv to_csv schema_of_csv"), 1)
_WRITTEN_OUT |= {"variant_get": 2, "try_variant_get": 2}
"""Functions whose arguments from that place on are types and options, which can name a Java class that Spark loads."""

_CLASS_OPTIONS = _words("compression codec")

_MOST_NODES = 20_000

_USER = f"{_EXPRESSIONS}CurrentUser"
"""What the names `user`, `current_user` and `session_user` become where no column has them."""

ALLOWED = (
    "allowed are SELECT, WITH, VALUES, joins, set operations, grouping, windows, LATERAL and subqueries, and Spark's "
    "functions of numbers, texts, times, arrays, maps, structs, variants, JSON and CSV"
)

_KEYS = (0, 1)
_ROWS_OF_A_KEY = 2


def check_own_views(session: SparkSession, views: Iterable[ViewTable]) -> None:
    """TurnoutError says what is wrong with the first one that cannot be kept up to date."""
    for view in views:
        if view.own_sql:
            _check(view_session(session, own=True), view)


def _check(session: SparkSession, view: ViewTable) -> None:
    rules = AllowedSql(session, view.relations)
    named = ", ".join(f"{source.source} ({', '.join(source.columns)})" for source in view.sources)
    try:
        rules.check_text(view.sql)
        _put_samples(session, view, _KEYS)
        plan = session.sql(view.sql)._jdf.queryExecution().analyzed()
        rules.check_analysed(plan)
        if not plan.deterministic():
            raise _bad(view, "its result depends on chance", "use nothing like rand() or uuid()")
        whole, *parts = [_rows(session, view, keys) for keys in (_KEYS, *((key,) for key in _KEYS))]
    except RefusedSqlError as error:
        raise _bad(view, f"{error}, which is not allowed", f"it may read {named}; {ALLOWED}") from None
    except PySparkException as error:
        hint = f"it is Spark SQL over {named}, and selects {', '.join(view.columns)}"
        raise _bad(view, first_line(error), hint) from None
    # A limit that is larger than this handful of rows would not be found out by them.
    if whole != sum(parts, Counter()) or "GlobalLimit" in plan.toString():
        raise _bad(
            view,
            f"rows of one {view.key} depend on rows of others",
            f"have {view.key} in every JOIN, GROUP BY and PARTITION BY, and use no LIMIT",
        )


def _bad(view: ViewTable, what: str, hint: str) -> TurnoutError:
    return TurnoutError(code="bad_view", message=f"views.{view.table}.sql: {what}", hint=hint)


def _rows(session: SparkSession, view: ViewTable, keys: Iterable[int]) -> Counter[tuple[object, ...]]:
    _put_samples(session, view, keys)
    return Counter(tuple(row.values()) for row in session.sql(view.sql).toArrow().to_pylist())


def _put_samples(session: SparkSession, view: ViewTable, keys: Iterable[int]) -> None:
    for source in view.sources:
        session.sql(_sample(source, keys)).createOrReplaceTempView(f"`{source.source}`")


def _sample(source: SourceTable, keys: Iterable[int]) -> str:
    """Some rows of each key that are alike in all but the key: what joins them by another column is found out."""
    rows = []
    for key in keys:
        for number in range(_ROWS_OF_A_KEY):
            values = {
                column: _value(kind, key if column == source.key else 0) for column, kind in source.columns.items()
            }
            values |= {"_id": f"{key * _ROWS_OF_A_KEY + number}L", "_ts": "0L"}
            rows.append(f"({', '.join(values.values())})")
            names = ", ".join(map(backquoted, values))
    return f"SELECT * FROM VALUES {', '.join(rows)} AS sample({names})"


def _value(kind: ColumnType, number: int) -> str:
    """One of two values of a type."""
    return f"CAST('{kind.samples[number]}' AS {kind.spark})"


class RefusedSqlError(Exception):
    """Own SQL has something that no view may have; the text says what."""


class AllowedSql:
    """Judges own SQL over the relations of one view; `session` is the one that would run it."""

    def __init__(self, session: SparkSession, relations: Collection[str]) -> None:
        jvm: Any = session._jvm
        self._session = session
        self._relations = frozenset(name.lower() for name in relations)
        self._identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier
        self._functions = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
        self._classes = {kind: jvm.java.lang.Class.forName(name) for kind, name in _KINDS.items()}
        self._kinds: dict[str, str] = {}

    def check_text(self, sql: str) -> None:
        """Refuse by the parsed text. Parsing looks nothing up and runs nothing; PySparkException if it fails."""
        plan = self._session._jsparkSession.sessionState().sqlParser().parsePlan(sql)
        waiting: list[tuple[Any, Names]] = [(plan, self._relations)]
        for _ in range(_MOST_NODES):
            if not waiting:
                return
            node, known = waiting.pop()
            name = _class_name(node)
            if name not in _PARTS and not name.startswith(_EXPRESSIONS):
                raise RefusedSqlError(f"it has a {_short(name)}")
            if _short(name) == "UnresolvedWith":
                waiting += _of_with(node, known)
            else:
                self._check_name(_short(name), node, known)
                waiting += [(one, known) for one in self._below(node)]
        raise RefusedSqlError(f"it has more than {_MOST_NODES} parts")

    def check_analysed(self, plan: Any) -> None:
        """Refuse by what Spark found behind the names: once more only what is made of the sources' rows."""
        waiting = [plan]
        while waiting:
            node = waiting.pop()
            name = _class_name(node)
            if not name.startswith((_RELATIONAL, _EXPRESSIONS)) or name == _USER:
                raise RefusedSqlError(f"it uses {_short(name)}")
            # What a source's name stands for is ours.
            if _short(name) != "View":
                waiting += self._below(node)

    def _check_name(self, kind: str, node: Any, known: Names) -> None:
        if kind == "UnresolvedRelation":
            parts = _texts(node.multipartIdentifier())
            if len(parts) > 1 or parts[0] not in known or node.isStreaming() or not node.options().isEmpty():
                raise RefusedSqlError(f"it reads {node.name()}")
        elif kind == "UnresolvedTableValuedFunction":
            called = ".".join(_texts(node.name()))
            if called not in _TABLE_FUNCTIONS:
                raise RefusedSqlError(f"it reads {called}()")
        elif kind in ("UnresolvedFunction", "UnresolvedGenerator"):
            self._check_function(node, is_generator=kind == "UnresolvedGenerator")

    def _check_function(self, node: Any, *, is_generator: bool) -> None:
        # A name with a prefix is none of Spark's functions in this form.
        called = str(node.name()).lower() if is_generator else ".".join(_texts(node.nameParts()))
        found = self._functions.lookupFunction(self._identifier(called))
        if called not in _OTHER_FUNCTIONS and (found.isEmpty() or found.get().getGroup() not in _GROUPS):
            raise RefusedSqlError(f"it calls {called}()")
        arguments = list(_each(node.children() if is_generator else node.arguments()))
        if called in _WRITTEN_OUT and not all(map(_is_plain, arguments[_WRITTEN_OUT[called] :])):
            raise RefusedSqlError(f"it calls {called}() with a type or options not written like 'a INT', map('a', 'b')")

    def _below(self, node: Any) -> Iterator[Any]:
        """The nodes below one: children, expressions, subqueries, whatever holds them."""
        for value in _all(node.productIterator()):
            yield from self._nodes_of(value)

    def _nodes_of(self, value: Any) -> Iterator[Any]:
        kind = self._kind(value)
        if kind == "node":
            yield value
        elif kind:
            for one in _all(value.iterator() if kind == "many" else value.productIterator()):
                yield from self._nodes_of(one)

    def _kind(self, value: Any) -> str:
        """What the class of a value is, of `_KINDS`; empty for what holds no nodes."""
        if not isinstance(value, JavaObject):
            return ""
        name = _class_name(value)
        if name not in self._kinds:
            found = (kind for kind, one in self._classes.items() if one.isInstance(value))
            self._kinds[name] = "" if name.startswith(_TYPES) else next(found, "")
        return self._kinds[name]


def _of_with(node: Any, known: Names) -> Iterator[tuple[Any, Names]]:
    """What WITH names and what is selected from that, each with the relations that it may name."""
    for pair in _each(node.cteRelations()):
        named = known | {str(pair._1()).lower()}
        yield pair._2(), named if node.allowRecursion() else known
        known = named
    yield node.child(), known


def _is_plain(argument: Any) -> bool:
    """Whether a type or options are written out, and name no class: a type in JSON could."""
    kind = _short(_class_name(argument))
    if kind == "Literal":
        text = str(argument.value())
        return "{" not in text and text.lower() not in _CLASS_OPTIONS
    called = _texts(argument.nameParts()) if kind == "UnresolvedFunction" else []
    if called == ["map"]:
        return all(map(_is_plain, _each(argument.arguments())))
    return called in (["schema_of_json"], ["schema_of_csv"])


def _class_name(value: Any) -> str:
    return str(value.getClass().getName())


def _short(class_name: str) -> str:
    return class_name.rpartition(".")[2].rstrip("$")


def _texts(names: Any) -> list[str]:
    """The parts of a name, as Spark compares them."""
    return [str(part).lower() for part in _each(names)]


def _each(values: Any) -> Iterator[Any]:
    yield from _all(values.iterator())


def _all(found: Any) -> Iterator[Any]:
    while found.hasNext():
        yield found.next()
