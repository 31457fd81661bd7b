"""Broker plugins for tests, compiled with Janino, which is part of Spark, so that no JDK is needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnout.java.jars import resolve
from turnout.spark.jvm.java_client import JavaClient

SOURCES = Path(__file__).parent / "java"


def compiled(client: JavaClient, name: str, folder: Path) -> Path:
    """Compile the class `name`, and return its folder for the class path."""
    folder.mkdir(parents=True, exist_ok=True)
    jvm: Any = client.jvm
    compiler = jvm.org.codehaus.janino.CompilerFactory().newCompiler()
    compiler.setClassPath(_files(jvm, [path for path in resolve("broker") if path.name.startswith("kafka-clients")]))
    compiler.setDestinationDirectory(jvm.java.io.File(str(folder)), False)
    compiler.compile(_files(jvm, [SOURCES / f"{name}.java"]))
    assert (folder / f"{name}.class").exists()
    return folder


def _files(jvm: Any, paths: Sequence[Path]) -> Any:
    array = jvm.java.lang.reflect.Array
    files = array.newInstance(jvm.java.lang.Class.forName("java.io.File"), len(paths))
    for place, path in enumerate(paths):
        array.set(files, place, jvm.java.io.File(str(path)))
    return files
