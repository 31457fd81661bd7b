"""The wire of live subscriptions: its words are fixed, and the reference tells all of them."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from turnout_client.messages import CloseCode, client_message, server_message

REFERENCE = (Path(__file__).parents[2] / "docs/reference/live.md").read_text()


def kinds(schema: dict[str, Any]) -> set[str]:
    return set(schema["discriminator"]["mapping"])


def test_messages_have_the_types_that_clients_know() -> None:
    assert kinds(client_message.json_schema()) == {
        "window",
        "changes",
        "summary",
        "difference",
        "sql",
        "status",
        "unsubscribe",
    }
    assert kinds(server_message.json_schema()) == {
        "hello",
        "rows",
        "summary",
        "difference",
        "current",
        "snapshot",
        "changes",
        "status",
        "error",
    }


def test_close_codes_are_fixed() -> None:
    assert {code.name: code.value for code in CloseCode} == {
        "TOO_LARGE": 1009,
        "STOPPING": 1012,
        "SIGNED_OUT": 4401,
        "SLOW": 4408,
        "TOO_MANY_MESSAGES": 4429,
    }


@pytest.mark.parametrize("adapter", [client_message, server_message])
def test_reference_tells_every_type_and_field(adapter: Any) -> None:
    schema = adapter.json_schema()
    models = [schema["$defs"][name.rpartition("/")[2]] for name in schema["discriminator"]["mapping"].values()]
    for model in models:
        for field, shape in model["properties"].items():
            assert f"`{field}`" in REFERENCE or f'"{field}"' in REFERENCE, (model["title"], field)
            for word in [shape["const"]] if "const" in shape else shape.get("enum", []):
                assert f"`{word}`" in REFERENCE or f'"{word}"' in REFERENCE, (model["title"], word)


@pytest.mark.parametrize("code", CloseCode)
def test_reference_tells_every_close_code(code: CloseCode) -> None:
    assert f"| {code.value} |" in REFERENCE


def test_message_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValidationError, match="sql"):
        client_message.validate_python({"type": "window", "id": "1", "table": "users_ui", "sql": "DROP TABLE x"})
