"""A schema registry by Confluent's REST interface, which Apicurio, Karapace and Redpanda speak too: schemas by id.

It reads; only sinks of Avro records register a schema. A registry that does not answer, or lets nobody in, is an error
and never an absent schema.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from turnout.config.auth import OAuthSettings, RegistryAuthSettings, RegistrySettings, trusting
from turnout.config.secrets import masked
from turnout.errors import TurnoutError

TIMEOUT_SECONDS = 10.0
MOST_REFERENCES = 200
"""Schemas that one refers to, directly or not."""
_MOST_BYTES = 8_000_000
"""Bytes of an answer: a schema has a few thousand."""
_LARGEST_ID = (1 << 31) - 1
# Codes of the interface: there is no such subject, version or schema. Another 404 comes from a wrong url.
_ABSENT = frozenset({40401, 40402, 40403})
_TOKEN_SPARE_SECONDS = 10.0
# What Confluent Cloud wants beside a token; the names are those of the SASL extensions for its brokers.
_HEADERS = {"logicalCluster": "target-sr-cluster", "identityPoolId": "Confluent-Identity-Pool-Id"}


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema, and those that it refers to, by the names that it has for them."""

    kind: str
    text: str
    references: tuple[tuple[str, RegisteredSchema], ...] = ()
    missing: str | None = None
    """A schema that it refers to and that the registry does not have."""

    def all(self) -> Iterator[tuple[str, RegisteredSchema]]:
        """List the schemas that it refers to, directly or not, each once, after those that it refers to itself."""
        found: dict[tuple[str, int], RegisteredSchema] = {}

        def add(schema: RegisteredSchema) -> None:
            for name, one in schema.references:
                if (name, id(one)) not in found:
                    add(one)
                    found[name, id(one)] = one

        add(self)
        return ((name, schema) for (name, _), schema in found.items())


class SchemaRegistry:
    """One registry; any thread may ask."""

    def __init__(self, settings: RegistrySettings) -> None:
        self.url = settings.url
        self._auth = settings.auth or RegistryAuthSettings()
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None
        self._token, self._token_ends = "", 0.0

    def schema(self, number: int) -> RegisteredSchema | None:
        """The schema of an id; None where the registry has none. TurnoutError where it cannot say."""
        return self._schema(f"/schemas/ids/{number}") if number <= _LARGEST_ID else None

    def register(self, subject: str, schema: str) -> int:
        """Register an Avro schema under a subject and return its id; TurnoutError where that is refused."""
        path = f"/subjects/{quote(subject, safe='')}/versions"
        answer = self._call("POST", path, {"schema": schema, "schemaType": "AVRO"})
        if not isinstance(answer, dict) or not isinstance(answer.get("id"), int):
            raise self._unusable(f"gave no id for the schema of subject {subject!r}")
        return int(answer["id"])

    def reach(self) -> int:
        """Count the subjects; TurnoutError where the registry cannot be used."""
        return len(self._call("GET", "/subjects") or ())

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _schema(self, path: str, known: dict[str, RegisteredSchema | None] | None = None) -> RegisteredSchema | None:
        """The schema at a path; `known` has those that were asked for on the way, None for one that is absent."""
        known = {} if known is None else known
        answer = self._call("GET", path)
        if answer is None:
            return None
        try:
            references = [
                (str(one["name"]), f"/subjects/{quote(str(one['subject']), safe='')}/versions/{int(one['version'])}")
                for one in answer.get("references") or ()
            ]
            kind, text = str(answer.get("schemaType") or "AVRO").upper(), str(answer["schema"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self._unusable("gave an answer that is not a schema") from None
        for _, place in references:
            if place not in known:
                known[place] = None  # one that refers to itself lacks itself
                if len(known) <= MOST_REFERENCES + 1:  # enough to tell that there are too many
                    # A schema that others refer to may have been deleted since; readers still need it.
                    known[place] = self._schema(f"{place}?deleted=true", known)
        found = [(name, known[place]) for name, place in references]
        there = tuple((name, schema) for name, schema in found if schema is not None)
        absent = [name for name, schema in found if schema is None] + [one.missing for _, one in there if one.missing]
        return RegisteredSchema(kind, text, there, next(iter(absent), None))

    def _call(self, method: str, path: str, body: object = None) -> Any:
        """Call the registry and return its answer; None where it has no such subject, version or schema."""
        try:
            asked: dict[str, Any] = {"headers": self._headers(), "auth": self._basic(), "json": body}
            with self._http().stream(method, f"{self.url}{path}", **asked) as response:
                content = _content(response)
        except (httpx.HTTPError, OSError, ValueError) as error:
            self.close()  # files of certificates may be others at the next try
            raise self._unusable(*_unanswered(error, "schema_registry.url", "schema_registry.auth")) from error
        if content is None:
            raise self._unusable(f"gave an answer of more than {_MOST_BYTES:,} bytes")
        with contextlib.suppress(ValueError, RecursionError):
            answer = json.loads(content)
            if response.status_code == 200:
                return answer
            if response.status_code == 404 and isinstance(answer, dict) and answer.get("error_code") in _ABSENT:
                return None
        if response.status_code in (401, 403):
            self._token_ends = 0.0
            may = "read" if method == "GET" else "register"
            what = f"the schema registry {self.url} does not let Turnout {may} schemas ({response.status_code})"
            raise _failed("registry_refused", what, f"check schema_registry.auth, and what its identity may {may}")
        if response.status_code in (409, 422) and method == "POST":
            what = f"the schema registry {self.url} refused the schema of {path.split('/')[2]} ({response.status_code})"
            hint = "set the compatibility of that subject to NONE, give the sink another topic, or use format: json"
            raise _failed("registry_refused", what, hint)
        raise self._unusable(f"answered {response.status_code} {response.reason_phrase}".rstrip())

    def _http(self) -> httpx.Client:
        with self._lock:
            if self._client is None:
                self._client = httpx.Client(verify=self._trust(), timeout=TIMEOUT_SECONDS, follow_redirects=False)
            return self._client

    def _trust(self) -> ssl.SSLContext:
        auth = self._auth
        context = trusting(auth.ca_file)
        if auth.certificate_file is not None:
            for file in filter(None, (auth.certificate_file, auth.key_file)):
                file.open("rb").close()  # the error of the next line names no file
            password = auth.key_password.get_secret_value() if auth.key_password else ""
            context.load_cert_chain(auth.certificate_file, auth.key_file, password)
        return context

    def _headers(self) -> dict[str, str]:
        auth = self._auth
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if auth.token is not None:
            headers["Authorization"] = f"Bearer {auth.token.get_secret_value()}"
        elif auth.oauth is not None:
            headers["Authorization"] = f"Bearer {self._issued(auth.oauth)}"
            headers |= {_HEADERS[name]: value for name, value in auth.oauth.extensions.items() if name in _HEADERS}
        return headers

    def _basic(self) -> tuple[str, str] | None:
        user, password = self._auth.username, self._auth.password
        return (user, password.get_secret_value()) if user is not None and password is not None else None

    def _issued(self, oauth: OAuthSettings) -> str:
        """A token by the client credentials grant, kept until shortly before its end."""
        with self._lock:
            if time.monotonic() < self._token_ends:
                return self._token
        try:
            with httpx.stream("POST", **oauth.token_request(), timeout=TIMEOUT_SECONDS) as response:
                content = _content(response) or b""
        except (httpx.HTTPError, OSError) as error:
            auth = "schema_registry.auth.oauth"
            raise self._no_token(oauth, *_unanswered(error, f"{auth}.token_endpoint", auth)) from error
        answer: dict[str, Any] = {}
        with contextlib.suppress(ValueError, RecursionError, TypeError):
            answer = dict(json.loads(content))
        if response.status_code != 200:
            words = ": ".join(str(answer[name]) for name in ("error", "error_description") if answer.get(name))
            words = masked(words, [oauth.client_secret.get_secret_value()])[:200] or response.reason_phrase
            raise self._no_token(oauth, f"answered {response.status_code} {words}".rstrip())
        token, seconds = "", 0.0
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            token, seconds = str(answer.get("access_token") or ""), float(answer.get("expires_in", 60))
        if not token:
            raise self._no_token(oauth, "gave an answer that is not a token")
        with self._lock:
            self._token, self._token_ends = token, time.monotonic() + seconds - min(_TOKEN_SPARE_SECONDS, seconds / 2)
        return token

    def _unusable(self, what: str, hint: str = "check that it runs and schema_registry.url") -> TurnoutError:
        return _failed("registry_unreachable", f"the schema registry {self.url} {what}", hint)

    def _no_token(
        self, oauth: OAuthSettings, what: str, hint: str = "check schema_registry.auth.oauth"
    ) -> TurnoutError:
        what = f"no token for the schema registry: {oauth.token_endpoint} {what}"
        return _failed("registry_refused", what, hint)


def _unanswered(error: Exception, url: str, auth: str) -> tuple[str, str]:
    """Why there is no answer, and which settings to check."""
    seen: BaseException = error
    while (before := seen.__cause__ or seen.__context__) is not None:  # of a client's error, the socket's
        seen = before
    why, hint = f"{error or type(error).__name__}", f"check that it runs and {url}"
    if isinstance(seen, ssl.SSLCertVerificationError):
        why, hint = f"its certificate is not trusted ({seen.verify_message})", f"check {url} and {auth}.ca_file"
    elif isinstance(seen, ssl.SSLError):
        why = f"TLS failed ({seen})"
        hint = f"check {url}, and the certificates and keys of {auth}"
    elif isinstance(seen, OSError) and seen.filename:
        why, hint = f"{seen.filename} cannot be read ({seen.strerror})", f"check the files of {auth}"
    return f"cannot be reached: {why}", hint


def _content(response: httpx.Response) -> bytes | None:
    """The body of an answer; None where it is too large."""
    content = bytearray()
    for piece in response.iter_bytes():
        content += piece
        if len(content) > _MOST_BYTES:
            return None
    return bytes(content)


def _failed(code: str, message: str, hint: str) -> TurnoutError:
    return TurnoutError(code=code, message=message, hint=f"{hint}; no record is skipped meanwhile", status=503)
