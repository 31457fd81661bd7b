"""A changed file is taken while running: built beside what is shown, published in one moment, undone by a rollback."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import os
import shutil
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from typer.testing import CliRunner

from background_work import beside
from http_server import HTTP
from in_process_orchestrator import Orchestrated
from in_process_turnout import served_on
from kafka_writer import writing
from lengths import APPLIES, APPLIES_VIEWERS, LONG
from live_socket import Socket, sorted_rows_of
from live_watchers import Watcher, grown, held
from sink_reader import SunkTopic, bag
from turnout.cli import app
from turnout.config import load
from turnout.config.sent import TOKEN_FILE
from turnout.local.broker import EmbeddedBroker
from turnout.store.generation_tables import GenerationTables
from turnout.testing import create_topic, patience, produce, wait_until
from turnout_client.messages import Problem, ServerMessage, Snapshot, SummaryGroups, WindowRows
from turnout_process import ASKED_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOBODY = 65534
USERS = {"userId": "string", "name": "string", "email": "string", "age": "int64"}
ACCOUNTS = {"userId": "string", "accountType": "string", "balance": "double"}
ORDERS = {"orderId": "string", "userId": "string", "amount": "int64"}


class Served:
    """An orchestrator with a real server in front of it, and the file that it was given last."""

    def __init__(self, running: Orchestrated, url: str, document: dict[str, Any]) -> None:
        self.running = running
        self.url = url
        self.document = document

    def put(self, document: dict[str, Any], **query: str) -> dict[str, Any]:
        """What PUT /api/config answers, whatever its status."""
        body = yaml.safe_dump(document, sort_keys=False)
        token = Path(self.document["data_dir"], TOKEN_FILE).read_text()
        head = {"Authorization": f"Bearer {token}"}
        answer = HTTP.put(f"{self.url}/api/config", content=body, params=query, headers=head)
        said: dict[str, Any] = answer.json()
        assert answer.is_success == ("error" not in said), said
        return said

    def apply(self, **sections: Any) -> dict[str, Any]:
        """Apply the document with some sections replaced."""
        self.document = copy.deepcopy(self.document) | sections
        answer = self.put(self.document)
        assert answer["outcome"] == "applied", answer
        return answer

    def get(self, path: str) -> Any:
        answer = HTTP.get(f"{self.url}{path}")
        assert answer.is_success, answer.text
        return answer.json()

    def columns(self, table: str) -> list[str]:
        return [column["name"] for column in self.get(f"/api/tables/{table}/rows?limit=0")["columns"]]

    def tables(self) -> set[str]:
        return {table["name"] for table in self.get("/api/tables")["tables"]}

    def file(self) -> Any:
        return yaml.safe_load(HTTP.get(f"{self.url}/api/config").text)


class Topics:
    """The topics of one test, with twenty users in two topics, and an account and an order for half of them."""

    def __init__(self, bootstrap: str, topic_name: Callable[[str], str]) -> None:
        self.bootstrap = bootstrap
        self.users, self.users2 = topic_name("users"), topic_name("users")
        self.accounts, self.orders, self.control = topic_name("accounts"), topic_name("orders"), topic_name("control")
        for topic in (self.users, self.users2, self.accounts, self.orders, self.control):
            create_topic(bootstrap, topic, 1)
        for topic in (self.users, self.users2):
            produce(bootstrap, topic, [self.user(topic, i) for i in range(20)])
        produce(
            bootstrap,
            self.accounts,
            [{"userId": f"k{i}", "accountType": "gold", "balance": i} for i in range(0, 20, 2)],
        )
        produce(bootstrap, self.orders, [{"orderId": f"o{i}", "userId": f"k{i}", "amount": i} for i in range(5)])

    def user(self, topic: str, number: int) -> dict[str, Any]:
        person = {"userId": f"k{number}", "name": topic, "email": f"e{number}", "age": number}
        return {**person, "phone": f"+{number}", "code": f"c{number % 2}"}

    def document(self, folder: Path, **more: Any) -> dict[str, Any]:
        return {
            "kafka": {"bootstrap_servers": self.bootstrap},
            "control": {"topic": self.control},
            "sources": {"users": self.source("users", USERS), "accounts": self.source("accounts", ACCOUNTS)},
            "views": {"final_ui": {"left": "users", "right": "accounts", "on": "userId"}},
            "start": "earliest",
            "swap": {"linger_seconds": 600, "max_linger_generations": 1},
            "data_dir": str(folder / "data"),
            **more,
        }

    def source(self, name: str, columns: dict[str, str], key: str = "userId") -> dict[str, Any]:
        return {"topic": getattr(self, name), "table": f"{name}_ui", "key": key, "columns": columns}


@pytest.fixture
def topics(broker: EmbeddedBroker, topic_name: Callable[[str], str]) -> Topics:
    return Topics(broker.bootstrap_servers, topic_name)


@contextmanager
def served(folder: Path, spark: SparkSession, document: dict[str, Any]) -> Iterator[Served]:
    """Serve with `document` as the file on disk, until the block ends; the same folder again is a restart."""
    path = folder / "turnout.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    # SQL has a low priority: on a busy machine it may take longer than users wait.
    with served_on(load(path, {"TURNOUT_SERVER__QUERY_TIMEOUT_SECONDS": str(patience())}), spark) as (running, url):
        running.wait_ready()
        yield Served(running, url, document)


class Viewer:
    """Subscriptions of one connection, and all that each was sent."""

    def __init__(self, socket: Socket, **requests: dict[str, Any]) -> None:
        self.socket = socket
        self.sent: dict[str, list[ServerMessage]] = {name: [] for name in requests}
        for name, request in requests.items():
            socket.send(id=name, **request)

    def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            message = self.socket.receive()
            self.sent[getattr(message, "id", "") or ""].append(message)

    def take(self, *kinds: type[ServerMessage]) -> dict[str, list[Any]]:
        """What each was sent so far, of some kinds; it is forgotten here."""
        found = {name: [one for one in sent if isinstance(one, kinds)] for name, sent in self.sent.items()}
        for sent in self.sent.values():
            sent.clear()
        return found

    def all_at(self, generation: int, *names: str) -> Callable[[], bool]:
        def reached(name: str) -> bool:
            return any(getattr(one, "generation", 0) == generation for one in self.sent[name])

        return lambda: all(map(reached, names))


def names(message: Any) -> list[str]:
    return [column.name for column in message.columns]


def test_apply_of_columns_sources_and_views_reaches_viewers_in_one_message(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    with served(tmp_path, spark, topics.document(tmp_path)) as server, Socket(server.url) as socket:
        viewer = Viewer(
            socket,
            window={"type": "window", "table": "users_ui", "sort": "age"},
            changes={"type": "changes", "table": "final_ui"},
            summary={"type": "summary", "table": "users_ui", "values": "count,max(age)"},
            sql={"type": "sql", "sql": "select * from users_ui order by age", "live": True},
            status={"type": "window", "table": "orchestrator_status"},
            mail={"type": "window", "table": "users_ui", "columns": ["email"]},
        )
        viewer.until(viewer.all_at(1, "window", "changes", "summary", "sql", "status", "mail"))
        viewer.take()

        # A column more: one message each, with all rows.
        columns = {**USERS, "phone": "string"}
        sources = {"users": topics.source("users", columns), "accounts": server.document["sources"]["accounts"]}
        dry = server.put(server.document | {"sources": sources}, dryRun="true")
        change = {"path": "sources.users.columns.phone", "from": None, "to": "string", "needs": "generation"}
        kept = {"users": {"read": 20}, "accounts": {"kept": 10, "read": 0}}
        assert (dry["outcome"], dry["changes"], dry["sources"]) == ("unchanged", [change], kept)
        answer = server.apply(sources=sources)
        assert answer["changes"] == [change] and answer["generation"] == 2
        viewer.until(viewer.all_at(2, "window", "changes", "summary", "sql", "status", "mail"))
        sent = viewer.take(WindowRows, Snapshot, SummaryGroups, Problem)
        assert [names(one) for one in sent["window"]] == [[*columns]] and len(sent["window"][0].rows) == 20
        assert [names(one) for one in sent["changes"]] == [[*columns, "accountType", "balance"]]
        assert len(sent["changes"][0].rows) == 20
        assert [names(one) for one in sent["sql"]] == [[*columns]]
        assert [one.groups for one in sent["summary"]] == [[[20, 19]]]
        assert server.file()["sources"]["users"]["columns"] == columns

        # Another source and view; the topic that a message set stays, because the file does not change it.
        assert server.running.send(usersTopic=topics.users2).generation == 3
        sources = {**sources, "orders": topics.source("orders", ORDERS)}
        views = {**server.document["views"], "orders_of": {"left": "orders", "right": "users", "on": "userId"}}
        assert server.apply(sources=sources, views=views)["generation"] == 4
        assert {"orders_ui", "orders_of"} <= server.tables()
        assert server.get("/api/tables/orders_of/rows?limit=1")["rows"][0]["name"] == topics.users2
        status = server.get("/api/status")
        assert (status["usersTopic"], status["ordersTopic"], status["generation"]) == (topics.users2, topics.orders, 4)
        viewer.until(viewer.all_at(4, "window", "changes", "summary", "sql", "status", "mail"))
        assert "ordersTopic" in names(viewer.take(WindowRows)["status"][-1])

        # A column less: who named it is told so, and nobody else notices.
        orders = {"type": "changes", "table": "orders_ui"}
        socket.send(id="orders", **orders)
        viewer.sent["orders"] = []
        viewer.until(viewer.all_at(4, "orders"))
        viewer.take()
        fewer = {name: kind for name, kind in columns.items() if name != "email"}
        server.apply(sources=sources | {"users": topics.source("users", fewer)})
        viewer.until(viewer.all_at(5, "window", "changes", "summary", "sql", "status", "orders"))
        viewer.until(lambda: bool(viewer.sent["mail"]))
        sent = viewer.take(WindowRows, Snapshot, Problem)
        assert [one.error.code for one in sent["mail"]] == ["bad_columns"]
        assert "email" not in names(sent["window"][0]) and "email" not in names(sent["changes"][0])

        # A table less: its followers are told that it is gone.
        views.pop("orders_of")
        without = {"users": topics.source("users", fewer), "accounts": sources["accounts"]}
        server.apply(sources=without, views=views)
        viewer.until(lambda: bool(viewer.sent["orders"]))
        viewer.until(viewer.all_at(6, "window", "changes", "summary", "sql", "status"))
        sent = viewer.take(Problem)
        assert [one.error.code for one in sent["orders"]] == ["table_gone"]
        assert not {"orders_ui", "orders_of"} & server.tables()
        assert all(not sent[name] for name in ("window", "changes", "summary", "sql", "status"))

        # The file is what the history says, and the swaps have its rows.
        history = server.get("/api/config/history")["history"]
        assert [one["outcome"] for one in history] == ["applied"] * 4 + ["started"]
        assert [one["generation"] for one in history] == [6, 5, 4, 2, 0]
        swaps = server.get("/api/swaps")["rows"]
        assert [swap["outcome"] for swap in swaps] == ["applied"] * 6
        assert "sources.users.columns.phone" in swaps[1]["detail"]


def test_apply_that_cannot_be_leaves_everything_as_it_is(
    spark: SparkSession, topics: Topics, tmp_path: Path, topic_name: Callable[[str], str]
) -> None:
    empty = topic_name("empty")
    with served(tmp_path, spark, topics.document(tmp_path)) as server, Socket(server.url) as socket:
        viewer = Viewer(socket, window={"type": "window", "table": "users_ui"})
        viewer.until(viewer.all_at(1, "window"))
        before, document = server.file(), server.document

        def refused(code: str, *words: str, **sections: Any) -> dict[str, Any]:
            answer = server.put(document | sections)
            assert (answer["outcome"], answer["generation"]) == ("rejected", 1)
            assert answer["error"]["code"] == code and all(word in answer["error"]["message"] for word in words), answer
            return answer

        def users(**settings: Any) -> dict[str, Any]:
            return {**document["sources"], "users": document["sources"]["users"] | settings}

        # All faults at once; a setting that needs a restart, beside others that do not.
        refused(
            "config_invalid",
            "server.prot: unknown",
            "sources.users.key: no",
            server={"prot": 1},
            sources=users(key="x"),
        )
        answer = refused(
            "restart_needed", "kafka.bootstrap_servers", kafka={"bootstrap_servers": "x:1"}, server={"max_viewers": 3}
        )
        assert {one["path"]: one["needs"] for one in answer["changes"]} == {
            "kafka.bootstrap_servers": "restart",
            "server.max_viewers": "nothing",
        }
        # What only Kafka and Spark can tell: a topic that is not there, a sample that does not fit, SQL that is wrong.
        answer = refused("unknown_topic", empty, sources=users(topic=empty))
        assert [one["path"] for one in answer["changes"]] == ["sources.users.topic"]
        out = {"sinks": {"out": {"table": "users_ui", "topic": empty}}}
        for sections in (out, out | {"sources": users(columns={**USERS, "phone": "string"})}):
            answer = refused("unknown_topic", f"sinks.out.topic: topic '{empty}' does not exist", **sections)
            assert "sinks.out" in [one["path"].removesuffix(".topic") for one in answer["changes"]]
        dry = server.put(document | out, dryRun="true")
        assert (dry["outcome"], dry["error"]["code"]) == ("rejected", "unknown_topic")
        create_topic(topics.bootstrap, empty, 1)
        assert server.put(document | out, dryRun="true")["outcome"] == "unchanged"
        produce(topics.bootstrap, empty, [b"no JSON"] * 3)
        refused("bad_sample", empty, sources=users(topic=empty))
        own = {"on": "userId", "sources": ["users"], "sql": "select userId, nothing as x from users"}
        wrong = {"sums": own | {"columns": {"userId": "string", "x": "int64"}}}
        refused("bad_view", "nothing", views=document["views"] | wrong)
        conflict = server.put(document | {"start": "latest"}, expectedGeneration="7")
        assert (conflict["outcome"], conflict["error"]["code"]) == ("rejected", "generation_conflict")

        # A build that does not come to its end.
        slow = server.put(document | {"swap": {"catch_up_timeout_seconds": 0.0001}})
        assert slow["outcome"] == "applied" and slow["generation"] == 1, "a limit needs no generation"
        late = document | {
            "swap": {"catch_up_timeout_seconds": 0.0001},
            "sources": users(columns={**USERS, "phone": "string"}),
        }
        failed = server.put(late)
        assert (failed["outcome"], failed["error"]["code"]) == ("failed", "build_timeout")
        assert [one["path"] for one in failed["changes"]] == ["sources.users.columns.phone"]
        assert server.put(document)["outcome"] == "applied"
        assert server.put(document)["outcome"] == "unchanged"

        # Nobody saw anything of it.
        assert server.file() == before and server.columns("users_ui") == [*USERS]
        produce(topics.bootstrap, topics.users, [topics.user(topics.users, 20)])
        viewer.until(lambda: any(len(one.rows) == 21 for one in viewer.sent["window"] if isinstance(one, WindowRows)))
        assert {one.generation for one in viewer.take(WindowRows)["window"]} == {1}
        assert [one["outcome"] for one in server.get("/api/config/history")["history"]] == ["applied"] * 2 + ["started"]
        told = server.running.rows("control_raw")
        assert len(told) == 14 and all(row["outcome"] for row in told)
        assert [row["outcome"] for row in server.get("/api/swaps")["rows"]] == [
            "applied",
            "applied",
            "failed",
            "applied",
        ]


def test_rollback_brings_back_the_sections_of_its_generation(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    with served(tmp_path, spark, topics.document(tmp_path)) as server:
        first = server.file()
        # Another key, another view, another mode, and a limit.
        users = {
            "topic": topics.users,
            "table": "people_ui",
            "key": "code",
            "columns": {"code": "string", "age": "int64"},
        }
        users["rows"] = "latest"
        server.apply(sources={"users": users}, views={}, server={"max_viewers": 7})
        assert {"people_ui"} == {name for name in server.tables() if name.endswith("_ui")}
        assert [(row["code"], row["age"]) for row in server.running.rows("people_ui")] == [("c0", 18), ("c1", 19)]
        settings = server.running.orchestrator.configuration.settings
        assert settings.server.max_viewers == 7
        # A message of the sources of before, and one of the sources of now.
        assert server.running.send(accountsTopic="x").outcome == "unchanged", "an unknown field is ignored"

        # At once while it lingers, with other tables and the limit of now.
        assert server.running.send(action="rollback").outcome == "rolled_back"
        assert server.get("/api/status")["generation"] == 1
        assert server.file() == {**first, "server": {"max_viewers": 7}}
        assert server.columns("users_ui") == [*USERS] and "people_ui" not in server.tables()
        assert len(server.running.rows("final_ui")) == 20
        assert server.running.send(usersTopic=topics.users2, accountsTopic=topics.accounts).generation == 3

        # By a build when it is gone; and once more over it, to the newest file.
        server.apply(sources={"users": users}, views={}, swap={"linger_seconds": 0, "max_linger_generations": 0})
        wait_until(
            lambda: server.get("/api/status")["lingering"] == [], interval=ASKED_SECONDS, what="an end of lingering"
        )
        answer = server.running.send(action="rollback")
        assert (answer.outcome, answer.generation) == ("rolled_back", 5)
        assert server.file()["sources"] == first["sources"]
        assert {row["name"] for row in server.running.rows("final_ui")} == {topics.users2}
        wait_until(
            lambda: server.get("/api/status")["lingering"] == [], interval=ASKED_SECONDS, what="an end of lingering"
        )
        assert server.running.send(action="rollback").generation == 6
        assert server.file()["sources"] == {"users": users} and len(server.running.rows("people_ui")) == 2
        history = server.get("/api/config/history")["history"]
        assert [one["outcome"] for one in history] == [
            *("rolled_back", "rolled_back", "applied", "rolled_back", "applied", "started")
        ]
        assert history[0]["requester"] == "test" and history[0]["changes"]
        # It reads on, from the topic that the message set: the file did not change that.
        produce(topics.bootstrap, topics.users2, [{"code": "c9", "age": 1}])
        wait_until(lambda: len(server.running.rows("people_ui")) == 3, what="a row of the generation rolled back to")


@contextmanager
def copied_in_the_transaction_that_publishes(data: Path, copy: Path) -> Iterator[None]:
    """The data folder as a kill leaves it here. Spark may begin to read meanwhile: its temporary files come and go."""
    publish = GenerationTables.publish

    def publish_and_copy(tables: GenerationTables, cursor: Any) -> None:
        publish(tables, cursor)
        # A transaction that fails is tried again. A folder that has gone has no files: os.walk passes over it.
        for folder, _, names in os.walk(data):
            target = copy / Path(folder).relative_to(data)
            target.mkdir(parents=True, exist_ok=True)
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    shutil.copy2(Path(folder, name), target / name)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(GenerationTables, "publish", publish_and_copy)
        yield


def test_applied_file_goes_on_after_a_restart_unless_the_one_on_disk_has_changed(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    document, data, left = topics.document(tmp_path), tmp_path / "data", tmp_path / "left"
    more = {"users": topics.source("users", {**USERS, "phone": "string"}), "orders": topics.source("orders", ORDERS)}
    with served(tmp_path, spark, document) as server:
        assert server.running.send(usersTopic=topics.users2).generation == 2
        with copied_in_the_transaction_that_publishes(data, left):
            server.apply(sources=document["sources"] | more, server={"max_viewers": 9})
        applied, shown = server.document, server.running.rows("final_ui")
    with served(tmp_path, spark, document) as server:
        status = server.get("/api/status")
        assert (status["generation"], status["usersTopic"], status["ordersTopic"]) == (3, topics.users2, topics.orders)
        assert server.running.rows("final_ui") == shown and server.columns("users_ui") == [*USERS, "phone"]
        assert server.running.orchestrator.configuration.settings.server.max_viewers == 9
        assert any("has not changed since" in row["msg"] for row in server.running.rows("orchestrator_logs"))
        # Also back to the plan and the file from before it.
        assert server.running.send(action="rollback").generation == 4
        assert server.columns("users_ui") == [*USERS] and "orders_ui" not in server.tables()
    # The file on disk is changed: a topic, and a column.
    changed = copy.deepcopy(document)
    changed["sources"]["users"] = topics.source("users", {**USERS, "code": "string"})
    changed["sources"]["users"]["topic"] = topics.users
    changed["sources"]["accounts"]["topic"] = topics.orders
    with served(tmp_path, spark, changed) as server:
        assert server.columns("users_ui") == [*USERS, "code"] and "orders_ui" not in server.tables()
        status = server.get("/api/status")
        assert (status["generation"], status["usersTopic"], status["accountsTopic"]) == (
            5,
            topics.users2,
            topics.orders,
        )
        assert server.get("/api/config/history")["history"][0]["outcome"] == "started"
        assert server.file()["sources"] == changed["sources"]
    # What ended in the transaction of the apply does it at the next start, without losing a row.
    shutil.rmtree(data)
    left.rename(data)
    with served(tmp_path, spark, document) as server:
        wait_until(lambda: server.get("/api/status")["generation"] > 3, what="the apply that was cut off")
        assert [row["outcome"] for row in server.running.rows("control_raw")] == ["applied"] * 2
        assert {row["phone"] for row in server.running.rows("users_ui")} == {f"+{i}" for i in range(20)}
        assert len(server.running.rows("final_ui")) == 20 and len(server.running.rows("orders_ui")) == 5
        assert server.file()["sources"] == applied["sources"]
        history = server.get("/api/config/history")["history"]
        assert [one["outcome"] for one in history] == ["applied", "started"]
        # The command line shows the same, and what a wrong file would be.
        wrong = tmp_path / "wrong.yaml"
        wrong.write_text(yaml.safe_dump(applied | {"server": {"port": 1}}, sort_keys=False))
        done = CliRunner().invoke(app, ["apply", "-c", str(wrong), "--url", server.url])
        assert done.exit_code == 1 and "server.port" in done.stdout and "restart" in done.stdout
        assert "error: server.port: a change of this needs a restart" in done.stderr


def test_sent_file_runs_nothing_and_shows_nothing_of_the_machine(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    key = tmp_path / "sa.json"
    key.write_text('{"type": "service_account", "private_key": "hunter2"}')
    with served(tmp_path, spark, topics.document(tmp_path)) as server:
        document = server.document
        plain = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": "x"}

        def refused(**sections: Any) -> None:
            for query in ({}, {"dryRun": "true"}):
                answer = server.put(document | sections, **query)
                assert (answer["outcome"], answer["error"]["code"]) == ("rejected", "config_invalid"), answer
                assert "hunter2" not in str(answer) and str(patience()) not in str(answer)

        def users(**settings: Any) -> dict[str, Any]:
            return {**document["sources"], "users": document["sources"]["users"] | settings}

        command = {"command": ["sh", "-c", f"id > {tmp_path}/RAN; echo x"]}
        for password in (command, {"file": "pipe"}, {"file": "pipe"}, {"file": "pipe"}, {"file": "/dev/zero"}):
            refused(kafka=document["kafka"] | {"auth": plain | {"password": password}})
        refused(sources=users(topic="${TURNOUT_SERVER__QUERY_TIMEOUT_SECONDS}"))
        refused(sources=users(format="avro", schema_file="/etc/passwd"))
        # Below the folder of the file it may be named, and is not repeated.
        answer = server.put(document | {"sources": users(format="avro", schema_file="sa.json")})
        assert answer["outcome"] == "rejected" and "sa.json" in str(answer) and "hunter2" not in str(answer)
        assert not (tmp_path / "RAN").exists()
        assert server.running.send(usersTopic=topics.users2).generation == 2, "nothing waits for a pipe"
        kept = str([server.running.rows(table) for table in ("control_raw", "orchestrator_logs", "swaps")])
        assert "hunter2" not in kept and "sa.json" in kept
        # Another user of the machine has no token, and cannot read it.
        file = tmp_path / "data" / TOKEN_FILE
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        other: dict[str, Any] = {"user": NOBODY} if os.geteuid() == 0 else {}
        ask = ["curl", "-s", "-X", "PUT", "-d", "x: 1", "-H", "Content-Type: text/yaml", f"{server.url}/api/config"]
        said = subprocess.run(ask, capture_output=True, text=True, check=True, **other).stdout
        assert json.loads(said)["error"]["code"] == "forbidden"


_WARM = 4
"""After so many applies all that is made once has been made."""


def changed(topics: Topics, document: dict[str, Any], number: int, content: int) -> dict[str, Any]:
    """The document with some of four things in it: a column, a source with a view, another mode of rows, a sink.

    Only the sink needs no generation: in the short form it comes and goes most often.
    """
    made = copy.deepcopy(document)
    if content & 1:
        made["sources"]["users"]["columns"]["phone"] = "string"
    if content & 2:
        made["sources"]["orders"] = topics.source("orders", ORDERS)
        made["views"]["orders_of"] = {"left": "orders", "right": "users", "on": "userId"}
    if content & 4:
        made["sources"]["accounts"]["rows"] = "latest"
    if content & 8:
        made["sinks"]["users_out"] = {"table": "users_ui", "topic": topics.control + "-users"}
    made["server"] = {"max_viewers": 100 + number}
    return made


def test_applies_under_load_disturb_no_viewer_and_leave_nothing_behind(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    for name in ("final", "users"):
        create_topic(topics.bootstrap, f"{topics.control}-{name}", 1)
    document = topics.document(tmp_path, swap={"linger_seconds": 0.1, "max_linger_generations": 1})
    document["sinks"] = {"final_out": {"table": "final_ui", "topic": f"{topics.control}-final"}}
    written = itertools.count(20)

    def load(stopped: threading.Event) -> None:
        with writing(topics.bootstrap) as writer:
            while not stopped.wait(0.1 if LONG else 0.8):  # each write is a batch
                number = next(written)
                writer.write(topics.users, [topics.user(topics.users, number)])
                writer.write(topics.accounts, [{"userId": f"k{number % 40}", "accountType": "new", "balance": number}])

    def settled(server: Served) -> bool:
        return server.get("/api/status")["lingering"] == [] and len(spark.streams.active) == 1

    with served(tmp_path, spark, document) as server:
        kinds = itertools.cycle(("window", "summary", "sql", "changes", "status"))
        watchers = [Watcher(server.url, kind) for kind in itertools.islice(kinds, APPLIES_VIEWERS)]
        try:
            wait_until(lambda: all(one.last or one.fault for one in watchers), what="the first messages")
            with beside(load):
                before: list[int] = []
                for number, content in enumerate(APPLIES, start=1):
                    answer = server.put(changed(topics, document, number, content))
                    assert answer["outcome"] == "applied", answer
                    # Both of these have the same things in them.
                    if number in (_WARM, len(APPLIES)):
                        wait_until(lambda: settled(server), interval=ASKED_SECONDS, what="an end of lingering")
                        before = before or held()
                wait_until(
                    lambda: not grown(before, len(APPLIES) - _WARM),
                    interval=ASKED_SECONDS,
                    what=lambda: f"threads and files as before: {before}, now {held()}",
                )
            generation = server.get("/api/status")["generation"]
            assert [one.fault for one in watchers if one.fault] == []
            wait_until(lambda: all(one.generation == generation for one in watchers), what="the last generation")
            users, followers = next(written), [one.follower for one in watchers if one.kind == "changes"]
            topic = SunkTopic(topics.bootstrap, f"{topics.control}-final")

            def are_equal() -> bool:
                """All rows, and the followers and the topic of the sink as HTTP has them."""
                found, shown = (
                    server.get("/api/tables/final_ui/rows?limit=100000"),
                    sorted_rows_of(server.url, "final_ui"),
                )
                followed = all(follower.sorted_rows() == shown for follower in followers)
                return found["total"] == users and followed and topic.rows() == bag(found["rows"])

            wait_until(are_equal, interval=ASKED_SECONDS, what="the same rows for followers, the sink and HTTP")
            topic.close()
            assert [one.fault for one in watchers if one.fault] == []
        finally:
            for one in watchers:
                one.stop()
