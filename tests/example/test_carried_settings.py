"""Settings of one file for another: everything but sources and views, and no secret in plain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from turnout.config import parse
from turnout.example.by_example import carried

HERE, THERE = Path("/etc/turnout"), Path("/srv/turnout")
AUTH: dict[str, Any] = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "ann", "ca_file": "ca.pem"}


def test_secret_in_plain_becomes_a_variable() -> None:
    document = {
        "kafka": {
            "auth": {**AUTH, "password": "hush-hush"},
            "properties": {"client.id": "me", "ssl.key.password": "psst"},
        },
        "access": {"tokens": [{"name": "ops", "role": "operator", "token": "a-very-long-token-of-mine"}]},
        "spark": {"conf": {"spark.ui.enabled": "false", "fs.s3a.secret.key": "sesame"}},
    }
    found, variables = carried(document, HERE, HERE)
    for secret in ("hush", "psst", "very-long", "sesame"):
        assert secret not in str(found)
    assert found["kafka"]["auth"] == {**AUTH, "password": "${KAFKA_AUTH_PASSWORD}"}
    assert found["kafka"]["properties"]["client.id"] == "me"
    assert found["spark"]["conf"]["spark.ui.enabled"] == "false"
    assert set(variables) == {
        *("KAFKA_AUTH_PASSWORD", "KAFKA_PROPERTIES_SSL_KEY_PASSWORD", "ACCESS_TOKENS_0_TOKEN"),
        "SPARK_CONF_FS_S3A_SECRET_KEY",
    }
    assert parse(found, HERE, dict.fromkeys(variables, "a-very-long-token-of-mine")).kafka.auth is not None


def test_secret_by_reference_stays_one() -> None:
    for password in ("${KAFKA_PASSWORD}", {"env": "KAFKA_PASSWORD"}, {"command": "pass kafka"}):
        found, variables = carried({"kafka": {"auth": {**AUTH, "password": password}}}, HERE, HERE)
        assert (found["kafka"]["auth"]["password"], variables) == (password, [])


def test_text_around_a_variable_is_no_reference() -> None:
    for password in ("hush${X}", "hush$${X}"):
        found, _ = carried({"kafka": {"auth": {**AUTH, "password": password}}}, HERE, HERE)
        assert "hush" not in str(found)


def test_paths_are_right_in_another_folder() -> None:
    document = {"kafka": {"auth": {**AUTH, "password": {"file": "password"}}}, "data_dir": "/data"}
    found, _ = carried(document, HERE, THERE)
    auth = found["kafka"]["auth"]
    assert (auth["ca_file"], auth["password"]) == ("/etc/turnout/ca.pem", {"file": "/etc/turnout/password"})
    assert found["data_dir"] == "/data"
    assert carried(document, HERE, HERE)[0] == document


def test_sources_and_views_stay_behind() -> None:
    document = {"kafka": {}, "sources": {"x": 1}, "views": {"y": 1}, "start": "latest", "log": {"format": "json"}}
    assert carried(document, HERE, HERE)[0] == {"kafka": {}, "log": {"format": "json"}}
