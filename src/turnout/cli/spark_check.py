"""What `check` says of Spark where its executors are on other machines: is the master there, and what do they need?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from turnout.config import SparkSettings

if TYPE_CHECKING:
    from turnout.cli.diagnosis import Finding

_SECONDS = 3.0


def look_at_spark(settings: SparkSettings, environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """A line on the cluster; none for a local master."""
    from turnout.cli.diagnosis import Finding
    from turnout.spark.cluster import address_toward, answers, is_local, python_of_workers
    from turnout.spark.packages import NEEDED

    if is_local(settings.master):
        return []
    if settings.master == "yarn" and not (environ.get("HADOOP_CONF_DIR") or environ.get("YARN_CONF_DIR")):
        hint = "set HADOOP_CONF_DIR to the folder with the cluster's core-site.xml and yarn-site.xml"
        return [Finding("spark", "fault", "spark.master is yarn, and nothing says where that is", hint)]
    if (trouble := answers(settings.master, _SECONDS)) is not None:
        hint = "start the master, or correct spark.master"
        return [Finding("spark", "fault", f"{settings.master} does not answer ({trouble})", hint)]
    address = settings.conf.get("spark.driver.host") or address_toward(settings.master) or "this host's name"
    packages = "packages are sent" if settings.ship_packages else f"packages must be there: {', '.join(NEEDED)}"
    needs = f"hosts of executors need Kafka, {address} and {python_of_workers(settings, environ)} ({packages})"
    return [Finding("spark", "ok", f"{settings.master}: {needs}")]
