"""Write the additional files of a release to `dist/`: a software bill of materials, the site, and checksums.

`make release` builds the packages first. The bill (CycloneDX) lists everything that is shipped or fetched: Python
packages and jars by their locks, and the packages that the page is built from.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from audit import shipped_packages

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
SITE = ROOT / "src/turnout/serve/site"


def bill_of_materials(version: str) -> str:
    itself = Component(name="turnout", version=version, type=ComponentType.APPLICATION, bom_ref="turnout")
    bom = Bom(components=[_client(version), *_python_packages(), *_jars(), *_page_packages()])
    bom.metadata.component = itself
    bom.register_dependency(itself, bom.components)
    return JsonV1Dot6(bom).output_as_string(indent=1)


def _client(version: str) -> Component:
    return _library(PackageURL("pypi", None, "turnout-client", version))


def _python_packages() -> Iterator[Component]:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    shipped = shipped_packages(lock)
    for name, version in re.findall(r"^([\w.-]+)==([\w.+!-]+)", lock, re.MULTILINE):
        if name.lower() in shipped:
            yield _library(PackageURL("pypi", None, name, version))


def _jars() -> Iterator[Component]:
    sets = json.loads((ROOT / "src/turnout/java/jars.lock").read_text(encoding="utf-8"))["sets"]
    jars = {jar["coordinates"]: jar["sha256"] for of_set in sets.values() for jar in of_set}
    for coordinates, sha256 in jars.items():
        group, name, version = coordinates.split(":")[:3]
        yield _library(PackageURL("maven", group, name, version), HashType(alg=HashAlgorithm.SHA_256, content=sha256))


def _page_packages() -> Iterator[Component]:
    packages = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    for path, package in packages.items():
        scope, _, name = path.rpartition("node_modules/")[2].rpartition("/")
        if path.startswith("node_modules/") and not (package.get("dev") or package.get("link")):
            yield _library(PackageURL("npm", scope or None, name, package["version"]))


def _library(purl: PackageURL, *hashes: HashType) -> Component:
    return Component(
        name=purl.name, group=purl.namespace, version=purl.version, purl=purl, bom_ref=purl.to_string(), hashes=hashes
    )


def main() -> int:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    (DIST / f"turnout-{version}.cdx.json").write_text(bill_of_materials(version), encoding="utf-8")
    with tarfile.open(DIST / f"turnout-docs-{version}.tar.gz", "w:gz") as archive:
        archive.add(SITE, f"turnout-docs-{version}")
    files = sorted(file for file in DIST.iterdir() if file.is_file() and file.name != "SHA256SUMS")
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (DIST / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    for file in files:
        print(f"{file.stat().st_size:>12,}  dist/{file.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
