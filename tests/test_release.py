"""The bill of materials of a release: what is shipped or fetched is in it, what only builds and tests is not."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent.parent / "scripts"


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
