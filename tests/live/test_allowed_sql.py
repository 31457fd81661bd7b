"""Own SQL of views that reaches beyond its sources is refused by its parsed text, before anything of it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from turnout.config import parse
from turnout.config.tables import first_plan, layout_of
from turnout.errors import TurnoutError
from turnout.spark.views.own_sql import check_own_views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {"userId": "string", "name": "string", "tags": "string", "at": "timestamp", "user": "string", "n": "int64"}
MARK = "turnout.test.attacked"
"""A property of the JVM that attacks set."""
SET = f"'java.lang.System', 'setProperty', '{MARK}', 'x'"
CLASS = '{"type":"udt","class":"java.lang.Object","sqlType":"integer"}'
FIELDS = f'{{"type":"struct","fields":[{{"name":"a","nullable":true,"metadata":{{}},"type":{CLASS}}}]}}'

RUNS = "it has a ScriptTransformation"
READS, CALLS, HAS = "it reads ", "it calls ", "it has a "

ATTACKS = [
    # Programs.
    ("SELECT transform(userId, name) USING 'touch FILE; cat' AS (userId string, out string) FROM users", RUNS),
    ("FROM users MAP userId, name USING 'touch FILE; cat' AS (userId, out)", RUNS),
    ("FROM users REDUCE userId, name USING 'touch FILE; cat' AS (userId, out)", RUNS),
    ("SELECT userId, (SELECT 1 FROM (SELECT transform(n) USING 'touch FILE' FROM users)) out FROM users", RUNS),
    ("WITH a AS (SELECT transform(userId) USING 'touch FILE' AS (u) FROM users) SELECT u userId FROM a", RUNS),
    ("SELECT userId, 1 out FROM users WHERE EXISTS (SELECT transform(n) USING 'touch FILE' FROM users)", RUNS),
    ("SELECT u.userId, 1 out FROM users u, LATERAL (SELECT transform(1) USING 'touch FILE' AS (o)) t", RUNS),
    # Files and other tables.
    ("SELECT userId, (SELECT max(value) FROM text.`/etc/passwd`) AS out FROM users", "it reads text.`/etc/passwd`"),
    ("SELECT value AS userId, 1 AS out FROM binaryFile.`/etc/passwd`", READS),
    ("SELECT userId, out FROM users JOIN parquet.`/tmp/x` USING (userId)", READS),
    ("SELECT userId, 1 AS out FROM users WHERE name IN (SELECT value FROM csv.`/etc/passwd`)", READS),
    ("SELECT userId, 1 AS out FROM users WHERE EXISTS (SELECT 1 FROM json.`/etc/passwd`)", READS),
    ("SELECT userId, 1 AS out FROM users GROUP BY userId HAVING count(*) > (SELECT count(*) FROM orc.`/x`)", READS),
    ("SELECT userId, count(*) FILTER (WHERE n IN (SELECT 1 FROM text.`/x`)) AS out FROM users GROUP BY 1", READS),
    ("SELECT userId, max((SELECT max(value) FROM text.`/x`)) OVER (PARTITION BY userId) AS out FROM users", READS),
    ("SELECT userId, x.out FROM users LATERAL VIEW explode((SELECT array(value) FROM text.`/x`)) x AS out", READS),
    ("SELECT userId, transform(array(1), x -> (SELECT max(value) FROM text.`/x`))[0] AS out FROM users", READS),
    ("FROM users |> JOIN text.`/etc/passwd` ON true |> SELECT userId, value AS out", READS),
    ("SELECT userId, value AS out FROM users, LATERAL (SELECT * FROM text.`/etc/passwd`)", READS),
    ("SELECT userId, value AS out FROM users, IDENTIFIER('text.`/etc/passwd`')", READS),
    ("SELECT userId, value AS out FROM users, IDENTIFIER('te' || 'xt.`/etc/passwd`')", HAS),
    ("SELECT userId, 1 AS out FROM users UNION ALL TABLE text.`/etc/passwd`", READS),
    ("SELECT userId, 1 AS out FROM default.users", "it reads default.users"),
    ("SELECT userId, 1 AS out FROM spark_catalog.default.users", READS),
    ("SELECT userId, 1 AS out FROM session.users", READS),
    ("SELECT userId, 1 AS out FROM global_temp.users", READS),
    ("SELECT userId, 1 AS out FROM cards", "it reads cards"),
    ("SELECT userId, (WITH cards AS (SELECT 1) SELECT 1) AS out FROM cards", "it reads cards"),
    ("WITH cards AS (SELECT userId FROM cards) SELECT userId, 1 AS out FROM cards", "it reads cards"),
    ("SELECT userId, 1 AS out FROM users WITH (path = '/etc/passwd')", "it reads users"),
    ("SELECT userId, 1 AS out FROM users VERSION AS OF 1", HAS),
    ("SELECT userId, 1 AS out FROM STREAM(users)", HAS),
    # Functions with tables.
    ("SELECT userId, path AS out FROM users, read_files('/etc')", "it reads read_files()"),
    ("SELECT userId, 1 AS out FROM users, read_kafka('a')", READS),
    ("SELECT userId, 1 AS out FROM users, python_worker_logs()", READS),
    ("SELECT userId, keyword AS out FROM users, sql_keywords()", READS),
    ("SELECT userId, name AS out FROM users, collations()", READS),
    ("SELECT userId, 1 AS out FROM users, IDENTIFIER('python_worker' || '_logs')()", HAS),
    # Functions that reach the JVM, the machine or the session.
    (f"SELECT userId, reflect({SET}) AS out FROM users", "it calls reflect()"),
    (f"SELECT userId, java_method({SET}) AS out FROM users", "it calls java_method()"),
    (f"SELECT userId, try_reflect({SET}) AS out FROM users", "it calls try_reflect()"),
    (f"SELECT userId, `Reflect`({SET}) AS out FROM users", "it calls reflect()"),
    (f"SELECT userId, builtin.reflect({SET}) AS out FROM users", CALLS),
    (f"SELECT userId, system.builtin.reflect({SET}) AS out FROM users", CALLS),
    (f"SELECT userId, IDENTIFIER('reflect')({SET}) AS out FROM users", HAS),
    (f"SELECT userId, IDENTIFIER('re' || 'flect')({SET}) AS out FROM users", HAS),
    (f"SELECT userId, from_json('1', reflect({SET})) AS out FROM users", CALLS),
    (f"SELECT userId, 1 AS out FROM users ORDER BY reflect({SET})", CALLS),
    (f"SELECT userId, 1 AS out FROM users WINDOW w AS (PARTITION BY reflect({SET}))", CALLS),
    (f"SELECT userId, filter(array(1), x -> reflect({SET}) = 'x') AS out FROM users", CALLS),
    (f"SELECT userId, 1 AS out FROM users LATERAL VIEW reflect({SET}) x", CALLS),
    (f"SELECT userId, CASE WHEN reflect({SET}) = 'x' THEN 1 END AS out FROM users", CALLS),
    (f"SELECT * FROM VALUES ('a', reflect({SET})) AS t(userId, out)", CALLS),
    (f"SELECT * FROM (SELECT userId, n FROM users) PIVOT (max(reflect({SET})) FOR n IN (1 AS out))", CALLS),
    (f"FROM users |> EXTEND reflect({SET}) AS out |> SELECT userId, out", CALLS),
    (f"SELECT userId, 1 AS out FROM users JOIN users v ON reflect({SET}) = 'x'", CALLS),
    ("SELECT userId, input_file_name() AS out FROM users", CALLS),
    ("SELECT userId, version() AS out FROM users", CALLS),
    ("SELECT userId, current_user() AS out FROM users", CALLS),
    ("SELECT userId, current_user AS out FROM users", "it uses CurrentUser"),
    ("SELECT userId, current_catalog() AS out FROM users", CALLS),
    ("SELECT userId, (SELECT max(current_user)) AS out FROM users", "it uses CurrentUser"),
    ("SELECT userId, session_user AS out FROM users", "it uses CurrentUser"),
    ("SELECT userId, raise_error(name) AS out FROM users", CALLS),
    ("SELECT userId, assert_true(n > 0) AS out FROM users", CALLS),
    ("SELECT userId, spark_partition_id() AS out FROM users", CALLS),
    ("SELECT userId, monotonically_increasing_id() AS out FROM users", CALLS),
    ("SELECT userId, xpath_string(name, 'a') AS out FROM users", CALLS),
    ("SELECT userId, from_xml(name, 'a INT', map('rowValidationXSDPath', '/x')).a AS out FROM users", CALLS),
    ("SELECT userId, from_protobuf(binary(name), 'm', '/etc/passwd') AS out FROM users", CALLS),
    ("SELECT userId, from_avro(binary(name), '{}', map()) AS out FROM users", CALLS),
    (f"SELECT userId, from_json(name, '{FIELDS}') AS out FROM users", "with a type or options"),
    (f"SELECT userId, from_csv(name, concat('', '{FIELDS}')) AS out FROM users", "with a type or options"),
    (f"SELECT userId, variant_get(parse_json(name), '$', '{CLASS}') AS out FROM users", "with a type or options"),
    ("SELECT userId, to_json(struct(name), map('compression', 'java.lang.Object')) AS out FROM users", "or options"),
    ("SELECT userId, from_json(name, 'a INT', map(concat('co', 'dec'), 'x')) AS out FROM users", "or options"),
    ("SELECT userId, schema_of_csv('1', from_json('{}', 'MAP<STRING, STRING>')) AS out FROM users", "or options"),
    (f"SELECT userId, 1 AS out FROM users LATERAL VIEW from_json(name, '{FIELDS}') x", "or options"),
    ("SELECT userId, no_such_function(name) AS out FROM users", "it calls no_such_function()"),
    # Other statements, and texts that leave the brackets they are put into.
    ("SELECT userId, 1 AS out FROM users) UNION ALL SELECT value, 1 FROM (SELECT * FROM text.`/etc/passwd`", READS),
    ("SELECT userId, 1 AS out FROM users)); DROP TABLE users; SELECT 1 FROM ((SELECT 1", "Syntax error"),
    ("SET spark.sql.runSQLOnFiles = true", "Syntax error"),
    ("INSERT OVERWRITE DIRECTORY 'FILE' USING csv SELECT * FROM users", "Syntax error"),
    ("CREATE TABLE x USING text LOCATION '/etc' AS SELECT 1", "Syntax error"),
    ("EXECUTE IMMEDIATE 'SELECT 1'", "Syntax error"),
    ("BEGIN SELECT 1; END", "Syntax error"),
    ("CALL system.x()", "Syntax error"),
    ("SELECT userId, :x AS out FROM users", HAS),
    ("SELECT userId, ? AS out FROM users", HAS),
    ("SELECT userId, 1 AS out FROM users TABLESAMPLE (50 PERCENT)", HAS),
    ("SELECT /*+ REPARTITION(100000) */ userId, 1 AS out FROM users", HAS),
    ("SELECT userId, 1 AS out FROM users DISTRIBUTE BY n", HAS),
    ("SELECT userId, $${env:HOME} AS out FROM users", "Syntax error"),
    (f"SELECT userId, n IN ({', '.join(map(str, range(21_000)))}) AS out FROM users", "more than 20000 parts"),
]  # fmt: skip

GOOD = [
    "SELECT userId, name AS out FROM users",
    "select u.*, upper(name) || '!' as out from Users u where name like 'a%' and n between 1 and 2",
    "WITH a AS (SELECT userId FROM users), b AS (SELECT * FROM a) SELECT userId, count(*) AS out FROM b GROUP BY ALL",
    "SELECT userId, (SELECT max(v.n) FROM users v WHERE v.userId = u.userId) AS out FROM users u",
    "SELECT userId, 1 AS out FROM users u WHERE EXISTS (SELECT 1 FROM accounts a WHERE a.userId = u.userId)",
    "SELECT userId, 1 AS out FROM users u WHERE userId IN (SELECT userId FROM accounts)",
    "SELECT userId, tag AS out FROM users LATERAL VIEW OUTER explode(split(tags, ',')) t AS tag",
    "SELECT u.userId, t.tag AS out FROM users u, LATERAL explode(split(u.tags, ',')) t(tag)",
    "SELECT u.userId, o.out FROM users u, LATERAL (SELECT count(*) AS out FROM accounts a WHERE a.userId = u.userId) o",
    "SELECT userId, sum(n) OVER w AS out FROM users WINDOW w AS (PARTITION BY userId ORDER BY at, name, tags, user, n)",
    "SELECT userId, from_json(tags, 'a INT, b ARRAY<STRING>').a AS out FROM users",
    "SELECT userId, from_json(tags, schema_of_json('{\"a\": 1}')).a AS out FROM users",
    "SELECT userId, to_json(from_csv(tags, 'a INT', map('sep', ';', 'mode', 'PERMISSIVE'))) AS out FROM users",
    "SELECT userId, get_json_object(tags, '$.a') AS out FROM users",
    "SELECT userId, variant_get(try_parse_json(tags), '$.a', 'int') AS out FROM users",
    "SELECT userId, date_trunc('DAY', at) AS out FROM users WHERE extract(YEAR FROM at) > 2000",
    "SELECT userId, percentile_approx(n, 0.5) AS out FROM users GROUP BY 1 HAVING count(*) FILTER (WHERE n > 0) > 0",
    "SELECT userId, aggregate(transform(split(tags, ','), x -> length(x)), 0, (a, x) -> a + x) AS out FROM users",
    "SELECT userId, user AS out FROM users",
    "SELECT userId, current_date AS out FROM users",
    "SELECT userId, kind AS out FROM accounts UNION ALL SELECT userId, name FROM users",
    "SELECT userId, name AS out FROM users EXCEPT (SELECT userId, kind FROM accounts)",
    "SELECT userId, out FROM users UNPIVOT (out FOR what IN (name, tags))",
    "SELECT * FROM (SELECT userId, n, name FROM users) PIVOT (max(n) FOR name IN ('1' AS out))",
    "SELECT u.userId, v.out FROM users u JOIN (VALUES ('1', 2), ('2', 3)) AS v(name, out) ON u.name = v.name",
    "SELECT u.userId, r.id AS out FROM users u CROSS JOIN range(3) r",
    "FROM users |> WHERE n > 0 |> AGGREGATE count(*) AS out GROUP BY userId",
    "WITH RECURSIVE r AS (SELECT 1 i UNION ALL SELECT i + 1 FROM r WHERE i < 3) SELECT userId, i AS out FROM users, r",
    "SELECT userId, '$${env:HOME}' AS out, CAST(n AS STRING COLLATE UNICODE) FROM users -- text.`/etc/passwd`",
    "SELECT DISTINCT userId, named_struct('a', 1, 'b', array(1, 2)[0]).b AS out FROM users NATURAL JOIN accounts",
    "SELECT userId, if(grouping(name) = 1, 'all', name) AS out FROM users GROUP BY userId, ROLLUP(name)",
]


def check(spark: SparkSession, folder: Path, sql: str) -> None:
    sources = {
        name: {"topic": name, "table": f"{name}_ui", "key": "userId", "columns": columns}
        for name, columns in {"users": COLUMNS, "accounts": {"userId": "string", "kind": "string"}}.items()
    }
    columns = dict.fromkeys(["userId", "out"], "string")
    view = {"sources": ["users", "accounts"], "on": "userId", "sql": sql, "columns": columns}
    settings = parse({"sources": sources, "views": {"bad": view}}, folder, {})
    check_own_views(spark, layout_of(settings, first_plan(settings)).views)


@pytest.mark.parametrize(("sql", "reason"), ATTACKS)
def test_sql_that_reaches_beyond_its_sources_is_refused_before_it_runs(
    spark: SparkSession, tmp_path: Path, sql: str, reason: str
) -> None:
    file = tmp_path / "attacked"
    with pytest.raises(TurnoutError) as caught:
        check(spark, tmp_path, sql.replace("FILE", str(file)))
    assert caught.value.code == "bad_view"
    assert caught.value.message.startswith("views.bad.sql: ")
    assert reason in caught.value.message
    assert not file.exists()
    assert spark._jvm.java.lang.System.getProperty(MARK) is None  # type: ignore[union-attr]


def test_what_is_refused_says_what_is_allowed(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TurnoutError) as caught:
        check(spark, tmp_path, "SELECT userId, reflect('a', 'b') AS out FROM users")
    assert caught.value.message == "views.bad.sql: it calls reflect(), which is not allowed"
    assert "it may read users (userId, name" in str(caught.value.hint)
    assert "allowed are SELECT, WITH" in str(caught.value.hint)


@pytest.mark.parametrize("sql", GOOD)
def test_sql_over_its_sources_is_taken(spark: SparkSession, tmp_path: Path, sql: str) -> None:
    check(spark, tmp_path, sql)


def test_text_never_gets_values_of_the_environment(spark: SparkSession, tmp_path: Path) -> None:
    """Spark would put `${env:NAME}`, Java properties and its own settings into a text before it parses it."""
    from turnout.spark.jvm.session import view_session

    for own in (view_session(spark, own=True), view_session(spark, own=True, planned=True)):
        assert own.sql("SELECT '${env:HOME}'").first() == ("${env:HOME}",)
