"""Only the user of the process reads what Turnout keeps: rows, offsets, logs and checkpoints."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from turnout.config.settings import SparkSettings

log = logging.getLogger("turnout")

_OTHERS = 0o077


def keep_private(data_dir: Path, spark: SparkSettings) -> None:
    """`data_dir` is 700 and its files are 600, those that DuckDB and the JVM will make too."""
    if spark.shared_dir is None or "://" in spark.shared_dir:
        os.umask(_OTHERS)  # a folder that hosts of a cluster share is read there by other users
    data_dir.mkdir(parents=True, exist_ok=True)
    try:
        _close(data_dir)
        for folder, folders, files in os.walk(data_dir):
            for name in (*folders, *files):
                _close(Path(folder) / name)
    except OSError as error:
        # A volume that belongs to another user, say: it is for its owner to protect.
        log.warning(
            "the rights of data_dir cannot be set (%s): make sure that no other user can read %s", error, data_dir
        )


def _close(path: Path) -> None:
    if path.is_symlink():
        return
    mode = path.stat().st_mode
    if mode & _OTHERS:
        path.chmod(mode & ~_OTHERS & 0o7777)
