"""One browser for all files of this folder that a worker runs one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from looking import chromium
from playwright.sync_api import Browser


# For the folder, not for the run: while Playwright runs, nothing else in this thread can have an event loop.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running
