"""turnout.yaml: what it means, and what is said about a wrong one."""

# ruff: noqa: E501 - the table of faults reads best with a row in a line

import re
from pathlib import Path

import pytest

from turnout.config import Settings, default_text, load
from turnout.errors import ConfigError
from turnout.plan.joins import Join
from turnout.plan.plan import Start
from turnout.plan.tables import RESERVED


def read(folder: Path, text: str, **environ: str) -> Settings:
    path = folder / "turnout.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path, environ)


def faults(folder: Path, text: str, **environ: str) -> tuple[str, ...]:
    """The faults without the lines, which `test_fault_names_its_line` is about."""
    return tuple(re.sub(r"^line [0-9]+: (?!')", "", fault) for fault in with_lines(folder, text, **environ))


def with_lines(folder: Path, text: str, **environ: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        read(folder, text, **environ)
    return caught.value.faults


def without_folder(settings: Settings) -> Settings:
    return settings.model_copy(update={"data_dir": Settings().data_dir})


@pytest.mark.parametrize("text", [default_text(), "", "# nothing\n", "kafka:\nviews:\nsources:\nserver: {}\n"])
def test_file_without_changes_is_the_default(tmp_path: Path, text: str) -> None:
    settings = read(tmp_path, text)
    assert without_folder(settings) == Settings()
    assert settings.data_dir == tmp_path / "turnout-data"


def test_default_settings_are_those_of_the_contract() -> None:
    settings = Settings()
    assert settings.kafka.bootstrap_servers == "localhost:9092"
    assert {name: source.table for name, source in settings.sources.items()} == {
        "users": "users_ui",
        "accounts": "accounts_ui",
    }
    assert settings.views["final_ui"].join is Join.LEFT
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 10000)
    assert (settings.swap.linger_seconds, settings.swap.max_linger_generations) == (8, 2)
    assert settings.control_kafka is settings.kafka


def test_yaml_on_off_and_dates_are_text(tmp_path: Path) -> None:
    text = (
        "control: {topic: off}\ndead_letter_topic: 2026-01-01\nviews: {v: {left: users, right: accounts, on: userId}}"
    )
    settings = read(tmp_path, text)
    assert (settings.control.topic, settings.dead_letter_topic) == ("off", "2026-01-01")
    assert settings.views["v"].on == "userId"


def test_yaml_merge_and_anchors_work_and_are_not_shared(tmp_path: Path) -> None:
    text = """
sources:
  users: &s {topic: users, table: users_ui, key: userId, columns: {userId: string}}
  accounts: {<<: *s, table: accounts_ui}
"""
    settings = read(tmp_path, text, TURNOUT_SOURCES__USERS__TOPIC="users2")
    assert [source.topic for source in settings.sources.values()] == ["users2", "users"]


def test_duplicate_keys_are_all_named(tmp_path: Path) -> None:
    found = faults(tmp_path, "start: latest\nserver: {port: 1, port: 2}\nstart: earliest\n")
    assert sorted(found) == [
        f"{tmp_path / 'turnout.yaml'}: line 2: 'port' is given twice (first in line 2); remove one",
        f"{tmp_path / 'turnout.yaml'}: line 3: 'start' is given twice (first in line 1); remove one",
    ]


def test_missing_file_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no such file; `turnout init` writes one"):
        load(tmp_path / "none.yaml", {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1", "line 1, column 6: not YAML"),
        ("a: b: hunter2", "line 1, column 5: not YAML"),
        ("- a", "must be a mapping of settings, got a list"),
        ("hello", "must be a mapping of settings, got a single value"),
        ("--- a\n--- b", "not YAML"),
        ("a: !!python/object:os.system x", "not YAML"),
        ("a: \x01", "not YAML"),
        ("a: &a [*a]", "not YAML (*a contains itself)"),
        ("a: " + "[" * 1500, "not YAML"),
    ],
)
def test_file_that_is_no_mapping_says_so(tmp_path: Path, text: str, said: str) -> None:
    (fault,) = faults(tmp_path, text)
    assert said in fault
    assert "hunter2" not in fault


def test_file_that_is_not_text_says_so(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_bytes(b"a: \xff\xfe")
    for path in (tmp_path / "t.yaml", tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            load(path, {})


def test_variable_is_taken_from_the_environment(tmp_path: Path) -> None:
    text = 'server: {port: "${PORT}"}\ndata_dir: ${HOME_}/x\nspark: {master: "$${A}-${HOST}"}'
    settings = read(tmp_path, text, PORT="1", HOME_="/h", HOST="b")
    assert (settings.server.port, settings.data_dir, settings.spark.master) == (1, Path("/h/x"), "${A}-b")


def test_missing_variable_names_place_and_variable_once(tmp_path: Path) -> None:
    text = 'server: {port: "${PORT}"}\naccess: {tokens: [{name: a, role: viewer, token: "${T}"}]}'
    assert faults(tmp_path, text) == (
        "server.port: the environment has no variable 'PORT'; set it ($${ is a plain ${)",
        "access.tokens[0].token: the environment has no variable 'T'; set it ($${ is a plain ${)",
    )


def test_value_of_a_variable_is_not_shown(tmp_path: Path) -> None:
    found = faults(tmp_path, 'server: {port: "${T}"}\nstart: "${T}"\ncontrol: {topic: "${T}"}', T="hunter 2")
    assert len(found) == 3
    assert all("hunter" not in fault and "'${T}'" in fault for fault in found)


def test_environment_overrides_the_file(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        'server: {port: 1, host: "${UNSET}"}\nkafka: {auth: {protocol: SASL_SSL, mechanism: PLAIN, username: u}}',
        TURNOUT_KAFKA__BOOTSTRAP_SERVERS="b:1",
        TURNOUT_KAFKA__AUTH__PASSWORD="0123",
        TURNOUT_SERVER__PORT="8080",
        TURNOUT_Server__Host="::1",
        TURNOUT_SOURCES__USERS__TOPIC="123",
        TURNOUT_VIEWS__FINAL_UI__JOIN="inner",
        TURNOUT_DATA_DIR="d",
        TURNOUT_START="{timestamp: 2026-01-01T00:00:00Z}",
        TURNOUT_ACCESS="{tokens: [{name: a, role: viewer, token: sixteen-letters-}]}",
        TURNOUT_DEAD_LETTER_TOPIC="",
        TURNOUT_CACHE="c",
        TURNOUT_MAVEN_MIRROR="m",
        TURNOUT_TOKEN="t",
        TURNOUT_URL="u",
        PATH="p",
    )
    auth = settings.kafka.auth
    assert auth and auth.password and auth.password.get_secret_value() == "0123"
    assert (settings.server.port, settings.server.host) == (8080, "::1")
    assert (settings.sources["users"].topic, settings.views["final_ui"].join) == ("123", Join.INNER)
    assert settings.start == Start("timestamp", 1_767_225_600_000)
    assert settings.data_dir == tmp_path / "d"
    assert settings.access and settings.dead_letter_topic is None


def test_variables_that_kubernetes_sets_for_a_service_are_no_settings(tmp_path: Path) -> None:
    environ = {
        "TURNOUT_SERVICE_HOST": "10.96.0.7",
        "TURNOUT_SERVICE_PORT": "80",
        "TURNOUT_SERVICE_PORT_HTTP": "80",
        "TURNOUT_PORT": "tcp://10.96.0.7:80",
        "TURNOUT_PORT_80_TCP": "tcp://10.96.0.7:80",
        "TURNOUT_PORT_80_TCP_PROTO": "tcp",
        "TURNOUT_PORT_80_TCP_PORT": "80",
        "TURNOUT_PORT_80_TCP_ADDR": "10.96.0.7",
    }
    environ |= {name.replace("_", "_TEST_", 1): value for name, value in environ.items()}  # the Service turnout-test
    (tmp_path / "turnout.yaml").write_text("", encoding="utf-8")
    assert load(tmp_path / "turnout.yaml", environ) == load(tmp_path / "turnout.yaml", {})


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        (
            "TURNOUT_SERVER_PORT",
            "1",
            "TURNOUT_SERVER_PORT: unknown setting in the environment; did you mean 'TURNOUT_SERVER__PORT'?",
        ),
        (
            "TURNOUT_SERVER__PORT",
            "x",
            "server.port (from TURNOUT_SERVER__PORT): must be a whole number, got 'x'; correct it",
        ),
        (
            "TURNOUT_SOURCES__USER__TOPIC",
            "x",
            "TURNOUT_SOURCES__USER__TOPIC: unknown setting in the environment; "
            "did you mean 'TURNOUT_SOURCES__USERS__TOPIC'?",
        ),
    ],
)
def test_environment_fault_names_the_variable(tmp_path: Path, name: str, value: str, fault: str) -> None:
    assert faults(tmp_path, "", **{name: value}) == (fault,)


SOURCE = "topic: t, table: t_ui, key: id, columns: {id: string}"
PAIR = f"sources: {{a: {{{SOURCE}}}, b: {{{SOURCE.replace('t_ui', 'b_ui')}}}}}\n"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "kafka: {bootstrap_server: x}",
            "kafka.bootstrap_server: unknown setting (known: auth, bootstrap_servers, librdkafka_properties, "
            "max_record_megabytes, properties); "
            "did you mean 'bootstrap_servers'?",
        ),
        ("server: {port: yes}", "server.port: must be a whole number, got 'yes'; correct it"),
        ("server: {port: true}", "server.port: must be a number, got true; correct it"),
        ("server: {port: 70000}", "server.port: must be at most 65535, got 70000; correct it"),
        ("server: 10000", "server: must be a mapping, got a number; write `name: value` lines below it"),
        ("swap: {linger_seconds: -1}", "swap.linger_seconds: must be at least 0, got -1; correct it"),
        ("swap: {linger_seconds: .inf}", "swap.linger_seconds: must be a finite number, got inf; correct it"),
        ("control: {topic: 5}", "control.topic: must be text, got 5; put it in quotes"),
        (
            "control: {topic: a b}",
            "control.topic: 'a b' is not a Kafka topic name (1 to 249 of A-Z a-z 0-9 . _ -, not '.' or '..'); correct it",
        ),
        ("control: {ack_topic: control}", "control.ack_topic: is the control topic 'control' itself; choose another topic"),
        ("control: {topic: users}", "sources.users.topic: 'users' is the control topic; choose another topic"),
        ("control: {topics: ['users-*', 'a b']}", "control.topics[1]: must be a topic name in which * stands for any characters and ? for one, such as users-*, got 'a b'; correct it"),
        (f"views: {{}}\nsources: {{a: {{{SOURCE.replace('topic: t', 'topic: __t')}}}}}", "sources.a.topic: '__t' is one of Kafka's own; choose another topic"),
        ("sinks: {out: {table: final, topic: out}}", "sinks.out.table: no table 'final' of a source or a view (has: users_ui, accounts_ui, final_ui); did you mean 'final_ui'?"),
        ("sinks: {out: {table: final_ui, topic: users}}", "sinks.out.topic: 'users' is sources.users.topic too; each sink needs its own topic"),
        ("sinks: {out: {table: final_ui, topic: control}}", "sinks.out.topic: 'control' is control.topic too; each sink needs its own topic"),
        ("sinks: {a: {table: final_ui, topic: o}, b: {table: users_ui, topic: o}}", "sinks.b.topic: 'o' is sinks.a.topic too; each sink needs its own topic"),
        ("sinks: {out: {table: final_ui, topic: __o}}", "sinks.out.topic: '__o' is one of Kafka's own; choose another topic"),
        ("sinks: {out: {table: final_ui, topic: o, format: avro}}", "sinks.out.format: avro needs a registry for its schema; add schema_registry: {url: ...}, or use json"),
        ("sinks: {out: {table: final_ui, topic: o, format: protobuf}}", "sinks.out.format: a sink cannot write protobuf; use json or avro"),
        ("sinks: {out: {table: final_ui, topic: o, delivery: twice}}", "sinks.out.delivery: must be one of exactly_once, at_least_once, got 'twice'; choose one of them"),
        ("alerts: {a: {table: final, where: age > 5, to: log}}", "alerts.a.table: no table 'final' of a source or a view (has: users_ui, accounts_ui, final_ui); did you mean 'final_ui'?"),
        ("alerts: {a: {table: final_ui, where: agee > 5, to: log}}", "alerts.a.where: no column 'agee'; did you mean age? columns: userId, name, email, age, accountType, balance"),
        ("alerts: {a: {table: final_ui, where: age > old, to: log}}", "alerts.a.where: column 'age': 'old' is not int64; a whole number of 64 bits, such as 42; for missing values use `is null`"),
        ("alerts: {a: {table: final_ui, where: ' ', to: log}}", "alerts.a.where: must not be empty, got ' '; correct it"),
        ("alerts: {a: {table: final_ui, where: age > 5}}", "alerts.a.to: is missing; add it"),
        ("alerts: {a: {table: final_ui, where: age > 5, to: mail}}", "alerts.a.to: must be a mapping, got text; write `name: value` lines below it"),
        ("alerts: {a: {table: final_ui, where: age > 5, to: {}}}", "alerts.a.to: must be one of webhook, topic and log, there is none; choose one"),
        ("alerts: {a: {table: final_ui, where: age > 5, to: {log: true, topic: t}}}", "alerts.a.to: must be one of webhook, topic and log, got topic and log; choose one"),
        ("alerts: {a: {table: final_ui, where: age > 5, to: {topic: users}}}", "alerts.a.to.topic: 'users' is sources.users.topic too; choose another topic"),
        ("alerts: {a: {table: final_ui, where: age > 5, to: {topic: control}}}", "alerts.a.to.topic: 'control' is control.topic too; choose another topic"),
        ("alerts: {a: {table: final_ui, where: age > 5, to: {topic: __t}}}", "alerts.a.to.topic: '__t' is one of Kafka's own; choose another topic"),
        ("sinks: {o: {table: final_ui, topic: t}}\nalerts: {a: {table: final_ui, where: age > 5, to: {topic: t}}}", "alerts.a.to.topic: 't' is sinks.o.topic too; choose another topic"),
        ("alerts: {a: {table: final_ui, where: age > 5, to: {webhook: 'http://hooks.example.com/x'}}}", "alerts.a.to.webhook: must be https; http is for private addresses, with private: true"),
        ("alerts: {a: {table: final_ui, where: age > 5, to: {webhook: 'ftp://hooks.example.com/x'}}}", "alerts.a.to.webhook: must look like https://hooks.example.com/path; correct it"),
        ("alerts: {a: {table: final_ui, where: age > 5, to: {webhook: 'https://me:pw@hooks.example.com/x'}}}", "alerts.a.to.webhook: must not have a user or a password; put them into headers"),
        ("alerts: {a: {table: final_ui, where: age > 5, to: {topic: t, private: true}}}", "alerts.a.to.private: works only with webhook; remove it"),
        ("alerts: {a: {table: final_ui, where: age > 5, to: {webhook: 'https://h/', headers: {Host: x}}}}", "alerts.a.to.headers.Host: is not the name of a header, or is one that Turnout sets itself; remove it"),
        ('alerts: {a: {table: final_ui, where: age > 5, to: {webhook: "https://h/", headers: {X-A: "a\\nB: c"}}}}', "alerts.a.to.headers.X-A: has characters that a header cannot carry; use visible ASCII in one line"),
        ("alerts: {1a: {table: final_ui, where: age > 5, to: log}}", "alerts.1a: '1a' is not an alert name (a letter, then letters, digits and _); choose another"),
        ("dead_letter_topic: users", "dead_letter_topic: is read as sources.users.topic too; choose another topic"),
        ("kafka: {bootstrap_servers: here}", "kafka.bootstrap_servers: must look like host:9092 or host1:9092,host2:9092, got 'here'; correct it"),
        ("start: newest", "start: unknown start 'newest' (known: latest, earliest, {timestamp: 2026-01-01T00:00:00Z}); choose one of those"),
        ("sources: {}\nviews: {}", "sources: there is none; describe at least one"),
        (f"views: {{}}\nsources: {{a: {{{SOURCE}, rows: newest}}}}", "sources.a.rows: must be one of all, latest, got 'newest'; choose one of them"),
        (f"views: {{}}\nsources: {{a: {{{SOURCE}, rows: latest, max_rows: 5}}}}", "sources.a.max_rows: works only with rows: all, got rows: latest; remove one of them"),
        (f"views: {{}}\nsources: {{a: {{{SOURCE.replace('key: id', 'key: ID')}}}}}", "sources.a.key: no column 'ID' (has: id); did you mean 'id'?"),
        (f"views: {{}}\nsources: {{a: {{{SOURCE.replace('string', 'double')}}}}}", "sources.a.key: column 'id' is double, which is not exact enough for a key; use string, int64 or decimal(p,s)"),
        (f"views: {{}}\nsources: {{a: {{{SOURCE.replace('string', 'text')}}}}}", "sources.a.columns.id: unknown column type 'text' (known: string, boolean, int32, int64, float, double, decimal(p,s), date, timestamp); choose one of those"),
        (f"views: {{}}\nsources: {{a: {{{SOURCE.replace('string', 'string, _x: date')}}}}}", "sources.a.columns._x: a column name must not start with '_' (Turnout's own do); rename it"),
        (f"views: {{}}\nsources: {{a: {{{SOURCE.replace('string', 'string, Id: date')}}}}}", "sources.a.columns.Id: is the same as 'id' (case does not matter); rename one"),
        (f"views: {{}}\nsources: {{a: {{{SOURCE.replace('id: string', '')}}}}}", "sources.a.columns: there is none; describe at least one, such as {id: string}"),
        (f"views: {{}}\nsources: {{1a: {{{SOURCE}}}}}", "sources.1a: '1a' is not a source name (a letter, then letters, digits and _); choose another"),
        (f"views: {{}}\nsources: {{a: {{{SOURCE}}}, b: {{{SOURCE.replace('t_ui', 'T_UI')}}}}}", "sources.b.table: the table name 'T_UI' is used by sources.a.table already (case does not matter); choose another"),
        (PAIR + "views: {t_ui: {left: a, right: b, on: id}}", "views.t_ui: the table name 't_ui' is used by sources.a.table already (case does not matter); choose another"),
        (PAIR + "views: {v: {left: a, right: a, on: id}}", "views.v.right: is the same source as left, 'a'; choose another"),
        (PAIR + "views: {v: {left: a, right: c, on: id}}", "views.v.right: no source 'c' (has: a, b); remove it or fix the name"),
        (PAIR + "views: {v: {left: a, right: b}}", "views.v.on: is missing; add it"),
        (PAIR + "views: {v: {on: id, left: a}}", "views.v.right: is missing; add it"),
        (PAIR + "views: {v: {on: id, left: a, right: [b, b]}}", "views.v.right: is named twice, 'b'; choose another"),
        (PAIR + "views: {v: {on: id, left: a, right: b, columns: {id: string}}}", "views.v.columns: does not go with a join of left and right; remove it"),
        (PAIR + "views: {v: {on: id, sql: SELECT 1, columns: {id: string}}}", "views.v.sources: is missing; add it"),
        (PAIR + "views: {v: {on: id, sql: SELECT 1, sources: a}}", "views.v.columns: is missing; add it"),
        (PAIR + "views: {v: {on: id, sql: SELECT 1, sources: [c], columns: {id: string}}}", "views.v.sources: no source 'c' (has: a, b); remove it or fix the name"),
        (PAIR + "views: {v: {on: id, sql: SELECT 1, sources: a, columns: {id: string}, join: left}}", "views.v.join: does not go with sql; remove it"),
        (PAIR + "views: {v: {on: id, sql: ' ', sources: a, columns: {id: string}}}", "views.v.sql: must not be empty, got ' '; correct it"),
        (PAIR + "views: {v: {on: id, sql: SELECT 1, sources: a, columns: {n: string}}}", "views.v.columns: no column 'id', the key of every row; select it and add it"),
        (PAIR + "views: {v: {on: id, sql: SELECT 1, sources: a, columns: {id: int64}}}", "views.v.columns.id: is int64, and string in the sources; make it string"),
        (PAIR + "views: {v: {on: id, sql: SELECT 1, sources: a, columns: {id: string, _n: int64}}}", "views.v.columns._n: a column name must not start with '_' (Turnout's own do); rename it"),
        (PAIR + "views: {v: {left: a, right: b, on: id, join: sideways}}", "views.v.join: unknown join 'sideways' (known: left, natural, inner, right, full, semi, anti, left_outer, leftouter, left outer, join); choose one of those"),
        ("views: {v: {left: users, right: accounts, on: name}}\nsources: {users: {topic: u, table: u, key: id, columns: {id: string, name: string}}, accounts: {topic: a, table: a, key: name, columns: {name: string}}}", "views.v.on: 'name' is not the key of source 'users' (key: id); join on the key"),
        (PAIR.replace("b_ui, key: id, columns: {id: string}", "b_ui, key: id, columns: {id: int64}") + "views: {v: {left: a, right: b, on: id}}", "views.v.on: column 'id' is string in 'a' and int64 in 'b'; give both the same type"),
        ("kafka: {auth: {protocol: SASL_SSL, mechanism: PLAIN, username: u}}", "kafka.auth.password: is missing, and mechanism PLAIN needs it; add it"),
        ("kafka: {auth: {protocol: SSL, username: u}}", "kafka.auth.username: has no effect with protocol SSL; use SASL_SSL or remove it"),
        ("kafka: {auth: {protocol: PLAINTEXT, ca_file: u}}", "kafka.auth.ca_file: has no effect with protocol PLAINTEXT; use SSL or SASL_SSL, or remove it"),
        ("kafka: {auth: {protocol: SASL_SSL, mechanism: OAUTHBEARER}}", "kafka.auth.oauth: is missing, and mechanism OAUTHBEARER needs it; add it"),
        ("kafka: {auth: {protocol: SASL_SSL, mechanism: OAUTHBEARER, username: u, oauth: {token_endpoint: 'http://a/b', client_id: c, client_secret: s}}}", "kafka.auth.username: has no effect with mechanism OAUTHBEARER; remove it"),
        ("kafka: {auth: {protocol: SASL_SSL, mechanism: OAUTHBEARER, oauth: {token_endpoint: 'http://a/b', client_id: c, client_secret: s, ca_file: f}}}", "kafka.auth.oauth.ca_file: has no effect with a token_endpoint of http:; use https: or remove it"),
        ("kafka: {auth: {protocol: SASL_SSL, mechanism: OAUTHBEARER, oauth: {token_endpoint: 'https://a:b@c/d', client_id: c, client_secret: s}}}", "kafka.auth.oauth.token_endpoint: must not have a user or a password in it; use client_id and client_secret"),
        ("kafka: {auth: {protocol: SASL_SSL, mechanism: OAUTHBEARER, oauth: {token_endpoint: login, client_id: c, client_secret: s}}}", "kafka.auth.oauth.token_endpoint: must be a URL such as https://login.example.com/oauth2/token; correct it"),
        ("kafka: {auth: {protocol: SASL_SSL, mechanism: OAUTHBEARER, oauth: {token_endpoint: 'http://a/b', client_id: c, client_secret: s, extensions: {a-b: c}}}}", "kafka.auth.oauth.extensions: the name 'a-b' must be letters only, and not 'auth'; correct it"),
        ("kafka: {auth: {protocol: SASL_SSL, mechanism: OAUTHBEARER, oauth: {token_endpoint: 'http://a/b', client_id: c, client_secret: s, extensions: {a: 'b,c'}}}}", "kafka.auth.oauth.extensions: the value of 'a' must be plain ASCII, without commas or outer spaces; correct it"),
        ("kafka: {auth: {protocol: SSL, ca_file: a, truststore_file: b}}", "kafka.auth.truststore_file: says the same as ca_file; remove one of them"),
        ("kafka: {auth: {protocol: SSL, key_file: a}}", "kafka.auth.key_file: has no effect without certificate_file; add that or remove it"),
        ("kafka: {auth: {protocol: SSL, key_password: a}}", "kafka.auth.key_password: has no effect without certificate_file or keystore_file; add that or remove it"),
        ("kafka: {auth: {protocol: SSL, keystore_file: a}}", "kafka.auth.keystore_password: is missing, and keystore_file needs it; add it"),
        ("kafka: {auth: {protocol: SSL, keystore_file: a, keystore_password: p}, properties: {ssl.keystore.type: JKS}}", "kafka.properties.ssl.keystore.type: is already set by auth; remove one of them"),
        ("kafka: {librdkafka_properties: {bootstrap.servers: 'a:1'}}", "kafka.librdkafka_properties.bootstrap.servers: has its own setting; use bootstrap_servers"),
        ("kafka: {auth: {protocol: SSL}, properties: {security.protocol: SSL}}", "kafka.properties.security.protocol: is already set by auth; remove one of them"),
        (f"views: {{}}\nsources: {{a: {{{SOURCE}, format: xml}}}}", "sources.a.format: must be one of json, avro, protobuf, got 'xml'; choose one of them"),
        (f"views: {{}}\nsources: {{a: {{{SOURCE}, format: avro}}}}", "sources.a.format: avro needs schemas, and there is none; add schema_registry: {url: ...}, or schema_file here"),
        (f"views: {{}}\nsources: {{a: {{{SOURCE}, schema_file: a.avsc}}}}", "sources.a.schema_file: has no effect with format: json; set format: avro or protobuf, or remove it"),
        (f"views: {{}}\nsources: {{a: {{{SOURCE}, format: avro, schema_file: a.avsc, message: M}}}}", "sources.a.message: works only with format: protobuf and schema_file; remove it"),
        ("schema_registry: {}", "schema_registry.url: is missing; add it"),
        ("schema_registry: {url: here}", "schema_registry.url: must be a URL such as https://registry.example.com; correct it"),
        ("schema_registry: {url: 'http://a:b@c'}", "schema_registry.url: must not have a user or a password in it; use auth.username and auth.password"),
        ("schema_registry: {url: 'http://a', auth: {username: u}}", "schema_registry.auth.password: is missing, and username needs it; add it"),
        ("schema_registry: {url: 'http://a', auth: {username: u, password: p, token: t}}", "schema_registry.auth.token: is given beside username; remove one of them"),
        ("schema_registry: {url: 'http://a', auth: {ca_file: c}}", "schema_registry.auth.ca_file: has no effect with a url of http:; use https: or remove it"),
        ("schema_registry: {url: 'https://a', auth: {key_file: k}}", "schema_registry.auth.key_file: has no effect without certificate_file; add that or remove it"),
        ("access: {tokens: []}", "access.tokens: there is none, so nobody could connect; add one or remove access"),
        ("access: {oidc: {issuer: 'http://id.example', client_id: c, client_secret: s, roles: {operator: a}}}", "access.oidc.issuer: must be https, or others on the network could forge sign-ins; use http on loopback only"),
        ("access: {oidc: {issuer: here, client_id: c, client_secret: s, roles: {operator: a}}}", "access.oidc.issuer: must be a URL such as https://login.example.com/realms/main; correct it"),
        ("access: {oidc: {issuer: 'https://id.example?a=b', client_id: c, client_secret: s, roles: {operator: a}}}", "access.oidc.issuer: must have no ? and no #; write it as the issuer's discovery document does"),
        ("access: {oidc: {issuer: 'http://127.0.0.1:9', client_id: c, client_secret: s, roles: {operator: a}, ca_file: x}}", "access.oidc.ca_file: has no effect with an issuer of http:; use https: or remove it"),
        ("access: {oidc: {issuer: 'https://id.example', client_id: c, client_secret: s, roles: {}}}", "access.oidc.roles: gives nobody a role, so nobody could sign in; add operator or viewer"),
        ("access: {oidc: {issuer: 'https://id.example', client_id: c, client_secret: s, roles: {operator: a}, scope: profile}}", "access.oidc.scope: has no openid, without which the issuer does not say who signs in; add it"),
        ("access: {oidc: {issuer: 'https://id.example', client_id: c, roles: {operator: a}}}", "access.oidc.client_secret: is missing; add it"),
        ("access: {tokens: [{name: a, role: boss, token: t}]}", "access.tokens[0].role: must be one of viewer, operator, got 'boss'; choose one of them"),
        ("sources: [a]", "sources: must be a mapping, got a list; write `name: value` lines below it"),
        ("5: x", "the file: the name 5 must be text; put it in quotes"),
        ("spark: {conf: {5: x}}", "spark.conf: the name 5 must be text; put it in quotes"),
    ],
)  # fmt: skip
def test_fault_says_where_what_and_what_to_do(tmp_path: Path, text: str, fault: str) -> None:
    assert faults(tmp_path, text) == (fault,)


def test_fault_of_a_view_names_the_columns_that_there_are(tmp_path: Path) -> None:
    text = "views: {final_ui: {left: users, right: accounts, on: user_id}}"
    assert faults(tmp_path, text)[1] == (
        "views.final_ui.on: source 'accounts' has no column 'user_id' (has: userId, accountType, balance); "
        "fix the name or add the column"
    )


@pytest.mark.parametrize("name", ["swaps", "Control_Raw", "join_quality", *RESERVED])
def test_reserved_table_name_is_refused(tmp_path: Path, name: str) -> None:
    (fault,) = faults(tmp_path, f"views: {{}}\nsources: {{a: {{{SOURCE.replace('t_ui', name)}}}}}")
    assert fault.startswith(f"sources.a.table: '{name}' is a name of Turnout itself")


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    text = "server: {port: x}\nstart: x\n" + PAIR + "views: {v: {left: a, right: c, on: id}}"
    places = [fault.split(":")[0] for fault in faults(tmp_path, text)]
    assert places == ["start", "server.port", "views.v.right"]


def test_fault_names_its_line(tmp_path: Path) -> None:
    text = """\
server:
  port: x
sources:
  users: {topic: users, table: users_ui, key: id, columns: {userId: string}}
  accounts:
    topic: accounts
    key: userId
access:
  tokens:
    - {name: a, role: viewer, token: 0123456789abcdef}
    - {name: b, role: boss, token: 0123456789abcdeg}
views: {}
"""
    found = with_lines(tmp_path, text, TURNOUT_START="x")
    assert sorted(":".join(fault.split(":")[:2]) for fault in found) == [
        "line 11: access.tokens[1].role",
        "line 2: server.port",
        "line 4: sources.users.key",
        "line 5: sources.accounts.columns",
        "line 5: sources.accounts.table",
        "start (from TURNOUT_START): unknown start 'x' (known",
    ]


def test_all_faults_of_a_file_come_in_one_round(tmp_path: Path) -> None:
    """A setting that is wrong by itself hides no fault between the others."""
    text = """\
server: {port: 1}
server: {port: 2}
sources:
  users:
    topic: my users
    table: users_ui
    key: id
    columns: {userId: strng, age: int64}
    rows: some
  accounts:
    topic: accounts
    table: users_ui
    key: userId
    columns: {userId: string, balance: double}
    colour: red
views:
  final_ui: {left: users, right: acounts, on: userId, join: sideways}
sinks:
  out: {table: final, topic: accounts, format: xml}
"""
    twice, *found = with_lines(tmp_path, text)
    assert twice == f"{tmp_path / 'turnout.yaml'}: line 2: 'server' is given twice (first in line 1); remove one"
    assert [":".join(fault.split(":")[:2]) for fault in found] == [
        "line 5: sources.users.topic",
        "line 8: sources.users.columns.userId",
        "line 9: sources.users.rows",
        "line 15: sources.accounts.colour",
        "line 17: views.final_ui.join",
        "line 19: sinks.out.format",
        "line 7: sources.users.key",
        "line 12: sources.accounts.table",
        "line 17: views.final_ui.right",
        "line 17: views.final_ui.on",
        "line 19: sinks.out.table",
        "line 19: sinks.out.topic",
    ]


def test_faults_of_alerts_are_told_at_once_with_those_of_other_settings(tmp_path: Path) -> None:
    text = """
server: {port: x}
alerts:
  a: {table: final, where: balance > 1, to: {topic: users}}
  b: {table: final_ui, where: balanc > 1, to: log}
  c: {table: final_ui, where: balance > much, to: {webhook: 'http://h/', headers: {'a b': c}}}
  d: {table: final_ui, where: balance > 1, to: {topic: t}, min_seconds: -1}
"""
    assert sorted(":".join(fault.split(":")[:2]) for fault in with_lines(tmp_path, text)) == [
        "line 2: server.port",
        "line 4: alerts.a.table",
        "line 4: alerts.a.to.topic",
        "line 5: alerts.b.where",
        "line 6: alerts.c.to.headers.a b",
        "line 6: alerts.c.to.webhook",
        "line 6: alerts.c.where",
        "line 7: alerts.d.min_seconds",
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        "sources: {a: {topic: t, table: t_ui, key: id, columns: {id: strng}}, b: {topic: u, table: u_ui, key: id, columns: {id: int64}}}\nviews: {v: {left: a, right: b, on: id}}",
        "sources: {a: {topic: t, table: t_ui, key: id, columns: {id: int64}, format: xml, schema_file: a.avsc}}\nviews: {}",
        "sources: {a: {topic: 't t', table: t_ui, key: id, columns: {id: int64}}}\nviews: {}",
        "sources: {a: {topic: t, table: t_ui, key: id, columns: {id: int64}}, b: {topic: u, table: u_ui, key: id, columns: {id: int64}}}\nviews: {v: {left: a, steps: [{right: b, on: id, join: sideways}]}}",
    ],
)
def test_setting_that_is_wrong_by_itself_brings_no_other_fault(tmp_path: Path, wrong: str) -> None:
    assert len(faults(tmp_path, wrong)) == 1


def test_sources_without_views_explain_where_the_view_comes_from(tmp_path: Path) -> None:
    assert "write `views: {}`" in faults(tmp_path, f"sources: {{a: {{{SOURCE}}}}}")[-1]


def test_secrets_never_show(tmp_path: Path) -> None:
    good = """
kafka:
  auth: {protocol: SASL_SSL, mechanism: PLAIN, username: u, password: hunter2-hunter2-hunter2}
  properties: {ssl.key.password: hunter2-hunter2-hunter2}
spark: {conf: {spark.x: hunter2-hunter2-hunter2}}
access: {tokens: [{name: a, role: viewer, token: hunter2-hunter2-hunter2}]}
"""
    settings = read(tmp_path, good)
    assert "hunter2-hunter2-hunter2" not in repr(settings) + str(settings)
    for bad in (
        good.replace("password: hunter2-hunter2-hunter2}\n  prop", "passwrod: hunter2-hunter2-hunter2}\n  prop"),
        good.replace("password: hunter2-hunter2-hunter2}\n  prop", "password: [hunter2-hunter2-hunter2]}\n  prop"),
        good.replace("spark.x: hunter2-hunter2-hunter2", "spark.x: [hunter2-hunter2-hunter2]"),
        good.replace("token: hunter2-hunter2-hunter2", "token: {hunter2-hunter2-hunter2: hunter2-hunter2-hunter2}"),
        good.replace("role: viewer, token: hunter2-hunter2-hunter2", "role: viewer, tokn: hunter2-hunter2-hunter2"),
        good + "server: hunter2-hunter2-hunter2",
        good.replace("name: a, role: viewer, token: hunter2-hunter2-hunter2", "hunter2-hunter2-hunter2").replace(
            "{hunter2-hunter2-hunter2}", "hunter2-hunter2-hunter2"
        ),
        good.replace(
            "role: viewer, token: hunter2-hunter2-hunter2}", 'role: viewer, token: " hunter2-hunter2-hunter2"}'
        ),
    ):
        assert "hunter2-hunter2-hunter2" not in "\n".join(faults(tmp_path, bad))


def test_raw_properties_need_no_quotes(tmp_path: Path) -> None:
    settings = read(tmp_path, "spark: {conf: {a: true, b: 10, c: 1.5, d: x}}\nkafka: {properties:}")
    assert settings.spark.conf == {"a": "true", "b": "10", "c": "1.5", "d": "x"}
    assert settings.kafka.properties == {}


def test_relative_paths_start_at_the_file(tmp_path: Path) -> None:
    auth = "{bootstrap_servers: 'b:1', auth: {protocol: SSL, ca_file: ca.pem}}"
    settings = read(tmp_path, f"kafka: {auth}\ncontrol: {{kafka: {auth}}}\ndata_dir: ../d")
    assert settings.data_dir == tmp_path.parent / "d"
    for kafka in (settings.kafka, settings.control_kafka):
        assert kafka.auth and kafka.auth.ca_file == tmp_path / "ca.pem"


OAUTH = "{token_endpoint: 'https://a/b', client_id: c, client_secret: s}"


def test_control_inherits_what_it_does_not_say(tmp_path: Path) -> None:
    data = "kafka: {bootstrap_servers: 'd:1', auth: {protocol: SSL}, properties: {client.id: t}}"
    inherited = read(tmp_path, f"{data}\ncontrol: {{kafka: {{bootstrap_servers: 'c:1'}}}}")
    assert inherited.control_kafka == inherited.kafka.model_copy(update={"bootstrap_servers": "c:1"})

    own = read(tmp_path, f"{data}\ncontrol: {{kafka: {{auth: {{protocol: PLAINTEXT}}}}}}").control_kafka
    assert (own.bootstrap_servers, own.properties) == ("d:1", {})
    assert own.auth and own.auth.protocol == "PLAINTEXT"

    nothing = read(tmp_path, f"{data}\ncontrol: {{kafka: {{}}}}")
    assert nothing.control_kafka == nothing.kafka


def test_control_on_the_same_cluster_may_not_acknowledge_to_a_source(tmp_path: Path) -> None:
    for kafka in ("{}", "{auth: {protocol: SSL}}", "{bootstrap_servers: 'localhost:9092'}"):
        found = faults(tmp_path, f"control: {{ack_topic: users, kafka: {kafka}}}")
        assert found == ("control.ack_topic: is read as sources.users.topic too; choose another topic",)
    read(tmp_path, "control: {ack_topic: users, kafka: {bootstrap_servers: 'c:1'}}")


def test_token_endpoints_are_allowed_in_every_java_machine(tmp_path: Path) -> None:
    auth = f"{{protocol: SASL_SSL, mechanism: OAUTHBEARER, oauth: {OAUTH}}}"
    text = f"kafka: {{auth: {auth}}}\nspark: {{conf: {{spark.driver.extraJavaOptions: -Da=b}}}}"
    conf = read(tmp_path, text).spark.conf
    option = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=https://a/b"
    assert conf == {
        "spark.driver.extraJavaOptions": f"-Da=b {option}",
        "spark.executor.extraJavaOptions": option,
    }


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().server.port = 1  # type: ignore[misc]
