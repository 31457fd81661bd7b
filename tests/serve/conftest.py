"""Servers that the tests of a file share: with tokens, without tokens, and one for attacks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from access_site import ACCESS, UNLIMITED, Site, site

# One server for all tests of a file that leave it as it was; the next one finds a queue without messages.


@pytest.fixture(scope="module")
def protected_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("protected"), ACCESS, rates=UNLIMITED) as running:
        yield running


@pytest.fixture
def protected(protected_server: Site) -> Site:
    protected_server.queue.messages.clear()
    return protected_server


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("open"), rates=UNLIMITED) as running:
        yield running


@pytest.fixture
def open_site(open_server: Site) -> Site:
    open_server.queue.messages.clear()
    return open_server


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One server for all attacks: it must take them one after the other."""
    with site(tmp_path_factory.mktemp("attacked")) as running:
        yield running
