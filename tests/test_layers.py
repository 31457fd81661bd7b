"""How a run is divided: two workers have a session of Spark each, and files of one session are run by one worker."""

from __future__ import annotations

from layers import TESTS, spark_share


def test_files_that_take_a_session_of_spark_have_one_of_two() -> None:
    files = {path.name: path.read_text("utf-8") for path in (TESTS / "live").glob("test_*.py")}
    shares = {name: spark_share(f"tests/live/{name}") for name in files}
    assert len(set(shares.values()) - {None}) == 2
    assert {name for name, share in shares.items() if share} == {
        name for name, text in files.items() if "spark: SparkSession" in text
    }
    assert spark_share("tests/live/test_broker.py") is None
