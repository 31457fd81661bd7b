"""Events to a real webhook: what arrives, which addresses are refused, and what a hostile answer can do."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from certificates import Authority
from fake_webhook import Hook, hooked
from turnout.alert import targets
from turnout.alert.events import AlertEvent
from turnout.alert.targets import WebhookTarget, is_public
from turnout.config import AlertSettings, KafkaSettings, TargetSettings
from turnout.errors import TurnoutError
from turnout.preflight.findings import check_alert

EVENTS = [
    AlertEvent(number, f"{number:032x}", "large", "entered", {"ts": "2026-01-01T00:00:00.000Z", "key": key, "row": {}})
    for number, key in ((7, "u1"), (10, "u2"))
]


def target(url: str, *, private: bool = True, **headers: str) -> WebhookTarget:
    to = TargetSettings.model_validate({"webhook": url, "headers": headers, "private": private})
    return WebhookTarget(AlertSettings(table="final_ui", where="balance > 1", to=to))


@pytest.fixture
def hook() -> Iterator[Hook]:
    with hooked() as one:
        yield one


class Names:
    """Stands for a name server: each name has the addresses of its next answer, and lookups are counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: list[str]) -> None:
        self.lookups: list[str] = []
        self._answers = answers
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._look_up)

    def _look_up(self, host: Any, port: Any, *given: Any, **more: Any) -> Any:
        if not str(host).endswith(".test"):
            return self._real(host, port, *given, **more)
        self.lookups.append(host)
        answers = self._answers[host.removesuffix(".test")]
        address = answers.pop(0) if len(answers) > 1 else answers[0]
        return [found for one in address.split() for found in self._real(one, port, *given, **more)]


def test_events_arrive_as_one_request(hook: Hook) -> None:
    target(hook.url, Authorization="Bearer token-token").send(EVENTS)
    [body], [headers] = hook.bodies, hook.headers
    assert body == {
        "id": f"{7:032x}-a",
        "alert": "large",
        "table": "final_ui",
        "where": "balance > 1",
        "events": [one.to_json() for one in EVENTS],
    }
    assert headers["authorization"] == "Bearer token-token"
    assert headers["content-type"] == "application/json"
    assert headers["host"] == f"127.0.0.1:{hook.port}"
    target(hook.url).send(EVENTS[:1])
    assert hook.bodies[1]["id"] == EVENTS[0].id


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
def test_answer_that_is_no_success_means_that_nothing_arrived(hook: Hook, status: int) -> None:
    hook.status = status
    with pytest.raises(TurnoutError, match=f"the webhook 127.0.0.1 answered {status}"):
        target(hook.url).send(EVENTS)


def test_redirect_is_not_followed(hook: Hook) -> None:
    with hooked() as other:
        hook.status, hook.location = 307, other.url
        with pytest.raises(TurnoutError, match="answered 307: redirects are not followed"):
            target(hook.url).send(EVENTS)
        assert other.headers == []


def test_nobody_listens(hook: Hook) -> None:
    with hooked() as gone:
        url = gone.url
    with pytest.raises(TurnoutError, match="cannot be reached"):
        target(url).send(EVENTS)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0.0.0.0", "10.1.2.3", "172.16.0.1"),
        *("192.168.1.1", "169.254.169.254", "100.64.0.1", "224.0.0.1", "255.255.255.255", "[::1]", "[::]"),
        *("[fe80::1]", "[fd00::1]", "[::ffff:127.0.0.1]", "[::ffff:10.0.0.1]", "[64:ff9b::a00:1]", "[2002:7f00:1::]"),
        *("[::127.0.0.1]", "[2001:0:1::1]", "[ff02::1]", "[fec0::1]"),
    ],
)
def test_address_that_is_not_public_is_refused_before_anything_is_sent(hook: Hook, host: str) -> None:
    with pytest.raises(TurnoutError, match="has an address that is not public") as caught:
        target(f"https://{host}:{hook.port}/hook", private=False).send(EVENTS)
    assert "private: true" in caught.value.hint
    assert hook.headers == []


@pytest.mark.parametrize("address", ["93.184.215.14", "8.8.8.8", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"])
def test_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))
    assert is_public(ipaddress.ip_address("64:ff9b::808:808"))
    assert is_public(ipaddress.ip_address("::ffff:8.8.8.8"))


def test_name_with_one_private_address_among_others_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, hook=["93.184.215.14 10.0.0.1"])
    with pytest.raises(TurnoutError, match=r"not public \(10.0.0.1\)"):
        target("https://hook.test/", private=False).send(EVENTS)


@pytest.mark.parametrize(("answer", "number"), [("93.184.215.14", 1), ("93.184.215.14 2606:2800:21f::1", 2)])
def test_check_counts_the_addresses_of_a_webhook(monkeypatch: pytest.MonkeyPatch, answer: str, number: int) -> None:
    Names(monkeypatch, hook=[answer])
    alert = AlertSettings(table="final_ui", where="age > 1", to=TargetSettings(webhook="https://hook.test/"))
    found = check_alert("large", alert, KafkaSettings())
    assert (found.level, found.text) == ("ok", f"webhook hook.test: addresses {number}")


def test_connection_goes_to_the_address_that_was_looked_at(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that leads elsewhere when it is asked again changes nothing: it is asked once."""
    names = Names(monkeypatch, hook=["127.0.0.1", "127.0.0.99"])
    target(f"http://hook.test:{hook.port}/hook").send(EVENTS)
    assert names.lookups == ["hook.test"]
    assert hook.headers[0]["host"] == f"hook.test:{hook.port}"
    assert len(hook.bodies) == 1


def test_next_address_is_tried_where_nobody_listens_at_the_first(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, hook=["127.0.0.99 127.0.0.1"])
    target(f"http://hook.test:{hook.port}/hook").send(EVENTS)
    assert len(hook.bodies) == 1


def test_name_that_nobody_knows_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(TurnoutError, match=r"the webhook hook\.test is not found"):
        target("https://hook.test/").send(EVENTS)


def test_certificate_must_be_for_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    certificate = authority.issue("hook", ("hook.test",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.file, certificate.key_file)
    Names(monkeypatch, hook=["127.0.0.1"], other=["127.0.0.1"])
    with hooked(context=context) as hook:
        with pytest.raises(TurnoutError, match="certificate"):
            target(f"https://hook.test:{hook.port}/").send(EVENTS)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))
        target(f"https://hook.test:{hook.port}/").send(EVENTS)
        with pytest.raises(TurnoutError, match="certificate"):
            target(f"https://other.test:{hook.port}/").send(EVENTS)
        assert len(hook.bodies) == 1


def test_answer_without_end_is_not_read(hook: Hook) -> None:
    def answer(handler: Any) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n")
        while True:  # until the client has gone
            handler.wfile.write(b"x" * 1_000_000)

    hook.answer = answer
    target(hook.url).send(EVENTS)


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nX-Slow: "])
def test_answer_that_does_not_come_ends_after_a_time_however_it_drips(
    hook: Hook, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(targets, "TIMEOUT_SECONDS", 0.5)
    over = threading.Event()

    def answer(handler: Any) -> None:
        handler.wfile.write(sent)
        while not over.wait(0.02):  # a header that grows, or nothing at all
            handler.wfile.write(sent and b"x")

    hook.answer = answer
    with pytest.raises(TurnoutError, match=r"did not answer in 0\.5 s"):
        target(hook.url).send(EVENTS)
    over.set()


def test_headers_without_end_are_refused(hook: Hook) -> None:
    def answer(handler: Any) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            handler.wfile.write(b"X-More: " + b"x" * 10_000 + b"\r\n")

    hook.answer = answer
    with pytest.raises(TurnoutError, match="cannot be reached"):
        target(hook.url).send(EVENTS)


def test_proxy_of_the_environment_is_not_asked(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    target(hook.url).send(EVENTS)
    assert len(hook.bodies) == 1
