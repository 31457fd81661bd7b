"""A configuration that was sent brings no reference and no path of its own, and nothing that it names is touched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from turnout.config import Settings, parse
from turnout.config.config_errors import child, is_model
from turnout.config.configuration import Configuration
from turnout.config.sent import beyond_tables, is_path
from turnout.errors import ConfigError

ENVIRON = {"OPS_TOKEN": "operator-token-0123456789", "PREFIX": "people"}
USERS = {"topic": "users", "table": "users_ui", "key": "userId", "columns": {"userId": "string"}}


def auth(password: Any) -> dict[str, Any]:
    plain = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": "x", "password": password}
    return {"kafka": {"auth": plain}}


def users(**settings: Any) -> dict[str, Any]:
    return {"sources": {"users": USERS | settings}, "views": {}}


def in_force(folder: Path, **document: Any) -> Configuration:
    return Configuration(parse(document, folder, ENVIRON))


def refused(configuration: Configuration, document: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        configuration.proposed(yaml.safe_dump(document))
    return str(caught.value)


def test_sent_command_is_refused_and_not_run(tmp_path: Path) -> None:
    command = {"command": ["sh", "-c", "id > RAN; echo x"]}
    for document in (
        auth(command),
        {"kafka": {"properties": {"client.id": command}}},
        {"spark": {"conf": {"spark.x": command}}},
        {"access": {"tokens": [{"name": "a", "role": "viewer", "token": command}]}},
        {"access": {"oidc": {"client_secret": command}}},
        {"control": {"kafka": auth(command)["kafka"]}},
    ):
        assert "a reference (" in refused(in_force(tmp_path), document)
    # Where another command is in force, too.
    other = in_force(tmp_path, **auth({"command": "echo y"}))
    assert refused(other, auth(command)).startswith("kafka.auth.password: a reference (")
    assert list(tmp_path.iterdir()) == []


def test_sent_file_is_refused_and_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # to open it would wait for a writer
    (tmp_path / "pw").write_text("hunter2")
    for file in ("pipe", "pw", "/dev/zero", "none"):
        text = refused(in_force(tmp_path), auth({"file": file}))
        assert text.startswith("kafka.auth.password: a reference (") and "hunter2" not in text


@pytest.mark.parametrize(
    ("document", "place"),
    [
        (users(topic="${OPS_TOKEN}"), "sources.users.topic"),
        (users(topic="x-${PREFIX}"), "sources.users.topic"),
        ({"control": {"topics": ["${OPS_TOKEN}"]}}, "control.topics[0]"),
        ({"data_dir": "${OPS_TOKEN}"}, "data_dir"),
        (auth("${OPS_TOKEN}"), "kafka.auth.password"),
        (auth({"env": "OPS_TOKEN"}), "kafka.auth.password"),
        ({"views": {"v": {"on": "${OPS_TOKEN}"}}}, "views.v.on"),
        ({"unknown": ["${OPS_TOKEN}"]}, "unknown[0]"),
    ],
)
def test_sent_variable_is_refused_and_not_filled_in(tmp_path: Path, document: dict[str, Any], place: str) -> None:
    text = refused(in_force(tmp_path), document)
    assert text.startswith(f"{place}: a reference (") and ENVIRON["OPS_TOKEN"] not in text


def test_references_of_the_file_in_force_are_taken_at_their_place(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("hunter2")
    count = {"command": ["sh", "-c", "echo >> RUNS; echo hunter2"]}
    for password in (count, {"file": "pw"}, {"env": "OPS_TOKEN"}, "${OPS_TOKEN}"):
        document = auth(password) | users(topic="${PREFIX}-users")
        configuration = in_force(tmp_path, **document)
        proposed = configuration.proposed(yaml.safe_dump(document | {"server": {"max_viewers": 3}}))
        assert [change.path for change in proposed.changes] == ["server.max_viewers"]
        assert proposed.settings.sources["users"].topic == "people-users"
        moved = {**document, "sources": {"people": document["sources"]["users"]}}
        assert refused(configuration, moved).startswith("sources.people.topic: a reference (")
    assert len((tmp_path / "RUNS").read_text().splitlines()) == 1, "by the start alone"


def test_text_with_an_escaped_reference_is_taken(tmp_path: Path) -> None:
    text = yaml.safe_dump({"control": {"kafka": {"properties": {"client.id": "a$${OPS_TOKEN}"}}}})
    settings = in_force(tmp_path).proposed(text).settings
    assert settings.control.kafka is not None
    assert settings.control.kafka.properties == {"client.id": "a${OPS_TOKEN}"}


def test_sent_text_is_parsed_once(tmp_path: Path) -> None:
    configuration, text = in_force(tmp_path), "server: {max_viewers: 3}"
    proposed = configuration.proposed(text)
    assert configuration.proposed(text) is proposed
    configuration.adopt(proposed.settings)
    assert configuration.proposed(text).changes == (), "it is compared with what is in force now"


def test_sent_path_lies_below_the_folder_of_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "etc"
    (folder / "schemas").mkdir(parents=True)
    (folder / "schemas" / "users.avsc").write_text("{}")
    (folder / "outside").symlink_to(tmp_path)
    configuration = in_force(folder)

    def users_with(file: str) -> dict[str, Any]:
        return users(format="avro", schema_file=file)

    for file in ("schemas/users.avsc", str(folder / "none.avsc"), "schemas/../a.avsc"):
        assert configuration.proposed(yaml.safe_dump(users_with(file))).changes
    for file in ("/etc/passwd", "../sa.json", "outside/sa.json", "~/sa.json", "~nobody-at-all/x", "a\0b"):
        assert refused(configuration, users_with(file)).startswith("sources.users.schema_file: a path must lie below")
    elsewhere = {"data_dir": str(tmp_path / "data"), **users_with(str(tmp_path / "a.avsc"))}
    same = in_force(folder, **elsewhere)
    assert same.proposed(yaml.safe_dump(elsewhere)).changes == ()
    assert refused(same, elsewhere | {"data_dir": "/"}).startswith("data_dir: a path must lie below")


def settings_below(annotation: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The places of all settings; of lists and mappings those of one item."""
    if is_model(annotation):
        assert issubclass(annotation, BaseModel)
        for name in annotation.model_fields:
            yield (*path, name)
            yield from settings_below(child(annotation, name), (*path, name))
    elif is_model(child(annotation, "x")):
        yield from settings_below(child(annotation, "x"), (*path, "x"))


def test_every_setting_that_names_a_file_is_known_as_a_path() -> None:
    named = {path for path in settings_below(Settings) if str(path[-1]).endswith(("_file", "_dir"))}
    assert ("access", "tokens", "x", "token_file") in named and len(named) > 15
    assert {path for path in settings_below(Settings) if is_path(path)} == named


def test_own_sql_and_the_topics_of_messages_are_beyond_tables() -> None:
    def settings(sql: str, *topics: str, name: str = "own", **more: Any) -> Settings:
        view = {"on": "userId", "sources": ["users"], "columns": {"userId": "string"}, "sql": sql}
        return parse({"views": {name: view}, "control": {"topics": [*topics]}, **more}, Path("/etc/turnout"), {})

    old = settings("select userId from users", "a-*")
    assert beyond_tables(old, old) == []
    assert beyond_tables(old, settings("select userId from users", "a-*", start="earliest")) == []
    assert beyond_tables(old, settings("select distinct userId from users", "a-*")) == ["views.own.sql"]
    assert beyond_tables(old, settings("select userId from users", "a-*", name="more")) == ["views.more.sql"]
    assert beyond_tables(old, settings("select userId from users", "*")) == ["control.topics"]
    assert beyond_tables(old, Settings()) == ["control.topics"]


HOOK = "https://hooks.example.com/secret-path"


def alerting(table: str = "final_ui", where: str = "balance > 1", **to: Any) -> dict[str, Any]:
    return {"alerts": {"large": {"table": table, "where": where, "to": to or "log"}}}


def test_webhook_that_is_new_or_changed_is_beyond_tables(tmp_path: Path) -> None:
    def settings(**document: Any) -> Settings:
        return parse(document, tmp_path, ENVIRON)

    hooked = settings(**alerting(webhook=HOOK, headers={"Authorization": "a"}))
    for old in (Settings(), settings(**alerting()), settings(**alerting(topic="alerts"))):
        assert beyond_tables(old, hooked) == ["alerts.large.to"]
        assert beyond_tables(hooked, old) == []
    assert beyond_tables(hooked, settings(**alerting(webhook=HOOK + "x", headers={"Authorization": "a"}))) != []
    assert beyond_tables(hooked, settings(**alerting(webhook=HOOK, headers={"Authorization": "b"}))) != []
    assert beyond_tables(hooked, settings(**alerting(webhook=HOOK, private=True, headers={"Authorization": "a"}))) != []
    other = alerting("users_ui", "age > 5", webhook=HOOK, headers={"Authorization": "a"})
    assert beyond_tables(hooked, settings(**other)) == []


@pytest.mark.parametrize("header", ["${OPS_TOKEN}", "Bearer ${OPS_TOKEN}", "***", {"env": "OPS_TOKEN"}])
def test_secret_header_goes_to_no_other_address(tmp_path: Path, header: Any) -> None:
    configuration = in_force(tmp_path, **alerting(webhook=HOOK, headers={"Authorization": "Bearer ${OPS_TOKEN}"}))
    same = {"Authorization": "Bearer ${OPS_TOKEN}" if header != "***" else header}
    for address in (HOOK, "***"):
        proposed = configuration.proposed(yaml.safe_dump(alerting(webhook=address, headers=same)))
        assert proposed.changes == ()
    sent = alerting(webhook="https://attacker.example/", headers={"Authorization": header})
    assert "alerts.large.to" in refused(configuration, sent)
    if header in ("***", "Bearer ${OPS_TOKEN}"):
        assert "a new address gets no secret of the current file" in refused(configuration, sent)
    plain = alerting(webhook="https://attacker.example/", headers={"Authorization": "mine"})
    [target, value] = configuration.proposed(yaml.safe_dump(plain)).changes
    assert (target.before, target.after, value.before, value.after) == ("***",) * 4


@pytest.mark.parametrize("variable", ["HEADERS__AUTHORIZATION", "HEADERS"])
def test_header_of_the_environment_goes_to_no_other_address(tmp_path: Path, variable: str) -> None:
    value = "operator-token" if variable != "HEADERS" else "{Authorization: operator-token}"
    file = alerting(webhook=HOOK)
    given = {f"TURNOUT_ALERTS__LARGE__TO__{variable}": value, "TURNOUT_ALERTS__LARGE__MIN_SECONDS": "5"}
    configuration = Configuration(parse(file, tmp_path, given))
    assert list(configuration.settings.alerts["large"].to.headers.values()) == ["operator-token"]
    assert configuration.proposed(yaml.safe_dump(file)).changes == ()
    sent = alerting(webhook="https://attacker.example/")
    assert "alerts.large.to.webhook: a new address gets no secret" in refused(configuration, sent)


def test_merge_keys_are_bounded_before_they_are_merged(tmp_path: Path) -> None:
    keys = ", ".join(f"k{number}: 1" for number in range(2_000))
    bomb = f"x: &x {{{keys}}}\n" + "".join(f"m{n}: {{<<: [{', '.join(['*x'] * 100)}]}}\n" for n in range(300))
    with pytest.raises(ConfigError, match="its anchors stand for more than 100,000 values"):
        in_force(tmp_path).proposed(bomb)
    nested = f"x0: &x0 {{{keys[:300]}}}\n".replace(", }", "}")
    nested += "".join(f"x{n}: &x{n} {{<<: [{', '.join([f'*x{n - 1}'] * 40)}]}}\n" for n in range(1, 6))
    with pytest.raises(ConfigError, match="its anchors stand for more than 100,000 values"):
        in_force(tmp_path).proposed(nested)
    few = "sources: {users: &s {topic: a, table: a, key: k, columns: {k: string}}, b: &b {<<: *s, table: b}, "
    few += "c: {<<: *b, table: c}}\nviews: {}"
    sources = in_force(tmp_path).proposed(few).settings.sources
    assert [(one.table, one.topic) for one in sources.values()] == [("a", "a"), ("b", "a"), ("c", "a")]


def test_text_with_thousands_of_faults_is_answered_with_the_first(tmp_path: Path) -> None:
    for text in (
        "\n".join(f"a{number}: 1" for number in range(5_000)),
        "\n".join(f"a{number}: '${{X}}'" for number in range(5_000)),
        f"sources: {{{', '.join(f'a{number}: 1' for number in range(5_000))}}}",
    ):
        with pytest.raises(ConfigError) as caught:
            in_force(tmp_path).proposed(text)
        assert len(caught.value.faults) == 101 and caught.value.faults[-1].startswith("there are more faults")
