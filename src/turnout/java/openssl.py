"""The `openssl` command: how certificates are made, and keys are opened that Java cannot open."""

from __future__ import annotations

import shutil
import subprocess

from turnout.errors import TurnoutError


def openssl(*arguments: object, given: str = "") -> str:
    """What a command of openssl prints; `given` goes to its standard input, since arguments can be looked at."""
    program = shutil.which("openssl")
    if program is None:
        raise TurnoutError(
            code="openssl_missing",
            message="the command 'openssl' is needed, and is not on the PATH",
            hint="install it (Debian, Ubuntu: apt-get install openssl)",
            status=500,
        )
    command = [program, *map(str, arguments)]
    done = subprocess.run(command, input=given.encode(), capture_output=True, check=False, timeout=60)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise TurnoutError(
            code="openssl_failed",
            message=f"openssl {arguments[0]} failed ({''.join(last)})",
            hint="check the files that it was given, and their passwords",
            status=500,
        )
    return done.stdout.decode(errors="replace")
