"""A test that waits for nothing is ended; one that computes, or that others keep from it, is not."""

from __future__ import annotations

import signal
import threading

import pytest

from hang_watch import Look, Watch
from turnout.testing import patience


@pytest.mark.parametrize(
    ("test", "used", "idle", "still"),
    [
        pytest.param("one", 0.1, 9.0, True, id="waits"),
        pytest.param("one", 4.5, 5.0, False, id="computes"),
        pytest.param("one", 0.1, 0.2, False, id="others compute"),
        pytest.param("two", 0.1, 9.0, False, id="another one"),
    ],
)
def test_stillness_is_time_that_a_test_could_have_used(test: str, used: float, idle: float, still: bool) -> None:
    before = Look("one", 100, 1000)
    assert Look(test, 100 + used, 1000 + idle).is_still_since(before, 5) == still


def test_nothing_is_still_where_no_test_runs() -> None:
    assert not Look("", 0, 100).is_still_since(Look("", 0, 0), 5)


def test_wait_for_what_cannot_come_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Look, "is_still_since", lambda *_: True)
    watch = Watch(limit_seconds=0.2, look_seconds=0.1)
    watch.test = "this one"
    before = signal.signal(signal.SIGUSR2, watch.interrupt)
    try:
        watch.start()
        with pytest.raises(TimeoutError, match=r"^nothing has happened for 0.2 s"):
            threading.Event().wait(patience())
    finally:
        watch.test = ""
        watch.end()
        signal.signal(signal.SIGUSR2, before)
