"""The how-to pages: every turnout.yaml for a secured Kafka is rendered for both Kafka clients, and holds no secret."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from code_blocks import SECRET, Block, blocks, configured
from turnout.config import KafkaSettings
from turnout.kafka.security import java_properties, librdkafka_properties, masked

FILES = [block for block in blocks("yaml") if block.run and block.page.startswith("docs/how-to/kafka-")]
FORMATS = [block for block in blocks("yaml") if block.page == "docs/how-to/formats.md"]


@pytest.mark.parametrize("block", FILES, ids=str)
def test_file_of_a_page_is_valid_and_rendered_for_both_clients(block: Block, tmp_path: Path) -> None:
    settings = configured(block, tmp_path)
    for kafka in (settings.kafka, settings.control_kafka):
        java = java_properties(kafka)
        assert java["security.protocol"] in ("SSL", "SASL_SSL")
        assert SECRET not in str(masked(java))
        assert SECRET not in str(masked(_librdkafka(kafka)))


def _librdkafka(kafka: KafkaSettings) -> dict[str, str]:
    # A trust store is opened by keytool, and the one here is none.
    auth = kafka.auth
    if auth is not None and auth.truststore_file is not None:
        kafka = kafka.model_copy(update={"auth": auth.model_copy(update={"truststore_file": None})})
    rendered = librdkafka_properties(kafka)
    assert rendered["security.protocol"] in ("SSL", "SASL_SSL")
    return rendered


@pytest.mark.parametrize("block", FILES, ids=str)
def test_page_has_placeholders_and_no_secret(block: Block) -> None:
    auth = yaml.safe_load(block.text)["kafka"].get("auth", {})
    for name, value in {**auth, **auth.get("oauth", {})}.items():
        if "password" in name or "secret" in name:
            assert isinstance(value, dict) or value.startswith("${"), name


@pytest.mark.parametrize("block", FORMATS, ids=["registry", "oauth", "files"])
def test_file_of_the_page_on_formats_is_valid(block: Block, tmp_path: Path) -> None:
    settings = configured(block, tmp_path)
    if "sources:" in block.text:
        assert any(source.format != "json" for source in settings.sources.values())
    assert SECRET not in repr(settings)
    assert settings.secret_variables == ({"REGISTRY_PASSWORD"} if settings.schema_registry else set())


def test_pages_are_all_there() -> None:
    wanted = ["kafka-confluent-cloud", "kafka-msk", "kafka-redpanda", "kafka-sasl", "kafka-strimzi"]
    assert sorted({Path(block.page).stem for block in FILES}) == wanted
