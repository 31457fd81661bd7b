"""One browser for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from page_visit import Visit, chromium
from visited_site import Asked


# For a file, not for the run: while Playwright runs, nothing else in this thread can have an event loop.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def visit(site: Asked) -> Iterator[Visit]:
    """A tab that shows rows of the server that the file asks."""
    with site.visit() as tab:
        tab.wait_for_rows()
        yield tab
