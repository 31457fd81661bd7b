"""The tutorial, step by step, as it is written."""

from __future__ import annotations

from pathlib import Path

from lengths import LONG
from tutorial_steps import follow


def test_all_steps_of_the_tutorial_work_as_written(tmp_path: Path) -> None:
    assert follow(tmp_path, shell=LONG) > 10
