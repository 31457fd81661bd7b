"""The code blocks of the documentation, with their positions and marks.

A mark is an HTML comment in the line above a block. `<!-- not run: REASON -->` excludes it from tests; the others
(`file:`, `stays, until:`, `fails`) control how the tutorial is run.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnout.config import Settings, parse
from turnout.config.document import parse_yaml

ROOT = Path(__file__).resolve().parents[2]
FOUND = ("*.md", "bench/*.md", "tests/*.md", "docs/**/*.md", "clients/*/README.md", "examples/*/README.md")
NOT_RUN = "not run: "
SECRET = "hunter2-hunter2-hunter2"
"""The value that replaces a secret in a code block."""
_PEM = "".join(f"-----BEGIN {kind}-----\nMIIB\n-----END {kind}-----\n" for kind in ("CERTIFICATE", "PRIVATE KEY"))
_BLOCK = re.compile(
    r"^(?: *<!-- (?P<mark>[^\n]*) -->\n)?(?P<indent> *)```(?P<language>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_COMMAND = re.compile(r"^\$ (?P<command>(?:.*\\\n)*.*)\n?(?P<told>(?:(?!\$ ).*\n?)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    page: str
    line: int
    language: str
    mark: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def run(self) -> bool:
        return not self.mark.startswith(NOT_RUN)


def blocks(*languages: str) -> list[Block]:
    """Return all blocks of these languages, or of all languages if none is named, also blocks marked as not run."""
    found = [block for page in _pages() for block in _blocks(page)]
    return [block for block in found if block.language in languages] if languages else found


def _pages() -> list[Path]:
    return sorted({page for pattern in FOUND for page in ROOT.glob(pattern) if "node_modules" not in page.parts})


def _blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("language")) + 1
        inside = textwrap.dedent(found["text"])
        yield Block(str(page.relative_to(ROOT)), line, found["language"], found["mark"] or "", inside)


def commands(block: Block) -> list[tuple[str, str]]:
    """Return the commands of a block with their expected output: after `$ ` in a console, each line of a script."""
    if block.language == "console":
        return [(found["command"].replace("\\\n", ""), found["told"]) for found in _COMMAND.finditer(block.text)]
    lines = block.text.replace("\\\n", "").splitlines()
    return [(line, "") for line in lines if line.strip()]


def words(command: str) -> list[list[str]]:
    """Return the words of each program that a line calls: `cd a && npm ci` calls two."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    programs: list[list[str]] = [[]]
    for word in lexer:
        if re.fullmatch("[|&;]+", word):
            programs.append([])
        else:
            programs[-1].append(word)
    return [program for program in programs if program]


def configured(block: Block, folder: Path) -> Settings:
    """Parse a configuration file or a part of one, with the placeholders `<...>` filled in."""
    document, wrong = parse_yaml(re.sub(r"<([^>\n]*)>", lambda found: found[1].strip("/"), block.text))
    assert not wrong
    return parse(_with_files(document, folder), folder, dict.fromkeys(re.findall(r"\$\{(\w+)\}", block.text), SECRET))


def _with_files(node: Any, folder: Path) -> Any:
    """Create every file that a document names in a folder, and return the document with the new paths."""
    if not isinstance(node, dict):
        return [_with_files(item, folder) for item in node] if isinstance(node, list) else node
    made = {}
    for name, value in node.items():
        if (name.endswith("_file") or name == "file") and isinstance(value, str):
            place = folder / Path(value).name
            # The first bytes of a PKCS#12 file; no client reads it here.
            secret = SECRET if name in ("file", "token_file") else _PEM
            place.write_bytes(b"\x30\x82" if place.suffix == ".p12" else secret.encode())
            made[name] = str(place)
        else:
            made[name] = _with_files(value, folder)
    return made


# -- TypeScript and templates as modules of one project

_COMPONENT = """import {{ Component, inject, signal }} from '@angular/core';
import {{ Turnout, TurnoutSwap }} from '@turnout/angular';
import {{ TurnoutTable }} from '@turnout/angular/ag-grid';
import {{ AgGridAngular }} from 'ag-grid-angular';

@Component({{ selector: 'app-part', imports: [{imports}], template: `{template}` }})
export class Part {{
  readonly turnout = inject(Turnout);
  readonly used = [signal, TurnoutSwap, TurnoutTable, AgGridAngular];
{members}
}}
"""
_EXPRESSION = """import {{ inject }} from '@angular/core';
import {{ provideTurnout }} from '@turnout/angular';

abstract class Session {{
  abstract token(): string;
}}
export const part = {text};
"""
_STATEMENTS = """import {{ connect }} from "@turnout/client";

const client = connect();
{text}
"""


def module(block: Block) -> str:
    """Return a block as a TypeScript module; a part of a class, a value or statements get the missing context."""
    text = block.text.strip()
    if block.language == "html":
        return _COMPONENT.format(imports="AgGridAngular, TurnoutTable", template=text, members="")
    if text.startswith("readonly "):
        return _COMPONENT.format(imports="", template="", members=textwrap.indent(text, "  "))
    if text.startswith("provideTurnout("):
        return _EXPRESSION.format(text=text)
    return text + "\n" if text.startswith("import ") else _STATEMENTS.format(text=text)
