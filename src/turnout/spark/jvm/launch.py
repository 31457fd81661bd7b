"""Spark's home, and the command that starts its JVM.

Spark's home is a folder of links in the cache, to the jars of the PySpark that is installed. All environments with the
same PySpark share it, so that one archive of classes fits them all. PySpark's own home has its Python code once more,
in a zip that each worker would compile at its start; here workers import the installed code, which is compiled already.

Turnout starts the JVM itself. Spark's launcher is another JVM that only puts the command together, and it asks for a
module that small runtimes do not have (`jdk.incubator.vector`). A Spark that `SPARK_HOME` names is started by its
launcher: its `conf/spark-env.sh` may say more.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Mapping
from pathlib import Path

import pyspark

from turnout.java.jars import cached_file, writing
from turnout.java.runtime import find_java

HOME_VARIABLE = "SPARK_HOME"
_NAME = f"spark-{pyspark.__version__}-*"
_JARS = "jars"

_OPENED = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs",
    "sun.security.action", "sun.util.calendar",
)  # fmt: skip
_JAVA_OPTIONS = (
    # Some of these options are not known to every version of Java.
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
"""The options of Spark's launcher (`JavaModuleOptions` of Spark 4.2), without the module."""

_CLASSPATH_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")


def find_home() -> Path:
    """Find Spark's home: the one that the environment names, else that of links, else PySpark's own."""
    named = os.environ.get(HOME_VARIABLE)
    if named:
        return Path(named)
    installed = Path(pyspark.__file__).parent
    try:
        return _linked_home(installed)
    except OSError:  # no links can be made
        return installed


def _linked_home(installed: Path) -> Path:
    files = sorted(file for file in (installed / _JARS).iterdir() if file.is_file())
    home = cached_file(_NAME, (f"{file.name} {file.stat().st_size}" for file in files))
    try:
        if not home.exists():
            with writing(home, "spark-*") as part:
                (part / _JARS).mkdir(parents=True)
                for file in files:
                    (part / _JARS / file.name).hardlink_to(file)
    except OSError:
        # Another process may have been earlier: its home is as good.
        if not home.exists():
            raise
    with contextlib.suppress(OSError):  # it may be another user's, for us to read
        os.utime(home)
    return home


def java_command(home: Path, settings: Mapping[str, str]) -> list[str]:
    """The program that takes the arguments of `spark-submit`, for these properties of Spark."""
    launcher = home / "bin" / "spark-submit"
    if launcher.exists() and home != Path(pyspark.__file__).parent:
        return [str(launcher)]
    conf = os.environ.get("SPARK_CONF_DIR") or str(home / "conf")
    classpath = [settings.get("spark.driver.extraClassPath", ""), conf, str(home / _JARS / "*")]
    classpath += [os.environ.get(name, "") for name in _CLASSPATH_VARIABLES]
    libraries = settings.get("spark.driver.extraLibraryPath")
    return [
        str(find_java()),
        *("-cp", os.pathsep.join(filter(None, classpath))),
        f"-Xmx{settings['spark.driver.memory']}",
        *([f"-Djava.library.path={libraries}"] if libraries else []),
        *_JAVA_OPTIONS,
        *shlex.split(os.environ.get("SPARK_SUBMIT_OPTS", "")),
        *shlex.split(settings.get("spark.driver.extraJavaOptions", "")),
        "org.apache.spark.deploy.SparkSubmit",
    ]
