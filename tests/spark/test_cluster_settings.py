"""What Spark gets where its executors are on other machines."""

from __future__ import annotations

import re
import socket
import sys
import tarfile
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pytest

from turnout.config import SparkSettings, parse
from turnout.config.document import parse_yaml
from turnout.preflight.findings import check_spark
from turnout.spark.jvm.cluster import (
    NEEDED,
    address_toward,
    answers,
    archive,
    carried,
    is_local,
    python_of_workers,
    reached_at,
    wanted,
)
from turnout.spark.views.runner import in_slices

JARS = [Path("/jars/a.jar"), Path("/jars/b.jar")]
CLUSTER = SparkSettings(master="spark://127.0.0.1:7077")


def test_masters_that_run_tasks_in_the_driver_are_local() -> None:
    assert all(map(is_local, ("local", "local[*]", "local[2]", "local[2,3]")))
    assert not any(map(is_local, ("local-cluster[2,1,1024]", "spark://localhost:7077", "yarn", "k8s://https://h:6443")))


def test_local_master_is_carried_nothing_and_stays_on_loopback() -> None:
    local = SparkSettings()
    assert carried(local, JARS) == {"spark.driver.extraClassPath": "/jars/a.jar:/jars/b.jar"}
    assert reached_at(local) == {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    assert python_of_workers(local, {}) == sys.executable


def test_cluster_is_carried_jars_and_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnout.spark.jvm.cluster.archive", lambda: Path("/cache/python.tar.gz"))
    assert carried(CLUSTER, JARS) == {
        "spark.driver.extraClassPath": "/jars/a.jar:/jars/b.jar",
        "spark.jars": "/jars/a.jar,/jars/b.jar",
        "spark.archives": "/cache/python.tar.gz#turnout-python",
        "spark.executorEnv.PYTHONPATH": "turnout-python",
    }
    unshipped = carried(CLUSTER.model_copy(update={"ship_packages": False}), JARS)
    assert unshipped.keys() == {"spark.driver.extraClassPath", "spark.jars"}


def test_executors_call_back_to_the_address_on_the_way_to_the_master() -> None:
    assert reached_at(CLUSTER)["spark.driver.host"] == "127.0.0.1"
    assert [address_toward(f"k8s://https://{host}") for host in ("127.0.0.1:6443", "127.0.0.1")] == ["127.0.0.1"] * 2
    assert address_toward("spark://[::1]:7077") in ("::1", None)  # where there is IPv6
    assert address_toward("spark://127.0.0.1:7077,other:7077") == "127.0.0.1"
    assert reached_at(SparkSettings(master="yarn")) == {}
    assert reached_at(SparkSettings(master=CLUSTER.master, conf={"spark.driver.host": "10.0.0.5"})) == {}


def test_python_of_workers_is_one_of_this_version_unless_it_is_named() -> None:
    assert python_of_workers(CLUSTER, {}) == f"python3.{sys.version_info.minor}"
    assert python_of_workers(CLUSTER, {"PYSPARK_PYTHON": "python3"}) == "python3"
    named = SparkSettings(master=CLUSTER.master, conf={"spark.pyspark.python": "/opt/python"})
    assert python_of_workers(named, {"PYSPARK_PYTHON": "python3"}) == "/opt/python"


def test_archive_of_packages_has_what_workers_import_and_little_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNOUT_CACHE", str(tmp_path))
    monkeypatch.setattr("turnout.spark.jvm.cluster.NEEDED", ("typing_extensions",))
    file = archive()
    assert archive() == file
    assert file.parent == tmp_path
    with tarfile.open(file) as written:
        assert "typing_extensions.py" in written.getnames()
    assert NEEDED == ("pyarrow", "numpy", "fastavro", "confluent-kafka")
    kept = ("pyarrow/__init__.py", "pyarrow/libarrow.so.2600", "numpy.libs/libopenblas.so", "numpy/_core/a.so")
    left = ("pyarrow/tests/a.py", "pyarrow/include/arrow/api.h", "pyarrow/libarrow_flight.so.2600", "../bin/f2py")
    assert all(wanted(PurePosixPath(name)) for name in kept)
    assert not any(wanted(PurePosixPath(name)) for name in left)


def test_check_says_what_executors_need_or_why_there_are_none() -> None:
    assert check_spark(SparkSettings()) == []
    with socket.create_server(("127.0.0.1", 0)) as server:
        master = f"spark://127.0.0.1:{server.getsockname()[1]}"
        [found] = check_spark(SparkSettings(master=master), {"PYSPARK_PYTHON": "python3"})
    needs = "hosts of executors need Kafka, 127.0.0.1 and python3 (packages are sent)"
    assert (found.level, found.text) == ("ok", f"{master}: {needs}")
    assert answers(f"spark://127.0.0.1:1,127.0.0.1:{master.rpartition(':')[2]}", 1.0) is not None
    [found] = check_spark(SparkSettings(master=master), {})
    assert (found.level, found.hint) == ("fault", "start the master, or correct spark.master")
    [found] = check_spark(SparkSettings(master="yarn"), {})
    assert (found.level, "HADOOP_CONF_DIR" in found.hint) == ("fault", True)


def test_shared_folder_is_relative_to_the_file_unless_it_is_a_url(tmp_path: Path) -> None:
    for given, located in (("shared", str(tmp_path / "shared")), ("s3a://bucket/turnout", "s3a://bucket/turnout")):
        assert parse({"spark": {"shared_dir": given}}, tmp_path, {}).spark.shared_dir == located


PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "cluster.md").read_text()


@pytest.mark.parametrize("text", re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
def test_file_of_the_page_on_clusters_is_valid(text: str, tmp_path: Path) -> None:
    document, wrong = parse_yaml(re.sub(r"<([^>]*)>", r"\1", text))
    assert not wrong
    environ = dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "hunter2-hunter2-hunter2")
    assert not is_local(parse(document, tmp_path, environ).spark.master)


def test_result_that_is_too_large_comes_in_slices_of_slices() -> None:
    rows, most, asked = list(range(100)), 12, []

    def run(condition: str) -> pa.Table | Exception:
        asked.append(condition)
        count, number = (int(part.strip("), ")) for part in condition.removeprefix("pmod(xxhash64(*)").split("="))
        # Slice 3 of 8 is larger than the others.
        found = [row for row in rows if row % count == number] * (3 if count == 8 and number == 3 else 1)
        return ValueError("whole") if len(found) > most + 2 else pa.table({"row": found})

    found = [row for part in in_slices(run, ValueError("whole")) for row in part["row"].to_pylist()]
    assert sorted(found) == rows
    assert len(asked) == 8 + 8

    with pytest.raises(ValueError, match="whole"):
        list(in_slices(lambda _: ValueError("part"), ValueError("whole")))
