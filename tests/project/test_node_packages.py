"""Packages of a Node lock: installed once for all clones with the same lock, and by npm where that cannot be."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
install = runpy.run_path(str(ROOT / "scripts" / "node_packages.py"))["install"]
# Does what `npm ci` does, and tells how often.
NPM = (
    sys.executable,
    "-c",
    "from pathlib import Path; made = Path('node_modules/a'); made.mkdir(parents=True);"
    "(made / 'index.js').write_text('a');"
    "Path('node_modules/.package-lock.json').write_text('{}'); Path('node_modules/b').symlink_to('a');"
    "Path('asked').open('a').write('x')",
)


def clone(folder: Path, lock: str = "{}", packed: bytes = b"1") -> Path:
    web = folder / "web"
    (web / "client").mkdir(parents=True)
    (web / "package-lock.json").write_text(lock)
    (web / "client" / "package.json").write_text("{}")
    (web / "packed.tgz").write_bytes(packed)
    package = {"workspaces": ["client"], "dependencies": {"a": "file:packed.tgz", "b": "^1"}}
    (web / "package.json").write_text(json.dumps(package))
    return web


def test_second_clone_gets_links_to_what_the_first_has_installed(tmp_path: Path) -> None:
    first, second = clone(tmp_path / "1"), clone(tmp_path / "2")
    for web in (first, second, second):
        install(web, tmp_path / "kept", NPM)
        assert (web / "node_modules" / "b" / "index.js").read_text() == "a"
    assert (first / "asked").read_text() == "x"
    assert not (second / "asked").exists()
    assert [path.name for path in second.glob("node_modules*")] == ["node_modules"]
    # What npm writes into is no link: it would change for all.
    (second / "node_modules" / ".package-lock.json").write_text("changed")
    assert (first / "node_modules" / ".package-lock.json").read_text() == "{}"


@pytest.mark.parametrize("other", [{"lock": "[]"}, {"packed": b"2"}], ids=["lock", "packed file"])
def test_other_lock_or_packed_file_is_installed_anew(tmp_path: Path, other: dict[str, str]) -> None:
    install(clone(tmp_path / "1"), tmp_path / "kept", NPM)
    web = clone(tmp_path / "2", **other)  # type: ignore[arg-type]
    install(web, tmp_path / "kept", NPM)
    assert (web / "asked").read_text() == "x"


def test_npm_does_it_where_nothing_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("no folder")
    web = clone(tmp_path / "1")
    install(web, tmp_path / "kept", NPM)
    assert (web / "node_modules" / "a" / "index.js").exists()


def test_lock_with_packages_of_a_workspace_is_installed_by_npm_each_time(tmp_path: Path) -> None:
    for name in ("1", "2"):
        web = clone(tmp_path / name)
        (web / "client" / "node_modules" / "c").mkdir(parents=True)
        install(web, tmp_path / "kept", NPM)
        assert (web / "asked").read_text() == "x"
