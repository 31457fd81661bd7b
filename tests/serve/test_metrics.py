"""`GET /metrics`, and that dashboard, alerts and reference name exactly what is there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from fake_orchestrator import FakeOrchestrator
from http_server import small_store
from metric_samples import samples
from turnout import __version__
from turnout.plan.answers import AlertStatus, SinkState, SinkStatus
from turnout.serve.app import create_app
from turnout.serve.read_api import Services
from turnout.store.database import Database
from turnout.swap.health import Readiness
from turnout.swap.metrics import METRICS, Counters, Metrics

DOCS = Path(__file__).parents[2] / "docs"
ALERT = AlertStatus(
    name="large",
    table="final_ui",
    where="balance > 1",
    to="log",
    state="watching",
    error=None,
    rows=4,
    waiting=2,
    events=5,
    delivered=3,
    dropped=1,
    last_delivered=None,
)
SINK = SinkStatus(
    name="out",
    table="final_ui",
    topic="out",
    format="json",
    delivery="exactly_once",
    state=SinkState.FAILING,
    error=None,
    generation=1,
    version=3,
    records=12,
    last_written=None,
    waiting_versions=2,
    waiting_rows=7,
)


class Measured(FakeOrchestrator):
    """An orchestrator of which there is something to tell of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.counters = Counters()
        self.counters.batch(0.3, 2, {"users_ui": 5}, live=True)
        self.ready = Readiness(False, "no broker", "kafka_unreachable", "start one")

    def metrics(self) -> Metrics:
        return Metrics(
            readiness=self.ready,
            values={
                "turnout_records_total": {"1": 1000, "2": 40},
                "turnout_generations": {"live": 1, "catching_up": 1},
                "turnout_candidate_generation": 9,
                "turnout_building_percent": 40.0,
                "turnout_lag_records": {("users", "0"): 3, ("users", "1"): 0},
                "turnout_kafka_up": False,
                "turnout_newest_record_age_seconds": 5.0,
                "turnout_control_up": False,
                "turnout_control_waiting": 1,
                "turnout_spark_starts_total": 2,
                "turnout_left_out_keys": {},
            },
            counters=self.counters,
            published=1,
            alerts=(ALERT,),
            sinks=(SINK,),
        )


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with small_store(tmp_path) as opened:
        yield opened


@pytest.fixture
def client(database: Database) -> TestClient:
    services = Services(database, Measured())
    return TestClient(create_app(services), raise_server_exceptions=False)


def test_metrics_tell_the_state_and_what_was_counted(client: TestClient) -> None:
    found = samples(client)
    wanted = {
        ("turnout_build_info", __version__): 1,
        ("turnout_ready", ""): 0,
        ("turnout_trouble", "kafka_unreachable"): 1,
        ("turnout_published_generation", ""): 1,
        ("turnout_generations", "catching_up"): 1,
        ("turnout_records_total", "1"): 1000,
        ("turnout_lag_records", "0,users"): 3,
        ("turnout_lag_records", "1,users"): 0,
        ("turnout_kafka_up", ""): 0,
        ("turnout_batch_seconds_count", "live"): 1,
        ("turnout_batch_seconds_count", "catching_up"): 0,
        ("turnout_bad_records_total", ""): 2,
        ("turnout_evicted_rows_total", "users_ui"): 5,
        ("turnout_swaps_total", "applied"): 1,
        ("turnout_swaps_total", "failed"): 0,
        ("turnout_swap_seconds_sum", "build"): 0.25,
        ("turnout_control_messages_total", "applied"): 0,
        ("turnout_control_up", ""): 0,
        ("turnout_control_waiting", ""): 1,
        ("turnout_table_rows", "users_ui"): 3,
        ("turnout_table_rows", "swaps"): 1,
        ("turnout_store_up", ""): 1,
        ("turnout_spark_starts_total", ""): 2,
        ("turnout_viewers", ""): 0,
        ("turnout_alert_up", "large"): 1,
        ("turnout_alert_rows", "large"): 4,
        ("turnout_alert_waiting", "large"): 2,
        ("turnout_alert_events_total", "large"): 5,
        ("turnout_alert_dropped_total", "large"): 1,
        ("turnout_sink_up", "out"): 0,
        ("turnout_sink_waiting_versions", "out"): 2,
        ("turnout_sink_waiting_rows", "out"): 7,
        ("turnout_sink_records_total", "out"): 12,
    }
    assert {key: found.get(key) for key in wanted} == wanted
    assert found["turnout_store_bytes", ""] > 0
    assert found["turnout_newest_record_age_seconds", ""] < 60
    assert ("turnout_table_rows", "versions") not in found


def test_metrics_count_viewers_and_their_subscriptions(client: TestClient) -> None:
    with client, client.websocket_connect("/api/live") as socket:
        assert socket.receive_json()["type"] == "hello"
        socket.send_json({"type": "window", "id": "1", "table": "users_ui", "limit": 5})
        socket.send_json({"type": "status", "id": "2"})
        answered: set[str] = set()
        while answered != {"1", "2"}:  # the status comes again each second
            answered.add(socket.receive_json()["id"])
        found = samples(client)
        assert found["turnout_viewers", ""] == 1
        assert (found["turnout_subscriptions", "window"], found["turnout_subscriptions", "status"]) == (1, 1)
        socket.send_json({"type": "unsubscribe", "id": "1"})
        socket.send_json({"type": "changes", "id": "3", "table": "nothing"})
        while socket.receive_json().get("id") != "3":
            pass
        assert samples(client)["turnout_subscriptions", "window"] == 0


def test_metrics_answer_while_the_store_is_broken(client: TestClient, database: Database) -> None:
    database.close()
    found = samples(client)
    assert (found["turnout_store_up", ""], found["turnout_ready", ""]) == (0, 0)
    assert ("turnout_swaps_total", "applied") not in found


def test_metrics_take_no_parameters(client: TestClient) -> None:
    assert client.get("/metrics?name=x").json()["error"]["code"] == "unknown_parameter"


def names(client: TestClient) -> set[str]:
    return {name for name, _ in samples(client)}


def used(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:turnout|process)_[a-z_]+", expression))


def test_dashboard_and_alerts_name_only_metrics_that_exist(client: TestClient) -> None:
    board = json.loads((DOCS / "grafana" / "turnout.json").read_text())
    shown = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    shown += [entry["expr"] for entry in board["annotations"]["list"]]
    shown += [entry["query"]["query"] for entry in board["templating"]["list"] if entry["type"] == "query"]
    alerts = yaml.safe_load((DOCS / "grafana" / "alerts.yml").read_text())
    alarming = [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    there = names(client)
    for expression in [*shown, *alarming]:
        assert used(expression), expression
        assert used(expression) <= there, expression
        assert expression.count("(") == expression.count(")"), expression
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_scrape_of_the_how_to_is_one_of_prometheus() -> None:
    [text] = re.findall(r"```yaml\n(.*?)```", (DOCS / "how-to" / "monitoring.md").read_text(), re.DOTALL)
    document = yaml.safe_load(text)
    [job] = document["scrape_configs"]
    assert job.get("metrics_path", "/metrics") == "/metrics"
    assert job["authorization"]["type"] == "Bearer"
    assert [(DOCS / "grafana" / name).exists() for name in document["rule_files"]] == [True]


def test_metrics_that_are_defined_are_those_that_exist(client: TestClient) -> None:
    families = text_string_to_metric_families(client.get("/metrics").text)
    there = {
        (f.name + "_total" if f.type == "counter" else f.name, f.type, f.documentation)
        for f in families
        if f.name.startswith("turnout_")
    }
    assert there == {(name, metric.kind, metric.text) for name, metric in METRICS.items()}
