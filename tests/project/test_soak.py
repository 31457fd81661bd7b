"""The soak's figures: parts after the warm-up, and what counts as flat. The soak itself is `make soak`."""

from __future__ import annotations

from pathlib import Path

from soak.report import MARKS, figures, write
from soak.sampling import Sample


def samples(*memory_mb: float) -> list[Sample]:
    """One every ten seconds, with no latency known."""
    return [Sample(10.0 * n, 1, value, 10.0, 100, 200, 50.0, None) for n, value in enumerate(memory_mb)]


def test_figures_compare_the_thirds_after_the_warm_up() -> None:
    memory, *_ = figures(samples(9999, 9999, 100, 110, 120, 500, 500, 500, 120, 130, 140), warm_up_seconds=20)
    assert (memory.first, memory.last) == (110, 130)
    assert memory.cells[3:] == ("1.18", "1.15")
    assert not memory.flat


def test_figures_compare_whole_rounds_of_faults() -> None:
    """A process that grows in each round and is killed at its end does not grow."""
    rounds = [100, 200, 300] * 7
    memory, *_ = figures(samples(*rounds, 100), warm_up_seconds=20, round_seconds=30)
    assert memory.ratio == 1


def test_figures_that_shrink_are_flat() -> None:
    assert all(figure.flat for figure in figures(samples(300, 200, 100), warm_up_seconds=0))


def test_figures_leave_out_what_was_never_measured() -> None:
    names = [figure.measure.name for figure in figures(samples(1, 1, 1), warm_up_seconds=0)]
    assert "threads" in names
    assert not any("latency" in name for name in names)
    assert figures([], warm_up_seconds=0) == []


def test_documentation_gets_the_figures_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{MARKS[0]}\nstale\n{MARKS[1]}\nafter\n")
    write(page, figures(samples(100, 100, 100), warm_up_seconds=0), ["3 minutes"])
    text = page.read_text()
    assert text.startswith(f"before\n{MARKS[0]}\n| measure |")
    assert text.endswith(f"- 3 minutes\n{MARKS[1]}\nafter\n")
    assert "stale" not in text


def test_guarantees_page_has_the_marks() -> None:
    page = (Path(__file__).parents[2] / "docs/topics/guarantees.md").read_text()
    assert [page.count(mark) for mark in MARKS] == [1, 1]
