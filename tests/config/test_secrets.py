"""Secrets from the environment, a file or a command: what is taken, and what is said when one cannot be had."""

import os
from pathlib import Path
from typing import Any

import pytest

from turnout.config import AccessSettings, Settings, parse, secrets
from turnout.errors import ConfigError
from turnout.serve.access import Tokens

SASL = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "u"}


def read(password: Any, folder: Path, **environ: str) -> Settings:
    return parse({"kafka": {"auth": {**SASL, "password": password}}}, folder, environ)


def password_of(settings: Settings) -> str:
    assert settings.kafka.auth is not None and settings.kafka.auth.password is not None
    return settings.kafka.auth.password.get_secret_value()


@pytest.mark.parametrize(
    "source",
    [
        "${PW}",
        {"env": "PW"},
        {"file": "pw"},
        {"file": "${FOLDER}/pw"},
        {"command": "cat pw"},
        {"command": ["printf", "%s", "s3 'cret\\"]},
    ],
)
def test_secret_comes_from_environment_file_or_command(tmp_path: Path, source: Any) -> None:
    (tmp_path / "pw").write_text("s3 'cret\\\n")
    assert password_of(read(source, tmp_path, PW="s3 'cret\\", FOLDER=str(tmp_path))) == "s3 'cret\\"


def test_secrets_of_properties_and_tokens_come_from_elsewhere_too(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("s3cret-of-sixteen-signs")
    document = {
        "kafka": {"properties": {"ssl.key.password": {"file": "pw"}}, "librdkafka_properties": {"x": {"env": "X"}}},
        "access": {"tokens": [{"name": "a", "role": "viewer", "token": {"file": "pw"}}]},
    }
    settings = parse(document, tmp_path, {"X": "y"})
    assert settings.kafka.properties == {"ssl.key.password": "s3cret-of-sixteen-signs"}
    assert settings.kafka.librdkafka_properties == {"x": "y"}
    (token,) = settings.access.tokens if settings.access else ()
    assert token.token is not None and token.token.get_secret_value() == "s3cret-of-sixteen-signs"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"env": "NONE"}, "the environment has no variable 'NONE'; set it"),
        ({"file": "none"}, "cannot be read (No such file or directory); give one that holds the secret"),
        ({"file": ""}, "file must be text, got ''; correct it"),
        ({"command": "no-such-program"}, "cannot be run (No such file or directory); correct it"),
        (
            {"command": ["sh", "-c", "echo hunter2 >&2; exit 3"]},
            "the command sh ended with exit code 3; run it",
        ),
        ({"command": "true"}, "the command true printed nothing; run it by hand"),
        ({"command": "'"}, "command must be a command line, or a list of a program and its arguments; correct it"),
        ({"vault": "x"}, "must be text, or one of {env: NAME}, {file: PATH}, {command: ...}; choose one of them"),
        ({"env": "A", "file": "b"}, "must be text, or one of {env: NAME}, {file: PATH}, {command: ...}"),
        ({}, "must be text, or one of {env: NAME}, {file: PATH}, {command: ...}"),
    ],
)
def test_secret_that_cannot_be_had_says_why_and_once(tmp_path: Path, source: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(source, tmp_path)
    (fault,) = caught.value.faults
    assert fault.startswith("kafka.auth.password: ")
    assert said in fault
    assert "hunter2" not in fault


def test_variables_that_hold_secrets_are_known(tmp_path: Path) -> None:
    document = {
        "kafka": {"bootstrap_servers": "${HOST}:1", "auth": {**SASL, "password": {"env": "A"}}},
        "access": {"tokens": [{"name": "a", "role": "viewer", "token": "x${B}-$${NOT}-and-some-more"}]},
        "control": {"kafka": {"auth": SASL}},
    }
    environ = {"HOST": "h", "A": "1", "B": "2", "TURNOUT_CONTROL__KAFKA__AUTH__PASSWORD": "3"}
    settings = parse(document, tmp_path, environ)
    assert settings.secret_variables == {"A", "B", "TURNOUT_CONTROL__KAFKA__AUTH__PASSWORD"}
    assert read("plain", tmp_path).secret_variables == frozenset()


def test_what_references_stand_for_is_hidden_and_short_settings_are_not(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("of-a-file-hunter2")
    properties = {"a.b": {"file": "pw"}, "c.d": "x-${VAULT}", "acks": "${ACKS}", "client.id": "plain-client"}
    settings = parse({"kafka": {"properties": properties}}, tmp_path, {"VAULT": "hunter2", "ACKS": "1"})
    assert secrets.hidden_texts(settings) == {"of-a-file-hunter2", "x-hunter2"}
    tree = {"a": ["of-a-file-hunter2!", 1, None], "b": {"c": "x-hunter2"}}
    assert secrets.hidden(tree, secrets.hidden_texts(settings)) == {"a": ["********!", 1, None], "b": {"c": "********"}}


def test_secret_file_is_a_small_regular_file_and_nothing_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "large").write_text("x" * (secrets.MOST_BYTES + 1))
    for file, why in (
        ("pipe", "not a regular file"),
        ("/dev/zero", "not a regular file"),
        ("folder", "Is a directory"),
        ("large", "more than 65,536 bytes"),
    ):
        with pytest.raises(ConfigError, match=why):
            read({"file": file}, tmp_path)
        token = {"name": "a", "role": "viewer", "token_file": tmp_path / file}
        access = AccessSettings.model_validate({"tokens": [token]})
        with pytest.raises(ConfigError, match=why):
            Tokens.read(access)
        assert secrets.secrets_of(access) == set()
