"""The token of a server's user: nobody else can read it, and it is found by the configuration file."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

from turnout.config import sent

NOBODY = 65534


def test_token_is_new_at_each_start_and_for_its_user_alone(tmp_path: Path) -> None:
    before = sent.make_local_token(tmp_path)
    assert sent.make_local_token(tmp_path) != before and len(before) > 40
    file = tmp_path / sent.TOKEN_FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and [*tmp_path.iterdir()] == [file]
    if os.geteuid() == 0:  # then it can be tried as another user
        read = subprocess.run(["cat", str(file)], user=NOBODY, capture_output=True, check=False)
        assert read.returncode != 0 and read.stdout == b""


def test_token_is_found_by_the_data_folder_of_a_file(tmp_path: Path) -> None:
    for name in ("turnout-data", "other"):
        (tmp_path / name).mkdir()
    default, other = sent.make_local_token(tmp_path / "turnout-data"), sent.make_local_token(tmp_path / "other")
    file = tmp_path / "turnout.yaml"
    for text, environ, token in (
        ("{}", {}, default),
        ("data_dir: other", {}, other),
        (f"data_dir: {tmp_path}/other", {}, other),
        ("data_dir: '${D}'\nsources: '${NOT_SET}'", {"D": "other"}, other),
        ("data_dir: none", {"TURNOUT_DATA_DIR": "other", "TURNOUT_UNKNOWN": "x"}, other),
        ("data_dir: none", {}, None),
        ("data_dir: '${D}'", {}, None),
        ("data_dir: [", {}, None),
        ("data_dir: [a]", {}, None),
    ):
        file.write_text(text)
        assert sent.find_local_token(file, environ) == token, text
    assert sent.find_local_token(tmp_path / "none.yaml", {}) is None
