"""Jars come once, whole, verified and in parallel, from whatever repository the environment names."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from turnout.errors import TurnoutError
from turnout.java import jars
from turnout.java.jars import Jar
from turnout.local.broker import free_port
from turnout.testing import patience


class Repository(ThreadingHTTPServer):
    """A Maven repository on loopback that remembers what was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.cut_once: int | None = None
        self.together: threading.Barrier | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/maven"

    def add(self, artifact: str, content: bytes) -> Jar:
        jar = Jar("org.example", artifact, "1.0", len(content), hashlib.sha256(content).hexdigest())
        self.files[f"/maven/{jar.path}"] = content
        return jar


class Handler(BaseHTTPRequestHandler):
    server: Repository

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        if self.server.together is not None:
            self.server.together.wait(patience())
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        cut, self.server.cut_once = self.server.cut_once, None
        self.wfile.write(content[:cut])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    with Repository() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setenv(jars.MIRROR_VARIABLE, server.address + "/")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield server
        server.shutdown()
        thread.join()


def test_fetch_downloads_in_parallel_and_keeps_the_order(repository: Repository, tmp_path: Path) -> None:
    wanted = [repository.add(f"lib{n}", bytes([n]) * (1000 + n)) for n in range(jars.PARALLEL)]
    repository.together = threading.Barrier(jars.PARALLEL)  # no answer before all have asked
    files = jars.fetch(wanted, tmp_path)
    assert [file.name for file in files] == [jar.file_name for jar in wanted]
    assert [file.read_bytes()[0] for file in files] == list(range(jars.PARALLEL))
    assert not list(tmp_path.rglob("*.part"))


def test_fetch_of_cached_jars_asks_nothing(repository: Repository, tmp_path: Path) -> None:
    jar = repository.add("lib", b"content")
    first = jars.fetch([jar], tmp_path)
    repository.requests.clear()
    assert jars.fetch([jar], tmp_path) == first
    assert repository.requests == []


def test_fetch_starts_over_after_a_broken_connection(repository: Repository, tmp_path: Path) -> None:
    repository.cut_once = 400
    jar = repository.add("lib", b"0123456789" * 100)
    [file] = jars.fetch([jar], tmp_path)
    assert file.read_bytes() == b"0123456789" * 100
    assert len(repository.requests) == 2


def test_fetch_replaces_a_part_that_a_killed_process_left(repository: Repository, tmp_path: Path) -> None:
    jar = repository.add("lib", b"0123456789" * 100)
    part = tmp_path / f"{jar.path}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"garbage")
    [file] = jars.fetch([jar], tmp_path)
    assert file.read_bytes() == b"0123456789" * 100
    assert not part.exists()


@pytest.mark.parametrize("served", [b"other content", b"longer than what the lock says"])
def test_fetch_refuses_a_file_with_another_hash(repository: Repository, tmp_path: Path, served: bytes) -> None:
    jar = repository.add("lib", b"right content")
    repository.files[f"/maven/{jar.path}"] = served
    with pytest.raises(TurnoutError) as caught:
        jars.fetch([jar], tmp_path)
    assert caught.value.code == "jar_mismatch"
    assert "lib-1.0.jar" in str(caught.value)
    assert not list(tmp_path.rglob("lib-1.0.jar*"))


def test_fetch_says_where_a_jar_is_missing(repository: Repository, tmp_path: Path) -> None:
    with pytest.raises(TurnoutError) as caught:
        jars.fetch([Jar("org.example", "absent", "1.0", 1, "0" * 64)], tmp_path)
    assert caught.value.code == "jar_refused"
    assert f"{repository.address} answered 404 Not Found for org/example/absent" in str(caught.value)
    assert jars.MIRROR_VARIABLE in caught.value.hint


def test_fetch_offline_is_one_line_with_a_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(jars.MIRROR_VARIABLE, f"http://user:secret@127.0.0.1:{free_port()}/maven")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(TurnoutError) as caught:
        jars.fetch([Jar("org.example", "lib", "1.0", 1, "0" * 64)], tmp_path)
    text = str(caught.value)
    assert text.startswith("cannot fetch lib-1.0.jar from http://127.0.0.1:")
    assert jars.MIRROR_VARIABLE in text
    assert "secret" not in text
    assert "\n" not in text


def test_fetch_replaces_a_truncated_cached_file(repository: Repository, tmp_path: Path) -> None:
    jar = repository.add("lib", b"content")
    [file] = jars.fetch([jar], tmp_path)
    file.write_bytes(b"cont")
    assert jars.fetch([jar], tmp_path)[0].read_bytes() == b"content"


def test_fetch_replaces_a_cached_file_of_the_same_size(repository: Repository, tmp_path: Path) -> None:
    jar = repository.add("lib", b"0123456789")
    [file] = jars.fetch([jar], tmp_path)
    file.write_bytes(b"9876543210")
    assert jars.fetch([jar], tmp_path)[0].read_bytes() == b"0123456789"


def test_cached_file_is_hashed_once_for_a_process_unless_it_changes(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = repository.add("lib", b"0123456789")
    [file] = jars.fetch([jar], tmp_path)
    hashed: list[Path] = []
    original = jars._sha256

    def counted(one: Path) -> str:
        hashed.append(one)
        return original(one)

    monkeypatch.setattr(jars, "_sha256", counted)
    for _ in range(3):
        jars.fetch([jar], tmp_path)
    assert hashed == [file]
    file.touch()
    jars.fetch([jar], tmp_path)
    assert hashed == [file, file]


def test_fetch_by_two_processes_downloads_once(repository: Repository, tmp_path: Path) -> None:
    jar = repository.add("lib", b"x" * 100_000)
    program = "import sys, pathlib; from turnout.java import jars\n"
    program += f"jars.fetch([jars.{jar!r}], pathlib.Path(sys.argv[1]))"
    started = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path)]) for _ in range(2)]
    assert [process.wait(patience()) for process in started] == [0, 0]
    assert len(repository.requests) == 1


def test_fetch_prints_one_line_without_a_terminal(
    repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jars.fetch([repository.add("lib", b"content")], tmp_path, progress=False)
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"Fetching 1 jar (0.0 MB) from {repository.address}\n"


def test_fetch_shows_a_bar_on_a_terminal(
    repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jars.fetch([repository.add("lib", b"content")], tmp_path, progress=True)
    assert "Fetching 1 jar" in capsys.readouterr().err


def test_fetch_into_a_folder_that_cannot_be_made_names_the_variable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TurnoutError, match=jars.CACHE_VARIABLE):
        jars.fetch([Jar("g", "a", "1", 1, "0" * 64)], tmp_path / "file" / "jars")


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(jars.CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jars.cache_folder() == tmp_path / "turnout" / "jars"
    monkeypatch.setenv(jars.CACHE_VARIABLE, str(tmp_path / "own"))
    assert jars.cache_folder() == tmp_path / "own" / "jars"


def test_repository_is_maven_central_unless_a_mirror_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(jars.MIRROR_VARIABLE, raising=False)
    assert jars.repository() == jars.MAVEN
    monkeypatch.setenv(jars.MIRROR_VARIABLE, "https://mirror.example/maven/")
    assert jars.repository() == "https://mirror.example/maven"


def test_lock_names_jars_by_coordinates_and_hash_only() -> None:
    sets = jars.read_lock()
    assert set(sets) == {"spark-kafka", "broker"}
    assert all(len(jar.sha256) == 64 and jar.size > 0 for jars_of_set in sets.values() for jar in jars_of_set)
    assert {jar.artifact for jar in sets["spark-kafka"]} == {
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
        "kafka-clients",
        "commons-pool2",
    }
