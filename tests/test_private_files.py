"""What Turnout keeps is for its own user alone, and what it hides from its log is everything that is secret."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnout.config import Settings
from turnout.config.secrets import hidden_texts
from turnout.config.settings import SparkSettings
from turnout.service import keep_private
from turnout.store.database import Database


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def rights(path: Path) -> str:
    return oct(path.stat().st_mode & 0o777)


def test_new_data_dir_and_its_files_are_private(tmp_path: Path) -> None:
    data = tmp_path / "above" / "data"
    keep_private(data, SparkSettings())
    Database.open(data).close()
    (data / "spark").mkdir()
    assert (rights(data), rights(data / "store.duckdb"), rights(data / "spark")) == ("0o700", "0o600", "0o700")


def test_data_dir_of_an_older_version_becomes_private(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "spark" / "checkpoint").mkdir(parents=True)
    log, program = data / "spark" / "checkpoint" / "0", data / "run.sh"
    for file in (log, program):
        file.write_text("x")
    program.chmod(0o755)
    outside = tmp_path / "outside"
    outside.write_text("x")
    (data / "link").symlink_to(outside)
    keep_private(data, SparkSettings())
    assert [rights(path) for path in (data, log.parent, log, program)] == ["0o700", "0o700", "0o600", "0o700"]
    assert rights(outside) == "0o644"


def test_folder_that_a_cluster_shares_stays_readable_there(tmp_path: Path) -> None:
    keep_private(tmp_path / "data", SparkSettings(shared_dir=str(tmp_path)))
    (tmp_path / "rows").touch()
    assert (rights(tmp_path / "data"), rights(tmp_path / "rows")) == ("0o700", "0o644")


def test_every_secret_is_hidden_from_the_log(tmp_path: Path) -> None:
    (tmp_path / "wall.txt").write_text("token-of-the-wall\n")
    auth = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "u", "password": "kafka-secret"}
    oauth = {"token_endpoint": "https://id.example/token", "client_id": "c", "client_secret": "oauth-secret"}
    settings = Settings.model_validate(
        {
            "kafka": {"auth": auth, "properties": {"ssl.key.password": "property-secret", "client.id": "turnout"}},
            "control": {"kafka": {"auth": auth | {"password": "control-secret"}}},
            "schema_registry": {"url": "https://r.example", "auth": {"username": "u", "password": "p", "oauth": oauth}},
            "access": {
                "tokens": [
                    {"name": "ops", "role": "operator", "token": "token-of-ops-000000"},
                    {"name": "wall", "role": "viewer", "token_file": tmp_path / "wall.txt"},
                    {"name": "gone", "role": "viewer", "token_file": tmp_path / "gone.txt"},
                ],
                "oidc": {
                    "issuer": "https://id.example",
                    "client_id": "me",
                    "client_secret": "login secret",
                    "roles": {"viewer": "all"},
                },
            },
            "spark": {"conf": {"spark.hadoop.fs.azure.account.key.x": "azure-secret", "spark.app.name": "turnout"}},
        }
    )
    sent = [base64.b64encode(text).decode() for text in (b"u:p", b"c:oauth-secret", b"me:login%20secret")]
    assert hidden_texts(settings) == {
        *("kafka-secret", "property-secret", "control-secret", "p", "oauth-secret", "azure-secret", "login secret"),
        *("token-of-the-wall", "token-of-ops-000000", *sent),
    }
