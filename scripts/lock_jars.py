"""Regenerate ``src/turnout/java/jars.lock``: coordinates and SHA-256 of every jar that Turnout fetches.

Edit ``SETS`` below, then run this script. It needs Maven to resolve dependencies; Turnout itself reads only the lock.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

LOCK = Path(__file__).resolve().parents[1] / "src" / "turnout" / "java" / "jars.lock"


@dataclass(frozen=True, slots=True)
class JarSet:
    roots: tuple[str, ...]
    transitive: bool


SETS = {
    # Not transitive: PySpark's jars folder already has all other dependencies of the connector.
    # The token provider is 4.0.0 because 4.2.0 is not published; its classes are binary compatible.
    "spark-kafka": JarSet(
        roots=(
            "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
            "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
            "org.apache.kafka:kafka-clients:3.9.2",
            "org.apache.commons:commons-pool2:2.13.1",
        ),
        transitive=False,
    ),
    # Kafka logs through slf4j 1.7; without its log4j binding the broker's log would be empty.
    "broker": JarSet(
        roots=(
            "org.apache.kafka:kafka_2.13:4.3.1",
            "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
            "org.apache.logging.log4j:log4j-core:2.25.4",
        ),
        transitive=True,
    ),
}


def main() -> int:
    maven = shutil.which("mvn")
    if maven is None:
        print("lock_jars: 'mvn' is not on the PATH; install Maven (it is needed only for this)", file=sys.stderr)
        return 1
    lock = {name: resolve(maven, jar_set) for name, jar_set in SETS.items()}
    text = json.dumps({"version": 1, "sets": lock}, indent=2) + "\n"
    LOCK.write_text(text, encoding="utf-8")
    for name, entries in lock.items():
        total = sum(int(entry["size"]) for entry in entries)
        print(f"{name}: {len(entries)} jars, {total / 1e6:.1f} MB")
    return 0


def resolve(maven: str, jar_set: JarSet) -> list[dict[str, str | int]]:
    with tempfile.TemporaryDirectory(prefix="turnout-lock-") as folder:
        pom = Path(folder) / "pom.xml"
        pom.write_text(pom_text(jar_set), encoding="utf-8")
        jars = Path(folder) / "jars"
        command = [
            maven, "--batch-mode", "--quiet", "--no-transfer-progress", "--file", str(pom),
            "dependency:copy-dependencies", "-DincludeScope=runtime",
            f"-DoutputDirectory={jars}", "-Dmdep.useRepositoryLayout=true",
        ]  # fmt: skip
        subprocess.run(command, check=True)
        return sorted((entry(jars, jar) for jar in jars.rglob("*.jar")), key=lambda e: str(e["coordinates"]))


def entry(root: Path, jar: Path) -> dict[str, str | int]:
    """Return the lock's entry for a jar in a folder with repository layout (group/as/path/artifact/version/file)."""
    *group, artifact, version, file = jar.relative_to(root).parts
    if file != f"{artifact}-{version}.jar":
        raise SystemExit(f"lock_jars: {file}: jars with a classifier are not supported by the lock")
    data = jar.read_bytes()
    return {
        "coordinates": f"{'.'.join(group)}:{artifact}:{version}",
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }


def pom_text(jar_set: JarSet) -> str:
    dependencies = "".join(dependency(root, jar_set.transitive) for root in jar_set.roots)
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>turnout</groupId><artifactId>lock</artifactId>"
        f"<version>1</version><dependencies>{dependencies}</dependencies></project>"
    )


def dependency(coordinates: str, transitive: bool) -> str:
    group, artifact, version = (escape(part) for part in coordinates.split(":"))
    everything = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    exclusions = "" if transitive else f"<exclusions>{everything}</exclusions>"
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{exclusions}</dependency>"
    )


if __name__ == "__main__":
    sys.exit(main())
