"""What all tests share: one Spark and one broker for the whole run, both real."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from patience import measure
from turnout.config import SparkSettings
from turnout.testing import EmbeddedBroker, patience

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["layers", "progress"]

measure()
# Far beyond the limit of one wait, so that a wait that hangs ends first, and says what it waited for.
os.environ.setdefault("PYTEST_TIMEOUT", f"{4 * patience():.0f}")

# How long an example takes says more of the machine and of what else runs on it than of what is tested.
settings.register_profile("turnout", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("turnout")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from turnout.spark.session import start_session

    session = start_session(SparkSettings(), tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    rules = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with EmbeddedBroker(tmp_path_factory.mktemp("broker"), properties=rules) as running:
        yield running


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Names of topics that belong to one test."""
    count = itertools.count()
    test = "".join(c if c.isalnum() else "-" for c in request.node.name)[:80]
    return lambda name: f"{test}-{next(count)}-{name}"
