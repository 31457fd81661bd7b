"""Write the files that `Containerfile` copies to `dist/image/`: the wheels, and the lock of the packages they need.

`make image` builds the wheels first.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from audit import shipped_packages

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = frozenset({"protobuf", "grpcio-tools", "grpcio", "setuptools"})
"""The packages for sources with `format: protobuf`, because the image supports every format."""


def image_lock() -> str:
    """Return the entries of the locks that an image needs, with their hashes: Python packages and Java."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    shipped = shipped_packages(lock) | EXTRAS
    packages = re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE | re.IGNORECASE)
    kept = [package for package in packages if package.split("==")[0].lower() in shipped]
    return "".join([*kept, (ROOT / "requirements-java.lock").read_text(encoding="utf-8")])


def main() -> None:
    folder = ROOT / "dist" / "image"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for wheel in (ROOT / "dist").glob("turnout*.whl"):
        shutil.copy(wheel, folder)
    (folder / "requirements.lock").write_text(image_lock(), encoding="utf-8")


if __name__ == "__main__":
    main()
