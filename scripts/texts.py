"""Print every text that users see, as `file:line text`, for a review of all texts: `make texts`.

In Python these are all string literals of two words or more: messages, hints, log lines, help and descriptions; and the
docstrings of commands, calls, tools of agents, settings and fields. Inserted values are printed as `{}`.
"""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ("src/turnout", "clients/python/src")
_WORDS = re.compile(r"[A-Za-z]{2,}\W* [^A-Za-z]*[A-Za-z{]|[{}] [a-z]{2,}")
_CODE = re.compile(
    r"\s*\(?(SELECT|CREATE|INSERT|DELETE|UPDATE|ALTER|DROP|FROM|WHERE|ORDER|GROUP|JOIN|LEFT|WITH|SET|BEGIN|COPY|ATTACH"
    r"|INSTALL|LOAD|PRAGMA|RETURNING|USING|ON|AND|OR|NOT|CAST|DESCRIBE|EXCEPT|UNION)\b"
)
_SHOWN_DECORATORS = re.compile(r"command|callback|\bCall\b")
_FIELD_FILES = re.compile(r"/(config|serve)/|messages\.py$")
_TOOL_FILES = re.compile(r"/agent_tools\.py$")
_TS_TEXT = re.compile(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`')
_LABEL = re.compile(r"[A-Z][a-z]+…?$")
_HTML_TEXT = re.compile(r'>([^<>]*[A-Za-z]{2,}[^<>]*)<|\b(?:title|placeholder|aria-label)="([^"]+)"')
_HTML_CODE = re.compile(r"<!--.*?-->|<(script|style)\b.*?</\1>", re.DOTALL)
_COMMENT = re.compile(r"(?:^|\s)# (.*)")

Found = Iterator[tuple[int, str]]


def main() -> None:
    for path in _files():
        text = path.read_text(encoding="utf-8")
        for line, found in sorted(_texts(path, text)):
            print(f"{path.relative_to(ROOT)}:{line} {' '.join(found.split())}")


def _files() -> Iterator[Path]:
    for folder in PYTHON:
        yield from sorted((ROOT / folder).rglob("*.py"))
    yield ROOT / "src/turnout/config/template.yaml"
    yield ROOT / "web/page/index.html"
    yield from sorted((ROOT / "web/page/src").rglob("*.ts"))


def _texts(path: Path, text: str) -> Found:
    kinds = {".py": _python, ".yaml": _yaml, ".html": _html, ".ts": _typescript}
    return kinds[path.suffix](text, path)


def _python(text: str, path: Path) -> Found:
    tree = ast.parse(text)
    hidden = {id(node) for node in _hidden(tree, path)}
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.JoinedStr):
            hidden |= {id(part) for part in node.values}
            found = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = node.value
        else:
            continue
        if _WORDS.search(found) and not _CODE.match(found):
            yield node.lineno, found


def _hidden(tree: ast.AST, path: Path) -> Iterator[ast.AST]:
    """Yield the docstrings that only readers of the code see."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        texts = [
            part.value for part in node.body if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)
        ]
        if isinstance(node, ast.ClassDef) and _FIELD_FILES.search(str(path)):
            yield from texts[: ast.get_docstring(node) is not None]
        elif not _is_shown(node, path):
            yield from texts


def _is_shown(node: ast.AST, path: Path) -> bool:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    if _TOOL_FILES.search(str(path)) and not node.name.startswith("_"):
        return True
    return any(_SHOWN_DECORATORS.search(ast.unparse(one)) for one in node.decorator_list)


def _yaml(text: str, path: Path) -> Found:
    for number, line in enumerate(text.splitlines(), 1):
        if found := _COMMENT.search(line):
            yield number, found[1]


def _html(text: str, path: Path) -> Found:
    plain = _HTML_CODE.sub(lambda found: "\n" * found[0].count("\n"), text)
    for found in _HTML_TEXT.finditer(plain):
        yield plain.count("\n", 0, found.start()) + 1, html.unescape(found[1] or found[2])


def _typescript(text: str, path: Path) -> Found:
    lines = [line.split("// ")[0] if line.lstrip().startswith("//") else line for line in text.splitlines()]
    plain = "\n".join(lines)
    for found in _TS_TEXT.finditer(plain):
        shown = re.sub(r"\$\{[^{}]*\}", "{}", found[1] or found[2] or "")
        if (_WORDS.search(shown) or _LABEL.match(shown)) and not shown.startswith((".", "#")):
            yield plain.count("\n", 0, found.start()) + 1, shown


if __name__ == "__main__":
    main()
