"""The command that starts Spark's JVM.

Spark's launcher is another JVM that only puts this command together, and it asks for a module that small runtimes do
not have (`jdk.incubator.vector`). So Turnout starts the JVM itself. A Spark that `SPARK_HOME` names is started by its
launcher: its `conf/spark-env.sh` may say more.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

import pyspark

from turnout.java.runtime import find_java

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
"""What Spark's launcher gives (`JavaModuleOptions` of Spark 4.2), without the module."""

_CLASSPATH_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")


def java_command(home: Path, settings: Mapping[str, str]) -> list[str]:
    """The program that takes the arguments of `spark-submit`, for these properties of Spark."""
    launcher = home / "bin" / "spark-submit"
    if launcher.exists() and home != Path(pyspark.__file__).parent:
        return [str(launcher)]
    conf = os.environ.get("SPARK_CONF_DIR") or str(home / "conf")
    classpath = [settings.get("spark.driver.extraClassPath", ""), conf, str(home / "jars" / "*")]
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
