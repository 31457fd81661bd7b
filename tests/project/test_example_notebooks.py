"""The example notebook: its cells are those of the page about it. `live/test_demo.py` runs them in a real kernel."""

from __future__ import annotations

import json
import re
from pathlib import Path

from jupyter_kernel import code_cells

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "notebook" / "live-tables.ipynb"


def test_notebook_has_the_cells_of_its_page() -> None:
    page = (ROOT / "docs" / "how-to" / "notebook.md").read_text(encoding="utf-8")
    assert code_cells(NOTEBOOK) == re.findall(r"```python\n(.*?)\n```", page, re.DOTALL)


def test_notebook_has_no_outputs() -> None:
    """They would be of one machine, and of one day."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert [cell["outputs"] for cell in cells if cell.get("outputs")] == []
