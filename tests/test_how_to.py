"""The how-to pages: every turnout.yaml in them is one, and is rendered for both Kafka clients."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from turnout.config import KafkaSettings, parse
from turnout.config.document import parse_yaml
from turnout.kafka.security import java_properties, librdkafka_properties, masked

PAGES = sorted((Path(__file__).parent.parent / "docs" / "how-to").glob("kafka-*.md"))
PEM = "".join(f"-----BEGIN {kind}-----\nMIIB\n-----END {kind}-----\n" for kind in ("CERTIFICATE", "PRIVATE KEY"))
FILLED = [
    pytest.param(match[1], id=f"{page.stem}-{number}")
    for page in PAGES
    for number, match in enumerate(re.finditer(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL), 1)
]


def files(node: Any, folder: Path) -> Any:
    """The document with every file that it names put in a folder, and made."""
    if not isinstance(node, dict):
        return [files(item, folder) for item in node] if isinstance(node, list) else node
    made = {}
    for name, value in node.items():
        if (name.endswith("_file") or name == "file") and isinstance(value, str):
            place = folder / Path(value.strip("<>")).name
            # PKCS#12 begins so; no client reads it here.
            place.write_bytes(b"\x30\x82" if place.suffix == ".p12" else PEM.encode())
            made[name] = str(place)
        else:
            made[name] = files(value, folder)
    return made


@pytest.mark.parametrize("text", FILLED)
def test_file_of_a_page_is_valid_and_rendered_for_both_clients(text: str, tmp_path: Path) -> None:
    document, wrong = parse_yaml(re.sub(r"<([^>]*)>", lambda m: m[1].strip("/"), text))
    assert not wrong
    environ = dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "hunter2")
    settings = parse(files(document, tmp_path), tmp_path, environ)
    for kafka in (settings.kafka, settings.control_kafka):
        java = java_properties(kafka)
        assert java["security.protocol"] in ("SSL", "SASL_SSL")
        assert "hunter2" not in str(masked(java))
        assert "hunter2" not in str(masked(_librdkafka(kafka)))


def _librdkafka(kafka: KafkaSettings) -> dict[str, str]:
    # A trust store is opened by keytool, and the one here is none.
    auth = kafka.auth
    if auth is not None and auth.truststore_file is not None:
        kafka = kafka.model_copy(update={"auth": auth.model_copy(update={"truststore_file": None})})
    rendered = librdkafka_properties(kafka)
    assert rendered["security.protocol"] in ("SSL", "SASL_SSL")
    return rendered


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_has_placeholders_and_no_secret(page: Path) -> None:
    for match in re.finditer(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
        document = yaml.safe_load(match[1])
        auth = document["kafka"].get("auth", {})
        for name, value in {**auth, **auth.get("oauth", {})}.items():
            if "password" in name or "secret" in name:
                assert isinstance(value, dict) or value.startswith("${"), f"{page.name}: {name}"


FORMATS = PAGES[0].with_name("formats.md")


@pytest.mark.parametrize(
    "text", re.findall(r"```yaml\n(.*?)```", FORMATS.read_text(), re.DOTALL), ids=["registry", "files"]
)
def test_file_of_the_page_on_formats_is_valid(text: str, tmp_path: Path) -> None:
    document, wrong = parse_yaml(re.sub(r"<([^>]*)>", lambda m: m[1], text))
    assert not wrong
    settings = parse({"views": {}} | document, tmp_path, {"REGISTRY_PASSWORD": "hunter2"})
    assert any(source.format != "json" for source in settings.sources.values())
    assert "hunter2" not in repr(settings)
    assert settings.secret_variables == ({"REGISTRY_PASSWORD"} if settings.schema_registry else set())


def test_pages_are_all_there() -> None:
    wanted = ["kafka-confluent-cloud", "kafka-msk", "kafka-redpanda", "kafka-sasl", "kafka-strimzi"]
    assert [page.stem for page in PAGES] == wanted
