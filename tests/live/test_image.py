"""The container image, built and run by buildah on a base made of Debian's packages: no registry of images is asked.

`make test-long` has it. As an ordinary user, with everything in place that Kubernetes gives: a volume and a file.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from child_processes import ending_with_us
from namespaces import not_run
from turnout.local.broker import EmbeddedBroker, free_port
from turnout.testing import create_topic, patience, produce, wait_until

ROOT = Path(__file__).parents[2]
TOKEN = "0123456789abcdef0123456789abcdef"
USER = "10001:10001"
TAG = "localhost/turnout:tested"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


class Images:
    """A storage of images of its own, and one container of the image of Turnout in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.builder = ["buildah", "--root", str(folder / "storage"), "--runroot", str(folder / "run")]

    def call(self, *arguments: str) -> str:
        done = subprocess.run([*self.builder, *arguments], capture_output=True, text=True, **ending_with_us())
        assert done.returncode == 0, done.stderr
        return str(done.stdout.strip())

    def make_base(self) -> str:
        """An image with Debian, Python and the certificates of this machine."""
        archive, name = self._folder / "base.tar", "localhost/base"
        packages = "--include=python3,python3-venv,ca-certificates"
        suite = re.search(r"VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text())
        assert suite is not None
        command = ["mmdebstrap", "--quiet", "--variant=minbase", packages, suite[1], str(archive)]
        subprocess.run(command, check=True, **ending_with_us())
        container = self.call("from", "scratch")
        self.call("add", "--quiet", container, str(archive), "/")
        for file in filter(os.path.exists, (CERTIFICATES, "/etc/pip.conf")):
            self.call("copy", "--quiet", container, file, file)
        self.call("config", "--env", f"SSL_CERT_FILE={CERTIFICATES}", container)
        self.call("commit", "--quiet", container, name)
        self.call("rm", container)
        return name

    def unmount(self) -> None:
        """Let go of the folder that buildah has mounted onto itself, so that it can be removed."""
        subprocess.run(["umount", str(self._folder / "storage" / "overlay")], capture_output=True)

    @contextmanager
    def running(self, options: Sequence[str], *command: str) -> Iterator[Path]:
        """Run a command in the container as an ordinary user; gives its log. At the end it has stopped."""
        log = self._folder / f"{command[0]}.log"
        with log.open("wb") as output:
            arguments = ["run", "--user", USER, *options, "turnout", "--", "turnout", *command]
            process = subprocess.Popen([*self.builder, *arguments], stdout=output, stderr=output, **ending_with_us())
        try:
            yield log
            assert process.poll() is None, log.read_text()
        finally:
            turnout = next(one for one in psutil.Process(process.pid).children(recursive=True) if _is_turnout(one))
            assert turnout.uids().real == int(USER.split(":")[0])
            turnout.send_signal(signal.SIGTERM)
            process.wait(patience())


def _is_turnout(process: psutil.Process) -> bool:
    """Whether it is the command itself: not what buildah starts around it, nor its own processes."""
    command = process.cmdline()
    return command[1:2] == ["/opt/turnout/bin/turnout"] and "python" in command[0]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    missing = [name for name in ("buildah", "mmdebstrap") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        not_run(f"an image is built by root with buildah and mmdebstrap ({', '.join(missing) or 'not root'})")
    os.environ["BUILDAH_ISOLATION"] = "chroot"
    made = Images(tmp_path_factory.mktemp("images"))
    base = made.make_base()
    variables = [f"BUILDER={' '.join(made.builder)}", f"BASE={base}", f"IMAGE={TAG}"]
    subprocess.run(["make", "image", *variables], cwd=ROOT, check=True, **ending_with_us())
    made.call("from", "--name", "turnout", TAG)
    yield made
    made.call("rm", "turnout")
    made.call("rmi", "--all", "--force")
    made.unmount()


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A folder of the user of the image; those above it can be passed."""
    made = tmp_path / "volume"
    made.mkdir()
    os.chown(made, *map(int, USER.split(":")))
    for above in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        above.chmod(above.stat().st_mode | 0o011)  # nothing is taken away: one may be /tmp itself
    return made


def rows(url: str, table: str) -> list[dict[str, Any]]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    answer = httpx.get(f"{url}/api/tables/{table}/rows", params={"sort": "userId"}, headers=headers, timeout=patience())
    answer.raise_for_status()
    found: list[dict[str, Any]] = answer.json()["rows"]
    return found


def wait_ready(url: str, log: Path) -> None:
    def answers(path: str) -> bool:
        try:
            return httpx.get(url + path, timeout=patience()).status_code == 200
        except httpx.HTTPError:
            return False

    wait_until(lambda: answers("/healthz") and answers("/readyz"), interval=0.5, what=f"readiness: {log.read_text()}")


def test_demo_runs_in_the_image(images: Images, volume: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with images.running(["-v", f"{volume}:/data"], "demo", "--port", str(port), "--data", "/data/demo") as log:
        wait_ready(url, log)
        assert rows(url, "final_ui")
    assert (volume / "demo").is_dir()
    assert "Archiving Java classes" not in log.read_text(), "the image has the archives, and they fit"


def test_run_shows_the_same_rows_when_it_is_started_again_on_its_volume(images: Images, volume: Path) -> None:
    broker = EmbeddedBroker(volume.parent / "kafka", free_port())
    broker.start()
    try:
        users = [{"userId": f"u{number}", "name": "Ada", "email": None, "age": number} for number in range(50)]
        for topic in ("users", "accounts", "control"):
            create_topic(broker.bootstrap_servers, topic)
        produce(broker.bootstrap_servers, "users", users)
        settings = volume.parent / "config"
        settings.mkdir()
        document = {
            "kafka": {"bootstrap_servers": broker.bootstrap_servers},
            "start": "earliest",
            "access": {"tokens": [{"name": "ops", "role": "operator", "token": "${OPS_TOKEN}"}]},
        }
        (settings / "turnout.yaml").write_text(yaml.safe_dump(document))
        port = free_port()
        given = {"OPS_TOKEN": TOKEN, "TURNOUT_SERVER__PORT": str(port)}
        options = ["-v", f"{volume}:/data", "-v", f"{settings}:/etc/turnout:ro"]
        options += [part for name, value in given.items() for part in ("--env", f"{name}={value}")]
        url, shown = f"http://127.0.0.1:{port}", []
        for _ in range(2):
            with images.running(options, "run", "-c", "/etc/turnout/turnout.yaml") as log:
                wait_ready(url, log)
                wait_until(lambda: len(rows(url, "users_ui")) == len(users), what="the rows")
                shown.append(rows(url, "users_ui"))
                with pytest.raises(httpx.HTTPStatusError, match="401"):
                    httpx.get(f"{url}/api/status", timeout=patience()).raise_for_status()
                page = httpx.get(url, timeout=patience()).text
                assert "<html" in page
        assert shown[0] == shown[1]
        assert {row["userId"] for row in shown[0]} == {user["userId"] for user in users}
        assert (volume / "turnout").stat().st_mode & 0o777 == 0o700
    finally:
        broker.stop()
