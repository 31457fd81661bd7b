"""Where the tests of a module are: in the file of its name, or in one that is named here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import turnout
import turnout_client

PACKAGE = Path(turnout.__file__).parent
CLIENT = Path(turnout_client.__file__).parent
TESTS = Path(__file__).parent

ELSEWHERE = {
    # Commands, as people call them.
    "test_cli.py": "cli/app cli/broker cli/demo cli/history cli/init cli/options cli/output cli/prepare cli/run "
    "cli/alerts cli/apply cli/completion cli/difference cli/progress cli/rows cli/sql cli/status cli/summary cli/swap "
    "cli/tables "
    "cli/types",
    "test_configuration.py": "store/config_history",
    "live/test_applies.py": "serve/config_api",
    "live/test_check.py": "preflight/clusters preflight/machine",
    # A file by example.
    "live/test_by_example.py": "kafka/topic_creation cli/topic",
    "test_suggestion.py": "example/likely_keys",
    "test_example_api.py": "example/by_example",
    "test_topic_example.py": "example/schema_columns",
    "live/test_demo.py": "local/spinner",
    # The client is one thing to those who use it.
    "test_client.py": "client/display client/frames client/http",
    "test_client_live.py": "client/events client/subscription client/wire client/retries",
    "test_client_computed.py": "client/newest",
    "test_mirror.py": "client/changes",
    "test_plan_times.py": "client/iso_times",
    # turnout.yaml as a whole: each rule is seen by what is said about a wrong file.
    "test_config_loading.py": "config/alert_checks config/checks config/config_errors config/document config/server "
    "config/settings config/values",
    "test_security.py": "config/auth kafka/keystores",
    "test_plan.py": "config/tables plan/tables",
    "test_control.py": "config/topic_rules plan/control_parsing",
    # Decoders agree with each other, whatever the record.
    "test_decode_formats.py": "decode/avro decode/protobuf decode/shape",
    "test_decoder.py": "decode/columns decode/exact_reader",
    # Sinks: what is written, by what a topic folds to.
    "test_records.py": "store/outgoing",
    "test_watched_rows.py": "alert/events",
    "live/test_alert_targets.py": "alert/deliverer alert/targets serve/alert_api",
    "live/test_sinks.py": "sink/failures sink/sink sink/topic_channel sink/topic_state sink/avro_values store/outgoing",
    # Parts that only a real Kafka, Spark or process can show.
    "live/test_explainer.py": "cli/why",
    "live/test_formats.py": "schemas/record_decoder",
    "live/test_inbox.py": "kafka/acknowledgements",
    "live/test_swaps.py": "kafka/lag spark/jvm/java_errors swap/generations swap/orchestrator swap/swaps",
    "live/test_sources.py": "spark/read/live",
    "live/test_exactness.py": "spark/views/sent_rows spark/writing store/join_quality",
    "live/test_row_files.py": "spark/jvm/checkpoints",
    "live/test_three_sources.py": "spark/views/own_sql",
    "live/test_planned.py": "spark/views/runner",
    "live/test_chains.py": "plan/chains store/views/chain_trace store/views/chained",
    # The server over real sockets.
    # People of an identity provider.
    "live/test_login.py": "issuer/provider serve/login_api",
    "test_access.py": "serve/bodies serve/connections serve/origins serve/strict_requests",
    "test_summaries.py": "serve/live/selects",
    "test_summary_history.py": "serve/live/history_samples",
    "test_summary_read.py": "store/query/summary_sql",
    "test_sql.py": "store/query/sql_process store/query/sql_worker",
    "test_read_api.py": "serve/app serve/parameters serve/responses",
    "test_openapi.py": "serve/routes serve/schemas",
    "test_saved_api.py": "store/saved_views",
    "test_limits.py": "serve/reader_watch serve/live/parsing",
    "test_live.py": "serve/live/changes serve/live/endpoint serve/live/hub serve/live/outbox serve/live/shared "
    "serve/live/windows store/feed plan/position",
    "test_mcp_server.py": "serve/agent_tools cli/mcp",
    "test_metrics.py": "serve/metrics swap/metrics",
    # The store, by what its tables hold in the end.
    "test_generation_tables.py": "store/batch_rows store/batches store/tracked_writes "
    "store/views/joined store/views/parts store/views/view_rows",
    "test_query_windows.py": "store/database",
    "test_where.py": "plan/filter_values",
    "test_control_queue.py": "swap/health",
    "test_joins.py": "plan/sql_text",
    "test_errors.py": "errors client/errors",
    "test_patience.py": "testing",
}
"""File of tests -> modules without one of their own that it covers."""

MODULES = sorted(
    room + path.relative_to(package).with_suffix("").as_posix()
    for room, package in (("", PACKAGE), ("client/", CLIENT))
    for path in package.rglob("*.py")
    if not path.name.startswith("__")
)
FILES = {path.name for path in TESTS.rglob("test_*.py")}


def names(module: str) -> set[str]:
    """How the file of a module may be called: with its room where another room has a module of that name.

    Commands are called as what they show, and do not count.
    """
    *rooms, name = module.split("/")
    shared = sum(other.split("/")[-1] == name for other in MODULES if not other.startswith("cli/")) > 1
    return {f"test_{'_'.join([*rooms[place:], name])}.py" for place in range(len(rooms) + (not shared))}


def test_each_module_has_a_file_of_tests_with_its_name_or_one_that_is_named_here() -> None:
    elsewhere = {name for modules in ELSEWHERE.values() for name in modules.split()}
    assert [module for module in MODULES if not (names(module) & FILES or module in elsewhere)] == []


def test_files_that_are_named_here_are_there_and_so_are_their_modules() -> None:
    assert [file for file in ELSEWHERE if not (TESTS / file).is_file()] == []
    assert [name for modules in ELSEWHERE.values() for name in modules.split() if name not in MODULES] == []


@pytest.mark.parametrize("page", ["architecture.md", "contributing.md"])
def test_modules_that_a_page_names_are_there(page: str) -> None:
    text = (TESTS.parent / "docs" / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[a-z_]+/)*[a-z_0-9]+\.py)`", text))
    assert len(named) > 5
    known = [f"/{path}" for folder in (PACKAGE, CLIENT, TESTS) for path in folder.rglob("*.py")]
    assert sorted(name for name in named if not any(path.endswith(f"/{name}") for path in known)) == []


def test_the_way_of_a_record_is_drawn_and_is_short() -> None:
    text = (TESTS.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = re.findall(r"^ ?([0-9]+)\. `([a-z_/]+)\.py`:", text.partition("## The way of a record")[2], re.MULTILINE)
    assert [int(number) for number, _ in drawn] == list(range(1, len(drawn) + 1))
    assert len(drawn) <= 15
    assert [module for _, module in drawn if module not in MODULES] == []
