"""Key and trust stores and PEM files, opened by `keytool` and `openssl` for the client that cannot open them itself."""

import functools
import re
import shutil
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
    why = "it holds no certificate"
    try:
        done = subprocess.run(command, input=password.encode(), capture_output=True, timeout=_SECONDS, check=True)
        if found := pem_blocks(done.stdout.decode(errors="replace"), "CERTIFICATE"):
            return "\n".join(found)
    except subprocess.CalledProcessError:
        why = "keytool cannot open it"
    except (OSError, subprocess.TimeoutExpired) as error:
        why = f"{keytool} did not run ({type(error).__name__})"
    hint = "check the file and truststore_password, or give the authority as PEM with ca_file"
    raise bad_file(f"truststore_file {file}: {why}", hint)


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
    done = subprocess.run(command, input=given.encode(), capture_output=True, check=False, timeout=_SECONDS)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise TurnoutError(
            code="openssl_failed",
            message=f"openssl {arguments[0]} failed ({''.join(last)})",
            hint="check the files that it was given, and their passwords",
            status=500,
        )
    return done.stdout.decode(errors="replace")


def pem_blocks(text: str, label: str) -> list[str]:
    """The blocks of a PEM text that have this label."""
    return re.findall(rf"-----BEGIN {label}-----.*?-----END {label}-----", text, re.DOTALL)


def unreadable(setting: str, file: Path, error: OSError) -> TurnoutError:
    """The error for a file of `auth` that cannot be read."""
    hint = "correct the path in kafka.auth, or the rights of the file"
    return bad_file(f"{setting} {file} cannot be read ({error.strerror})", hint)


def bad_file(message: str, hint: str) -> TurnoutError:
    """The error for a file of `auth` that cannot be used."""
    return TurnoutError(code="bad_config", message=message, hint=hint)
