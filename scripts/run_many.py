"""Run the tests many times, optionally under CPU load, and list every test that failed at least once.

`run_many.py --times 10 --load 2 --folder FOLDER COMMAND...`: the command is pytest with its options. The output of each
run and of each failed test is written to the folder.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(1_000_000): pass\n"
"""A program that uses one core until its parent ends."""


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    with ExitStack() as ends:
        for _ in range(count):
            loop = ends.enter_context(subprocess.Popen([sys.executable, "-c", BUSY]))
            ends.callback(loop.kill)
        yield


def run_once(command: Sequence[str], folder: Path, name: str) -> tuple[str, dict[str, str]]:
    """Run the command once; return the last line of its output, and the failed tests with their output."""
    report, log = folder / f"{name}.xml", folder / f"{name}.log"
    with log.open("wb") as output:
        done = subprocess.run([*command, f"--junit-xml={report}"], stdout=output, stderr=output, check=False)
    lines = log.read_text(errors="replace").strip().splitlines()
    said = lines[-1].strip("= ") if lines else f"no output, exit code {done.returncode}"
    failed = failures(report) if report.exists() else {}
    if done.returncode and not failed:
        failed = {f"the run itself (exit code {done.returncode})": "\n".join(lines[-200:])}
    return said, failed


def failures(report: Path) -> dict[str, str]:
    """Return the failed tests of a pytest report, with their output."""
    found = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        wrong = [part for part in case if part.tag in ("failure", "error")]
        if wrong:
            said = [f"{part.get('message') or ''}\n{part.text or ''}" for part in wrong]
            said += [part.text or "" for part in case if part.tag.startswith("system-")]
            found[f"{case.get('classname')}::{case.get('name')}"] = "\n".join(said)
    return found


def run_many(command: Sequence[str], folder: Path, times: int) -> dict[str, list[Path]]:
    """Run the command several times; return for each failed test a file for each failure."""
    ever: defaultdict[str, list[Path]] = defaultdict(list)
    for number in range(1, times + 1):
        began = time.monotonic()
        said, failed = run_once(command, folder, f"run-{number}")
        print(f"run {number} of {times}: {time.monotonic() - began:.0f} s, {said}", flush=True)
        for test, output in failed.items():
            file = folder / f"run-{number}-{re.sub(r'[^A-Za-z0-9_.]+', '-', test)[-120:]}.txt"
            file.write_text(output)
            ever[test].append(file)
    return ever


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--load", type=int, default=0, help="number of busy loops that run meanwhile")
    parser.add_argument("--folder", type=Path, required=True, help="folder for the outputs, which get a new subfolder")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args(arguments)
    folder = asked.folder / time.strftime("%Y-%m-%d-%H%M%S")
    folder.mkdir(parents=True)
    with busy_loops(asked.load):
        ever = run_many(asked.command, folder, asked.times)
    for test, files in sorted(ever.items(), key=lambda one: (-len(one[1]), one[0])):
        print(f"{len(files):3} of {asked.times}  {test}")
        for file in files:
            print(f"           {file}")
    print(f"{len(ever)} tests failed at least once in {asked.times} runs; outputs: {folder}")
    return 1 if ever else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
