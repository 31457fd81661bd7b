"""A changed file is taken while running: built beside what is shown, published in one moment, and undone by a rollback."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from following import Socket
from orchestrated import Orchestrated, orchestrated
from serving import HTTP, serving
from turnout.local.broker import EmbeddedBroker
from turnout.messages import Problem, ServerMessage, Snapshot, StatusNow, SummaryGroups, WindowRows
from turnout.serve.app import Services, create_app
from turnout.testing import create_topic, produce, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
        answer = HTTP.put(f"{self.url}/api/config", content=body, params=query)
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
            bootstrap, self.accounts, [{"userId": f"k{i}", "accountType": "gold", "balance": i} for i in range(0, 20, 2)]
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
    others = {name: value for name, value in document.items() if name not in ("kafka", "data_dir")}
    with orchestrated(folder, spark, document["kafka"]["bootstrap_servers"], **others) as running:
        services = Services(running.database, running.orchestrator)
        services.adopt(running.orchestrator.configuration.settings)
        app = create_app(services, configuration=running.orchestrator.configuration)
        with serving(app) as url:
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
        assert (dry["outcome"], dry["changes"], dry["records"]) == ("unchanged", [change], {"users": 20, "accounts": 10})
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
