"""Where events go: the log, a topic, which gets each event exactly once, or a webhook.

A webhook gets one POST of JSON, within bounds of time. Its host is resolved once for each attempt, all its addresses
must be public (unless `private` says otherwise), and the connection goes to one of these addresses: a name that
resolves to something else a moment later changes nothing. No redirect is followed, no proxy asked, and nothing of the
answer is read but its head.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import urlsplit

import httpx
import orjson

from turnout.alert.events import AlertEvent, Events
from turnout.config import AlertSettings, KafkaSettings, TargetSettings
from turnout.errors import TurnoutError, first_line
from turnout.kafka.clients import Header
from turnout.logs import Say
from turnout.sink.topic_channel import FINGERPRINT, SinkRecord, TopicChannel, WriterSettings, failure
from turnout.sink.topic_state import TopicState
from turnout.store.database import Database, scalar

STATES = "alert"
"""The kind of states of topics that belong to alerts."""
_MAX_LINES = 20
_LINE_CHARACTERS = 500
TIMEOUT_SECONDS = 10.0
"""One attempt in all, however slowly the other side sends."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_GLOBAL = ipaddress.ip_network("2000::/3")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Target:
    """Takes events, all or none as far as it knows; it raises where it failed. One thread uses it."""

    def send(self, events: Sequence[AlertEvent]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Free what is open."""


class LogTarget(Target):
    """Writes a line for each event, and of many at once only the first ones."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def send(self, events: Sequence[AlertEvent]) -> None:
        for one in events[:_MAX_LINES]:
            row = json.dumps(one.content["row"], ensure_ascii=False)[:_LINE_CHARACTERS]
            level = "INFO" if one.event == "left" else "WARNING"
            self._say(level, f"alert {one.alert}: {one.content['key']} {one.event}: {row}")
        if (more := len(events) - _MAX_LINES) > 0:
            self._say("WARNING", f"alert {events[0].alert}: {more} more events; see the table alerts")


def writer_id(alert: str, topic: str) -> str:
    """The transactional id of an alert: alerts can share a topic, so each has its own."""
    return f"turnout-alert-{topic}-{alert}"


class TopicTarget(Target):
    """Writes events to a topic, each once: what the topic has already is read after a start and after a failure.

    The key of all records of an alert is the same, so they are in one partition, in order. The number of an event is in
    a header; the last one of the alert that was found in the topic is known.
    """

    def __init__(
        self, alert: str, topic: str, kafka: KafkaSettings, database: Database, stopping: Callable[[], bool]
    ) -> None:
        self._writing = WriterSettings(topic, writer_id(alert, topic))
        self._kafka = kafka
        self._database = database
        self._events = Events(database)
        self._key = json.dumps({"alert": alert})
        self._state = TopicState(database, f"{STATES}:{alert}", "events")
        self._channel = TopicChannel(kafka, self._writing, self._state, stopping)
        self._last = 0

    def send(self, events: Sequence[AlertEvent]) -> None:
        try:
            if self._channel.open() is not None:
                self._last = self._found()
            fresh = [one for one in events if one.number > self._last or not one.number]
            if fresh:
                self._channel.write(self._records(fresh))
                self._last = max(self._last, fresh[-1].number)
        except Exception as error:
            raise failure(error, self._writing.topic, self._writing.transactional_id, self._kafka) from error

    def close(self) -> None:
        self._channel.close()

    def _found(self) -> int:
        """The number of the last event that the topic has."""
        with self._database.read() as cursor:
            last = f"SELECT coalesce(max(fingerprint), 0) FROM {self._state.relation} WHERE record = ?"
            return self._events.number_of(scalar(cursor, last, [self._key]))

    def _records(self, events: Sequence[AlertEvent]) -> Iterator[SinkRecord]:
        for one in events:
            # A test has no number: it is not one of the events that are counted.
            headers: list[Header] = [(FINGERPRINT, str(int(one.id, 16)))] if one.number else []
            yield SinkRecord(self._key, orjson.dumps(one.to_json()), headers)


class WebhookTarget(Target):
    """Sends events by POST. Any answer of 2xx means that they arrived."""

    def __init__(self, settings: AlertSettings) -> None:
        assert settings.to.webhook is not None
        self._settings = settings
        self._url = httpx.URL(settings.to.webhook.get_secret_value())

    def send(self, events: Sequence[AlertEvent]) -> None:
        first, last = events[0], events[-1]
        body = {
            "id": first.id if first is last else f"{first.id}-{last.number:x}",
            "alert": first.alert,
            "table": self._settings.table,
            "where": self._settings.where,
            "events": [one.to_json() for one in events],
        }
        addresses = allowed_addresses(self._settings.to)
        try:
            status = asyncio.run(asyncio.wait_for(self._post(addresses, orjson.dumps(body)), TIMEOUT_SECONDS))
        except TimeoutError:
            raise self._failed(f"did not answer in {TIMEOUT_SECONDS:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise self._failed(f"cannot be reached: {first_line(error) or type(error).__name__}") from error
        if 300 <= status < 400:
            raise self._failed(f"answered {status}: redirects are not followed", "give the address it redirects to")
        if not 200 <= status < 300:
            raise self._failed(f"answered {status}")

    async def _post(self, addresses: Sequence[Address], body: bytes) -> int:
        """Try one address after the other; the status of the first that answers."""
        headers = {"content-type": "application/json", "user-agent": "turnout", **self._settings.to.headers}
        headers["host"] = self._url.netloc.decode("ascii")
        verify = ssl.create_default_context() if self._url.scheme == "https" else False
        async with httpx.AsyncClient(verify=verify, trust_env=False, follow_redirects=False, timeout=None) as client:
            for number, address in enumerate(addresses, 1):
                # The name is still what the certificate must be for.
                names = {"sni_hostname": self._url.raw_host.decode("ascii")}
                request = client.build_request(
                    "POST", self._url.copy_with(host=str(address)), headers=headers, content=body, extensions=names
                )
                try:
                    response = await client.send(request, stream=True)
                except httpx.ConnectError:
                    if number == len(addresses):
                        raise
                else:
                    await response.aclose()
                    return response.status_code
        raise AssertionError("a host has at least one address")

    def _failed(self, what: str, hint: str = "it is tried again, with growing pauses") -> TurnoutError:
        return TurnoutError("alert_not_delivered", f"the {self._settings.to.described} {what}", hint)


def allowed_addresses(target: TargetSettings) -> list[Address]:
    """The addresses of a webhook; TurnoutError where it has none, or one that needs `private: true`."""
    assert target.webhook is not None
    parts = urlsplit(target.webhook.get_secret_value())
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port or parts.scheme, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        hint = "check the name; it is tried again"
        raise TurnoutError("alert_not_delivered", f"the {target.described} is not found: {error}", hint) from error
    addresses = [ipaddress.ip_address(place[4][0]) for place in found]
    refused = [] if target.private else [str(one) for one in addresses if not is_public(one)]
    if refused:
        text = f"the {target.described} has an address that is not public ({', '.join(refused)})"
        raise TurnoutError("alert_not_delivered", text, "give a public one, or set private: true beside webhook")
    return addresses


def is_public(address: Address) -> bool:
    """Whether an address is one of the internet, also where it stands for an IPv4 address."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or (ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None)
        if inner is not None:
            return is_public(inner)
        if address not in _GLOBAL or address.sixtofour or address.teredo:
            return False
    return address.is_global and not address.is_multicast
