"""The samples of `GET /metrics`, by name and labels."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient


def samples(client: TestClient) -> dict[tuple[str, str], float]:
    """Return the value of each sample by its name and the values of its labels."""
    answer = client.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(answer.text)
    found = [sample for family in families for sample in family.samples]
    return {(sample.name, ",".join(sample.labels.values())): sample.value for sample in found}
