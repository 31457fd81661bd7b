"""Which own SQL a view may have, told from the parsed text, before Spark looks anything up or runs anything.

Spark's SQL reaches files, programs, Java methods, other tables and the environment of the process. Lists say what is
allowed: parts of a query, relations, groups of functions. What is on none of them is refused, also where a later Spark
adds it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

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
_TYPED = {"from_json": 1, "from_csv": 1, "variant_get": 2, "try_variant_get": 2}
"""Functions with a type among their arguments, and which: in JSON it can name a Java class, which Spark would load."""

_MOST_NODES = 20_000

_USER = f"{_EXPRESSIONS}CurrentUser"
"""What the names `user`, `current_user` and `session_user` become where no column has them."""

ALLOWED = (
    "allowed are SELECT, WITH, VALUES, joins, set operations, grouping, windows, LATERAL and subqueries, and Spark's "
    "functions of numbers, texts, times, arrays, maps, structs, variants, JSON and CSV"
)


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
        place = _TYPED.get(called)
        if place is not None and not all(_is_plain_type(one) for one in list(_each(node.arguments()))[place:][:1]):
            raise RefusedSqlError(f"it calls {called}() with a type that is not written as in 'a INT, b STRING'")

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


def _is_plain_type(argument: Any) -> bool:
    kind = _short(_class_name(argument))
    if kind == "UnresolvedFunction":
        return _texts(argument.nameParts()) in (["schema_of_json"], ["schema_of_csv"])
    return kind == "Literal" and "{" not in str(argument.value())


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
