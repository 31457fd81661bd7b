"""What a release names: in its wheels all packages that they import, in its bill of materials all that is shipped.

And `turnout-client` works where nothing of the server is installed.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import runpy
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution, packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import turnout
import turnout_client
from http_server import application, serving, small_store

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"
OF_EXTRAS = {"protobuf", "grpcio-tools", "mcp", "mcp-types"}
PROJECT = ROOT / "clients" / "python"
MAX_INSTALLED_MEGABYTES = 80

SCRIPT = """
import json, sys
sys.path[:0] = sys.argv[2:]
import turnout_client
told = {}
with turnout_client.connect(sys.argv[1]) as client:
    told["rows"] = client.rows("users_ui", sort="userId").rows
    with client.table("users_ui").window(sort="userId") as windows:
        told["window"] = windows.get(60).rows
    try:
        client.table("users_ui").to_arrow()
    except turnout_client.TurnoutError as error:
        told["error"] = str(error)
told["modules"] = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps(told))
"""


COMMAND = """
import sys
sys.path[:0] = sys.argv[1:3]
del sys.argv[1:3]
from turnout_client.__main__ import main
main()
"""


def imported(source: str) -> set[str]:
    """The packages that a module imports, now or later."""
    names = [
        name
        for node in ast.walk(ast.parse(source))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    ]
    return {name.partition(".")[0] for name in names}


def test_wheel_asks_for_every_package_that_it_imports() -> None:
    packages = set.union(*(imported(path.read_text(encoding="utf-8")) for path in (ROOT / "src").rglob("*.py")))
    of_package = packages_distributions()
    # `google` is shared by many distributions; one that is known is enough.
    needed = {
        name: {found.lower().replace("_", "-") for found in of_package[name]}
        for name in packages - sys.stdlib_module_names - {"turnout", "turnout_client"}
    }
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    shipped = runpy.run_path(str(SCRIPTS / "audit.py"))["shipped_packages"](lock) | OF_EXTRAS
    assert {name for name, distributions in needed.items() if not distributions & shipped} == set()


def test_bill_has_what_is_shipped_by_its_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    bill = json.loads(runpy.run_path(str(SCRIPTS / "release.py"))["bill_of_materials"]("1.2.3"))
    assert (bill["metadata"]["component"]["name"], bill["metadata"]["component"]["version"]) == ("turnout", "1.2.3")
    packages = {component["purl"].rpartition("@")[0]: component for component in bill["components"]}
    assert {"pkg:pypi/pyspark", "pkg:pypi/idna", "pkg:npm/ag-grid-community"} <= packages.keys()
    assert not {"pkg:pypi/pytest", "pkg:npm/vite", "pkg:npm/%40turnout/client"} & packages.keys()
    clients = packages["pkg:maven/org.apache.kafka/kafka-clients"]
    assert [(known["alg"], len(known["content"])) for known in clients["hashes"]] == [("SHA-256", 64)]
    assert all(component["version"] for component in bill["components"])


# -- turnout-client


def project(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def with_dependencies(names: Iterable[str], known: dict[str, Distribution]) -> dict[str, Distribution]:
    """These packages and all that they need on this machine."""
    for name in names:
        if name not in known:
            known[name] = distribution(name)
            needed = map(Requirement, known[name].requires or ())
            with_dependencies((one.name for one in needed if not one.marker or one.marker.evaluate()), known)
    return known


def files_of(package: Distribution) -> list[Path]:
    return [Path(str(file.locate())) for file in package.files or () if ".." not in file.parts]


def only(names: Iterable[str], folder: Path) -> tuple[Path, list[Path]]:
    """A folder with these packages and what they need, and their files."""
    files = [file for package in with_dependencies(names, {}).values() for file in files_of(package)]
    site = Path(sysconfig.get_path("purelib"))
    folder.mkdir()
    for name in {file.relative_to(site).parts[0] for file in files}:
        (folder / name).symlink_to(site / name)
    return folder, files


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=PROJECT, check=True, capture_output=True)
    return next(tmp_path.glob("turnout_client-*.whl"))


def test_client_imports_only_what_its_package_names_and_nothing_of_the_server() -> None:
    described = project(PROJECT)
    extras = described["optional-dependencies"].values()
    named = {Requirement(one).name for one in [*described["dependencies"], *(one for extra in extras for one in extra)]}
    used = set.union(*(imported(path.read_text(encoding="utf-8")) for path in PROJECT.rglob("*.py")))
    # `mcp` brings what `cli` does.
    assert used - sys.stdlib_module_names - {"turnout_client"} == named - {"turnout-client"}
    assert {Requirement(one).name for one in described["dependencies"]} == {"httpx", "orjson", "pydantic", "websockets"}


def test_server_asks_for_the_client_of_its_version() -> None:
    server = project(ROOT)
    assert server["version"] == project(PROJECT)["version"]
    assert f"turnout-client[cli]=={server['version']}" in server["dependencies"]
    assert server["requires-python"] == project(PROJECT)["requires-python"]
    assert (PROJECT / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_all_packages_and_the_changelog_name_one_version() -> None:
    packages = [
        *ROOT.glob("clients/*/package.json"),
        ROOT / "web/page/package.json",
        *ROOT.glob("examples/*/package.json"),
    ]
    versions = {
        str(path.relative_to(ROOT)): json.loads(path.read_text(encoding="utf-8"))["version"] for path in packages
    }
    assert len(versions) == 6 and versions == dict.fromkeys(versions, turnout.__version__)
    released = re.findall(
        r"^## (\d\S*) - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert released[0] == turnout.__version__ == turnout_client.__version__ == project(ROOT)["version"]


def test_wheel_of_the_client_has_its_types_and_its_widgets(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {f"turnout_client/{name}" for name in ("py.typed", "widget.js", "widget.css")} <= names
    assert (ROOT / "src" / "turnout" / "py.typed").is_file()


def test_wheel_of_the_client_works_with_its_dependencies_alone(wheel: Path, tmp_path: Path) -> None:
    """No package of the server is there, and no Arrow: what needs that says so."""
    names = (Requirement(one).name for one in project(PROJECT)["dependencies"])
    alone, files = only(names, tmp_path / "packages")
    size = sum(file.stat().st_size for file in files if file.exists()) + wheel.stat().st_size
    assert size < MAX_INSTALLED_MEGABYTES << 20
    with small_store(tmp_path / "store") as database, serving(application(database)) as url:
        # Neither the environment's packages nor the variables that name others.
        command = [sys.executable, "-I", "-S", "-c", SCRIPT, url, str(wheel), str(alone)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["rows"] and told["window"] == told["rows"]
    assert told["error"].startswith("pyarrow is not installed; pip install 'turnout-client[arrow]'; rows() works")
    assert not {"turnout", "pyarrow", "numpy", "pyspark", "duckdb", "starlette"} & set(told["modules"])


def test_commands_of_the_client_work_with_its_dependencies_and_their_extra_alone(wheel: Path, tmp_path: Path) -> None:
    described = project(PROJECT)
    requirements = described["dependencies"], described["optional-dependencies"]["cli"]
    dependencies, extra = ([Requirement(one).name for one in some] for some in requirements)
    bare, _ = only(dependencies, tmp_path / "bare")
    alone, _ = only([*dependencies, *extra], tmp_path / "alone")

    def command(packages: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        whole = [sys.executable, "-I", "-S", "-c", COMMAND, str(wheel), str(packages), *arguments]
        return subprocess.run(whole, capture_output=True, text=True, cwd=tmp_path)

    without = command(bare, "--help")
    assert (without.returncode, without.stdout) == (1, "")
    assert re.fullmatch(r"error: .* pip install 'turnout-client\[cli\]'\n", without.stderr)
    shown = command(alone, "publish", "--help").stdout
    assert "turnout-client swap --review" in shown and "Example:  turnout-client publish" in shown
    with small_store(tmp_path / "store") as database, serving(application(database)) as url:
        tables = command(alone, "tables", "--json", "--url", url)
        assert {"users_ui", "swaps"} <= {table["name"] for table in json.loads(tables.stdout)["tables"]}
        assert "Ada" in command(alone, "rows", "users_ui", "--format", "csv", "--url", url).stdout
        assert "usersTopic" in command(alone, "status", "--url", url).stdout
        for needs, *arguments in (("arrow", "rows", "users_ui"), ("mcp", "mcp")):
            missing = command(alone, *arguments, "--url", url)
            assert (missing.returncode, f"pip install 'turnout-client[{needs}]'" in missing.stderr) == (1, True)


def test_each_public_name_of_the_client_says_what_it_is() -> None:
    undocumented = []
    for name in turnout_client.__all__:
        public = getattr(turnout_client, name)
        if not callable(public):
            continue
        members = {
            f"{name}.{member}": value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            for member, value in (vars(public) if inspect.isclass(public) else {}).items()
            if not member.startswith("_")
        }
        functions = {label: one for label, one in members.items() if inspect.isfunction(one)}
        undocumented += [label for label, one in {name: public, **functions}.items() if not inspect.getdoc(one)]
    assert undocumented == []


def test_completion_of_the_server_package_offers_connect() -> None:
    assert "connect" in dir(turnout)
    assert turnout.connect is turnout_client.connect


def test_wheel_requires_what_duckdb_imports_to_return_times() -> None:
    """DuckDB imports pytz when rows with a TIMESTAMPTZ are fetched; the environment of the tests has it in any case."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "pytz" in {Requirement(text).name for text in project["dependencies"]}
