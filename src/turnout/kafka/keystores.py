"""Java's key and trust stores, for the client that is not Java: which kind one is, and what a trust store trusts."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

from turnout.errors import TurnoutError
from turnout.java.runtime import find_java

_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_SECONDS = 60


def is_jks(file: Path) -> bool:
    """Whether a store is in Java's own format, and not PKCS#12."""
    try:
        with file.open("rb") as opened:
            return opened.read(4) == _JKS_MAGIC
    except OSError as error:
        raise unreadable("store", file, error) from None


def trusted_certificates(file: Path, password: str) -> str:
    """The certificates of a trust store as PEM, by Java's keytool."""
    try:
        changed = file.stat().st_mtime_ns
    except OSError as error:
        raise unreadable("truststore_file", file, error) from None
    return _exported(file, password, changed)


@functools.lru_cache(maxsize=8)
def _exported(file: Path, password: str, changed: int) -> str:
    keytool = find_java().resolve().with_name("keytool")
    # The password comes by standard input: arguments and environments can be looked at.
    command = [str(keytool), "-list", "-rfc", "-keystore", str(file), "-storepass:file", "/dev/stdin"]
    try:
        done = subprocess.run(command, input=password.encode(), capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _bad(file, f"{keytool} did not run ({type(error).__name__})") from None
    if done.returncode:
        raise _bad(file, "keytool cannot open it")
    text = done.stdout.decode(errors="replace")
    blocks = text.split("-----BEGIN CERTIFICATE-----")[1:]
    if not blocks:
        raise _bad(file, "it holds no certificate")
    ends = [block.split("-----END CERTIFICATE-----")[0] for block in blocks]
    return "\n".join(f"-----BEGIN CERTIFICATE-----{body}-----END CERTIFICATE-----" for body in ends)


def _bad(file: Path, why: str) -> TurnoutError:
    return TurnoutError(
        code="bad_config",
        message=f"truststore_file {file}: {why}",
        hint="check the file and truststore_password, or give the authority as PEM with ca_file",
        status=500,
    )


def unreadable(setting: str, file: Path, error: OSError) -> TurnoutError:
    """The error for a file of `auth` that cannot be read."""
    return TurnoutError(
        code="bad_config",
        message=f"{setting} {file} cannot be read ({error.strerror})",
        hint="correct the path in kafka.auth, or the rights of the file",
        status=500,
    )
