"""What a release names: in the wheel all packages that it imports, in its bill of materials all that is shipped."""

from __future__ import annotations

import ast
import json
import runpy
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = ROOT / "scripts"
OF_EXTRAS = {"pandas", "polars", "protobuf", "grpcio-tools"}


def imported(source: str) -> set[str]:
    """The packages that a module imports, now or later."""
    names = [
        name
        for node in ast.walk(ast.parse(source))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    ]
    return {name.partition(".")[0] for name in names}


def test_wheel_asks_for_every_package_that_it_imports() -> None:
    packages = set.union(*(imported(path.read_text(encoding="utf-8")) for path in (ROOT / "src").rglob("*.py")))
    of_package = packages_distributions()
    # `google` is shared by many distributions; one that is known is enough.
    needed = {
        name: {found.lower().replace("_", "-") for found in of_package[name]}
        for name in packages - sys.stdlib_module_names - {"turnout"}
    }
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    shipped = runpy.run_path(str(SCRIPTS / "audit.py"))["shipped_packages"](lock) | OF_EXTRAS
    assert {name for name, distributions in needed.items() if not distributions & shipped} == set()


def test_bill_has_what_is_shipped_by_its_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    bill = json.loads(runpy.run_path(str(SCRIPTS / "release.py"))["bill_of_materials"]("1.2.3"))
    assert (bill["metadata"]["component"]["name"], bill["metadata"]["component"]["version"]) == ("turnout", "1.2.3")
    packages = {component["purl"].rpartition("@")[0]: component for component in bill["components"]}
    assert {"pkg:pypi/pyspark", "pkg:pypi/idna", "pkg:npm/ag-grid-community"} <= packages.keys()
    assert not {"pkg:pypi/pytest", "pkg:npm/vite", "pkg:npm/%40turnout/client"} & packages.keys()
    clients = packages["pkg:maven/org.apache.kafka/kafka-clients"]
    assert [(known["alg"], len(known["content"])) for known in clients["hashes"]] == [("SHA-256", 64)]
    assert all(component["version"] for component in bill["components"])
