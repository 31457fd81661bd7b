"""The configuration in force: what may be shown of it, what a text would change, and which one a start takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from turnout.config import Settings, load, parse
from turnout.config.changes import Needs
from turnout.config.configuration import Configuration, file_text
from turnout.config.document import parse_yaml, to_yaml
from turnout.config.tables import first_plan, plan_after, sections_of
from turnout.errors import ConfigError, TurnoutError
from turnout.plan.joins import Join
from turnout.plan.plan import Start
from turnout.store import config_history
from turnout.store.config_history import ConfigEntry
from turnout.store.database import Database
from turnout.swap.applies import in_force_at_start

ENVIRON = {"OPS_TOKEN": "token-of-the-environment", "GROUP": "readers"}
SECRETS: dict[str, Any] = {
    "kafka": {
        "auth": {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": "u", "password": "hunter2-literal"},
        "properties": {"client.id": "hunter2-property"},
    },
    "access": {
        "tokens": [
            {"name": "ops", "role": "operator", "token": "${OPS_TOKEN}"},
            {"name": "eye", "role": "viewer", "token": "hunter2-of-a-viewer"},
        ]
    },
}
texts = st.text(
    st.characters(blacklist_categories=("Cc", "Cs", "Zl", "Zp"), blacklist_characters="\ufeff\x85"), max_size=8
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | texts
    | st.sampled_from(
        [
            "on",
            "1e5",
            "010",
            "1:30",
            "2026-01-01",
            "~",
            "null",
            "${X}",
            "*",
            "- a",
            "a: b",
            "0x1",
            ".5",
            "1_000",
            "<<",
            "=",
        ]
    )
)
trees = st.recursive(
    scalars, lambda below: st.lists(below, max_size=3) | st.dictionaries(texts, below, max_size=3), max_leaves=10
)


def settings(document: dict[str, Any]) -> Settings:
    return parse(document, Path("/etc/turnout"), ENVIRON)


@given(st.dictionaries(texts, trees, max_size=4))
def test_document_is_read_back_from_its_text(document: dict[str, Any]) -> None:
    assert parse_yaml(to_yaml(document)) == (document, [])


def test_file_text_has_no_secret_but_its_references() -> None:
    text = file_text(settings(SECRETS))
    assert "hunter2" not in text and ENVIRON["OPS_TOKEN"] not in text
    shown = yaml.safe_load(text)
    assert shown["kafka"]["auth"]["password"] == shown["kafka"]["properties"]["client.id"] == "***"
    assert [token["token"] for token in shown["access"]["tokens"]] == ["${OPS_TOKEN}", "***"]


def test_text_that_is_shown_changes_nothing_when_it_is_sent_back() -> None:
    in_force = Configuration(settings(SECRETS))
    proposed = in_force.proposed(file_text(in_force.settings))
    assert proposed.changes == ()
    auth = proposed.settings.kafka.auth
    assert auth is not None and auth.password is not None and auth.password.get_secret_value() == "hunter2-literal"


def test_secret_that_differs_needs_a_restart_and_does_not_show() -> None:
    text = to_yaml(SECRETS | {"kafka": {**SECRETS["kafka"], "properties": {"client.id": "hunter3"}}})
    [change] = Configuration(settings(SECRETS)).proposed(text).needs(Needs.RESTART)
    assert (change.path, change.before, change.after) == ("kafka.properties.client.id", "***", "***")


def test_secret_that_stands_for_none_is_a_fault() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.properties\.client\.id: \*\*\* stands for the current secret"):
        Configuration(settings({})).proposed("kafka: {properties: {client.id: '***'}}")


def test_secret_file_that_changed_is_the_same_while_it_is_written_alike(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("old-hunter2")
    document = {"kafka": {"properties": {"ssl.key.password": {"file": "pw"}}}}
    in_force = Configuration(parse(document, tmp_path, {}))
    (tmp_path / "pw").unlink()
    proposed = in_force.proposed(to_yaml(document | {"server": {"max_viewers": 5}}))
    assert [change.path for change in proposed.changes] == ["server.max_viewers"]
    assert proposed.settings.kafka.properties == {"ssl.key.password": "old-hunter2"}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("sources: [", "the file: line 1, column 11: not YAML"),
        ("- a", "the file: must be a mapping of settings, got a list"),
        ("# nothing", "the file: has no settings"),
        ("server: {prot: 1}", "line 1: server.prot: unknown setting"),
        (
            "views: {final_ui: {left: users, right: nobody, on: userId}}",
            "line 1: views.final_ui.right: no source 'nobody'",
        ),
    ],
)
def test_text_with_faults_is_refused_with_them(text: str, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Configuration(settings({})).proposed(text)
    assert str(caught.value).startswith(fault)


def test_configuration_that_came_from_no_file_takes_none() -> None:
    in_force = Configuration(Settings())
    with pytest.raises(TurnoutError, match="not started with a file"):
        in_force.proposed("start: earliest")
    assert sections_of(in_force.settings) == file_text(in_force.settings) == ""


def test_generation_has_the_sections_that_it_was_built_by() -> None:
    old, new = settings({}), settings({"start": "earliest", "views": {}, "server": {"max_viewers": 7}})
    in_force = Configuration(old)
    plan = first_plan(in_force.settings)
    heard: list[Settings] = []
    in_force.listen(heard.append)
    in_force.adopt(new)
    assert heard == [new] and in_force.of(first_plan(in_force.settings)) is new
    assert in_force.of(plan).views == old.views and in_force.of(plan).start == old.start
    assert in_force.of(plan).server.max_viewers == 7, "limits are those of now"
    assert in_force.of(plan) is in_force.of(plan)


def test_sinks_follow_their_tables_when_a_generation_comes_back() -> None:
    users = settings({}).origin.document["sources"]["users"]  # type: ignore[union-attr]
    sinks = {name: {"table": name, "topic": f"{name}-out"} for name in ("users_ui", "final_ui")}
    in_force = Configuration(settings({"sinks": sinks}))
    plan = first_plan(in_force.settings)
    more = {"users": users, "people": {**users, "table": "people_ui"}}
    others = {"sinks": {"a": {"table": "users_ui", "topic": "b"}, "c": {"table": "people_ui", "topic": "d"}}}
    in_force.adopt(settings({"sources": more, "views": {}, **others}))
    # The table of one is gone, that of another came back; the third was changed while its table stayed.
    found = in_force.of(plan).sinks
    assert {name: (sink.table, sink.topic) for name, sink in found.items()} == {
        "final_ui": ("final_ui", "final_ui-out"),
        "a": ("users_ui", "b"),
    }


def test_alerts_in_force_go_on_when_a_generation_comes_back_that_has_their_columns() -> None:
    old = Configuration(settings({}))
    plan, document = first_plan(old.settings), settings({}).origin.document  # type: ignore[union-attr]
    users = document["sources"]["users"]
    users = {**users, "columns": {**users["columns"], "score": "int64"}}
    people = {**users, "table": "people_ui"}
    hook = {"webhook": "https://hooks.example.com/x", "headers": {"Authorization": "secret-header"}}
    alerts = {
        "kept": {"table": "users_ui", "where": "age > 5", "to": hook},
        "column_gone": {"table": "users_ui", "where": "score > 5", "to": "log"},
        "table_gone": {"table": "people_ui", "where": "age > 5", "to": "log"},
    }
    sources = {**document["sources"], "users": users, "people": people}
    in_force = Configuration(settings({"sources": sources, "alerts": alerts}))
    assert "secret-header" not in first_plan(in_force.settings).sections
    found = in_force.of(plan).alerts
    assert list(found) == ["kept"]
    assert found["kept"].to.headers == {"Authorization": "secret-header"}


def test_plan_after_an_apply_keeps_what_messages_changed_unless_the_file_does() -> None:
    old = settings({})
    plan = first_plan(old).with_(
        topics={"users": "users2", "accounts": "accounts2"}, joins={"final_ui": Join.INNER}, start=Start("earliest")
    )
    assert plan_after(plan, old, old) == plan
    assert old.origin is not None
    document = dict(old.origin.document)
    sources = {**document["sources"], "accounts": {**document["sources"]["accounts"], "topic": "accounts9"}}
    sources["more"] = {"topic": "more", "table": "more_ui", "key": "id", "columns": {"id": "string"}}
    after = plan_after(plan, old, settings({"sources": sources, "views": document["views"]}))
    assert dict(after.topics) == {"users": "users2", "accounts": "accounts9", "more": "more"}
    assert dict(after.joins) == {"final_ui": Join.INNER} and after.start == Start("earliest")
    views = {"final_ui": {**document["views"]["final_ui"], "join": "full"}}
    after = plan_after(plan, old, settings({"views": views, "start": {"timestamp": "2026-01-01T00:00:00Z"}}))
    assert dict(after.joins) == {"final_ui": Join.FULL} and after.start.kind == "timestamp"
    # Of a store from before the history of files: it is held against the file of now.
    assert dict(plan_after(replace(plan, topics={"users": "users2"}, joins={}), old, old).topics) == {
        "users": "users2",
        "accounts": "accounts",
    }
    without = settings({"sources": {"users": document["sources"]["users"]}, "views": {}})
    assert dict(plan_after(plan, old, without).topics) == {"users": "users2"}


# -- at a start


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database.open(tmp_path / "data")
    yield opened
    opened.close()


class Starts:
    """Starts with a file on disk, and applies between them."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.path = folder / "turnout.yaml"
        self.database = database

    def start(self, limit: int, note: str = "") -> tuple[int, str]:
        """The limit in force, and what is said of it."""
        self.path.write_text(f"# {note}\nserver: {{max_viewers: {limit}}}\nkafka: {{properties: {{a.b: hunter2}}}}\n")
        found = in_force_at_start(load(self.path, {}), self.database)
        self.configuration = found.configuration
        assert found.configuration.settings.kafka.properties == {"a.b": "hunter2"}
        return found.configuration.settings.server.max_viewers, found.said

    def apply(self, limit: int) -> None:
        proposed = self.configuration.proposed(
            f"server: {{max_viewers: {limit}}}\nkafka: {{properties: {{a.b: '***'}}}}"
        )
        entry = ConfigEntry(
            generation=1,
            requester="ops",
            outcome="applied",
            changes=list(proposed.changes),
            document=file_text(proposed.settings),
            on_disk=self.configuration.on_disk() or "",
        )
        with self.database.write() as cursor:
            config_history.add(cursor, entry)
        self.configuration.adopt(proposed.settings)


def test_start_takes_what_was_applied_unless_the_file_has_changed_since(tmp_path: Path, database: Database) -> None:
    starts = Starts(tmp_path, database)
    assert starts.start(10) == (10, "")
    assert starts.start(10, "another comment") == (10, "")
    starts.apply(20)
    limit, said = starts.start(10)
    assert limit == 20 and "that ops applied" in said and "has not changed since" in said
    limit, said = starts.start(11)
    assert limit == 11 and said == "the file on disk has changed, and is used: server.max_viewers: 20 -> 11"
    assert starts.start(11) == (11, "")
    # The file that was changed and applied itself, and another one after it.
    starts.start(11)
    starts.path.write_text(starts.path.read_text().replace("11", "12"))
    starts.apply(12)
    starts.apply(13)
    assert starts.start(12)[0] == 13
    history = config_history.entries(database)
    assert [entry.outcome for entry in history] == ["applied", "applied", "started", "applied", "started"]
    assert "hunter2" not in "".join(entry.document + entry.on_disk for entry in history)


def test_start_that_cannot_read_what_was_applied_says_what_to_do(tmp_path: Path, database: Database) -> None:
    path = tmp_path / "turnout.yaml"
    path.write_text("{}\n")
    in_force_at_start(load(path, {}), database)
    entry = ConfigEntry(
        generation=1,
        requester="ops",
        outcome="applied",
        changes=[],
        document="server: {host: '${HOST}'}",
        on_disk=file_text(load(path, {})),
    )
    with database.write() as cursor:
        config_history.add(cursor, entry)
    with pytest.raises(ConfigError, match=r"no variable 'HOST'.*; or change the file on disk, which then takes"):
        in_force_at_start(load(path, {}), database)
    path.write_text("server: {max_viewers: 3}\n")
    assert in_force_at_start(load(path, {}), database).configuration.settings.server.max_viewers == 3


def test_history_keeps_the_newest(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_history, "MOST_ENTRIES", 3)
    assert config_history.newest(database) is None
    for number in range(5):
        with database.write() as cursor:
            entry = ConfigEntry(
                generation=number, requester="a", outcome="applied", changes=[], document="d", on_disk="o"
            )
            config_history.add(cursor, entry)
    assert [entry.generation for entry in config_history.entries(database)] == [4, 3, 2]
    assert config_history.entries(database)[0].model_dump()["time"].tzinfo is not None
