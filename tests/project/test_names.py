"""Where the tests of a module are: in the file of its name, or in one that is named here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import turnout
import turnout_client

PACKAGE = Path(turnout.__file__).parent
CLIENT = Path(turnout_client.__file__).parent
TESTS = Path(__file__).parents[1]

ELSEWHERE = {
    # Commands, as people call them.
    "cli/test_cli.py": "cli/init cli/run client/cli/app client/cli/options client/cli/output client/cli/program "
    "client/cli/progress client/cli/questions client/cli/status client/cli/swap client/cli/tables",
    "config/test_configuration.py": "store/config_history",
    "live/test_check.py": "preflight/findings",
    # A file by example.
    "live/test_by_example.py": "kafka/topic_creation",
    "serve/test_example_api.py": "example/by_example serve/kafka_api",
    "live/test_demo.py": "local/spinner",
    # The client is one thing to those who use it.
    "clients/test_client.py": "client/display client/frames client/http",
    "clients/test_client_live.py": "client/events client/subscription client/wire client/retries",
    "clients/test_client_computed.py": "client/newest",
    "clients/test_mirror.py": "client/changes",
    "plan/test_plan_times.py": "client/iso_times",
    # turnout.yaml as a whole: each rule is seen by what is said about a wrong file.
    "config/test_config_loading.py": "config/checks config/config_errors config/document config/output_checks "
    "config/server config/settings config/values",
    "kafka/test_security.py": "config/auth",
    "plan/test_plan.py": "config/tables plan/tables",
    "plan/test_control.py": "config/topic_rules plan/control_parsing",
    # Decoders agree with each other, whatever the record.
    "decode/test_decode_formats.py": "decode/avro decode/protobuf decode/shape",
    "decode/test_decoder.py": "decode/columns decode/exact_reader",
    # Sinks: what is written, by what a topic folds to.
    "sink/test_records.py": "store/outgoing",
    "alert/test_watched_rows.py": "alert/events",
    "live/test_alert_targets.py": "alert/targets",
    "live/test_sinks.py": "sink/sink sink/topic_channel sink/topic_state sink/avro_values store/outgoing",
    # Parts that only a real Kafka, Spark or process can show.
    "live/test_formats.py": "schemas/record_decoder",
    "live/test_swaps.py": "kafka/lag spark/jvm/java_errors swap/generations swap/orchestrator swap/swaps",
    "live/test_exactness.py": "spark/writing store/join_quality",
    "live/test_row_files.py": "spark/jvm/checkpoints",
    "live/test_three_sources.py": "spark/views/own_sql",
    "live/test_planned.py": "spark/views/runner",
    "live/test_chains.py": "plan/chains store/views/chained",
    # The server over real sockets.
    # People of an identity provider.
    "live/test_login.py": "issuer/provider serve/login_api",
    "serve/test_connections.py": "serve/connections serve/origins",
    "serve/test_differences.py": "serve/live/computed",
    "store/test_summary_read.py": "store/query/summary_sql",
    "store/test_sql.py": "store/query/sql_process store/query/sql_worker",
    "serve/test_read_api.py": "serve/app serve/requests serve/responses",
    "serve/test_openapi.py": "plan/answers serve/routes serve/schemas",
    "serve/test_saved_api.py": "store/saved_views",
    "serve/test_live.py": "serve/live/changes serve/live/endpoint serve/live/hub serve/live/outbox serve/live/shared "
    "serve/live/windows store/feed plan/position",
    "serve/test_mcp_server.py": "serve/agent_tools client/cli/mcp",
    "serve/test_metrics.py": "serve/metrics swap/metrics",
    # The store, by what its tables hold in the end.
    "store/test_generation_tables.py": "store/batch_rows store/batches store/views/parts store/views/view_rows",
    "store/test_query_windows.py": "store/database",
    "plan/test_where.py": "plan/filter_values",
    "swap/test_control_queue.py": "swap/health",
    "plan/test_joins.py": "plan/sql_text client/control_fields",
    "test_errors.py": "errors client/errors",
    "project/test_patience.py": "testing",
}
"""File of tests -> modules without one of their own that it covers."""

MODULES = sorted(
    room + path.relative_to(package).with_suffix("").as_posix()
    for room, package in (("", PACKAGE), ("client/", CLIENT))
    for path in package.rglob("*.py")
    if not path.name.startswith("__")
)
FILES = {path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")}


def names(module: str) -> set[str]:
    """Where the file of a module may be: in the folder of its room, in `live` or in `browser`.

    It has the room in its name where another room has a module of that name. Commands are called as what they show, and
    do not count.
    """
    *rooms, name = module.split("/")
    shared = sum(other.split("/")[-1] == name for other in MODULES if not other.startswith(("cli/", "client/cli/"))) > 1
    files = {f"test_{'_'.join([*rooms[place:], name])}.py" for place in range(len(rooms) + (not shared))}
    own = "" if not rooms else "clients/" if rooms[0] == "client" else f"{rooms[0]}/"
    return {f"{folder}{file}" for folder in (own, "live/", "browser/") for file in files}


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
