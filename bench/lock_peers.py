"""Regenerate ``bench/jars.lock``: coordinates and SHA-256 of the peers' jars. It needs Maven, like lock_jars.py."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "scripts"))

from lock_jars import JarSet, resolve  # noqa: E402

FLINK = (
    "flink-clients",
    "flink-table-api-java-bridge",
    "flink-table-planner_2.12",
    "flink-table-runtime",
    "flink-json",
    "flink-connector-base",
)

SETS = {
    "kafka-streams": JarSet(
        roots=("org.apache.kafka:kafka-streams:4.3.1", "org.slf4j:slf4j-nop:1.7.36"),
        transitive=True,
    ),
    "flink": JarSet(
        roots=(
            *(f"org.apache.flink:{name}:2.2.1" for name in FLINK),
            "org.apache.flink:flink-sql-connector-kafka:4.0.1-2.0",
            "org.slf4j:slf4j-nop:1.7.36",
        ),
        transitive=True,
    ),
}


def main() -> int:
    maven = shutil.which("mvn")
    if maven is None:
        print("lock_peers: 'mvn' is not on the PATH; install Maven (it is needed only for this)", file=sys.stderr)
        return 1
    lock = {name: resolve(maven, jar_set) for name, jar_set in SETS.items()}
    (FOLDER / "jars.lock").write_text(json.dumps({"version": 1, "sets": lock}, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
