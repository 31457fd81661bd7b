"""What all tests share: one Spark for each worker and one broker for the whole run, both real."""

from __future__ import annotations

import atexit
import gc
import itertools
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from importlib import metadata
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from lengths import LONG
from machine_speed import measure
from shared_broker import shared_broker
from turnout.config import SparkSettings
from turnout.decode.json_exact import DEEPEST
from turnout.testing import EmbeddedBroker, patience

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from filled_store import Filling
    from login_site import LoginSite
    from turnout_client import Client

pytest_plugins = ["layers", "namespaces", "processor_time", "progress_lines", "spark_workers", "hang_watch"]

# The container image is built in the long form alone: it takes minutes.
collect_ignore = [] if LONG else ["live/test_image.py", "live/test_client_alone.py"]

measure()
# Far beyond the limit of one wait, so that a wait that hangs ends first, and says what it waited for. A test of the
# long form may work for eight minutes on a quiet machine.
os.environ.setdefault("PYTEST_TIMEOUT", f"{(12 if LONG else 4) * patience():.0f}")

# A shell starts what runs in its background with Ctrl-C ignored, and every program of the tests would have it so.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Reading JSON exactly raises it at the first use; Hypothesis warns where that is in the middle of a test.
sys.setrecursionlimit(4 * DEEPEST)

# How long an example takes says more of the machine and of what else runs on it than of what is tested.
settings.register_profile("turnout", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("turnout")


def pytest_configure() -> None:
    """End at once in an environment that `make setup` has not brought up to date: programs import what is installed."""
    if not list(metadata.distributions(name="turnout-client")):
        pytest.exit("turnout-client is not installed in this environment: run make setup", 1)
    atexit.register(_drop_last_words)


def _drop_last_words() -> None:
    """Close stderr for what DuckDB prints after Python has ended: a list of what daemon threads of tests still hold."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stderr__.fileno() if sys.__stderr__ else 2)


def pytest_collection_finish() -> None:
    """The tests and all that they import stay until the end: the collector of garbage need not look at them again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The end of what a Turnout of the test said is part of a failure's report."""
    report = yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and folder is not None:
        for log in (*folder.glob("turnout.log"), *folder.glob("*/turnout.log")):
            report.sections.append((str(log), log.read_text()[-6000:]))
    return report


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from turnout.spark.jvm.session import start_session

    # Folders of users have spaces and all letters: so do these.
    session = start_session(SparkSettings(), tmp_path_factory.mktemp("Spark für alle"))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """The broker of the whole run, also where several workers share it: topics are named by their test."""
    base = tmp_path_factory.getbasetemp()
    with shared_broker((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "broker") as running:
        yield running


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Names of topics that belong to one test."""
    count = itertools.count()
    test = "".join(c if c.isalnum() else "-" for c in request.node.name)[:80]
    return lambda name: f"{test}-{next(count)}-{name}"


# What needs a server is imported where it is asked for: most tests ask for none.


@pytest.fixture
def filling(tmp_path: Path) -> Iterator[Filling]:
    """A store with two users and an account of the first, published; the test writes more batches and swaps."""
    from filled_store import filled

    with filled(tmp_path) as made:
        yield made


@pytest.fixture
def url(filling: Filling) -> Iterator[str]:
    """The address of a real server over `filling`."""
    from http_server import application, serving

    with serving(application(filling.database)) as address:
        yield address


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    """The Python client, connected to the server over `filling`."""
    from turnout_client import connect

    with connect(url) as connected:
        yield connected


@pytest.fixture(scope="module")
def login_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginSite]:
    """The one server of a file whose people sign in at a real identity provider."""
    from login_site import login_site

    with login_site(tmp_path_factory.mktemp("login")) as running:
        yield running


@pytest.fixture
def login_site(login_server: LoginSite) -> Iterator[LoginSite]:
    """`login_server` with the time of today and a queue without messages."""
    login_server.queue.messages.clear()
    yield login_server
    login_server.clock.ahead = 0.0
