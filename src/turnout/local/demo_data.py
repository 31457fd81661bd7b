"""Sample users and accounts: what they say is decided purely, from a seed; a thread writes them to Kafka.

A user comes first and its account some records later, so that a live view shows the row completing itself.
"""

import json
import random
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, cycle, islice
from typing import Any

from confluent_kafka import Producer

from turnout.kafka.clients import SILENT

ACCOUNTLESS = 3  # of a hundred users never open an account
BAD_EVERY = 60
_TICK_SECONDS = 0.01
_FLUSH_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class SampleRecord:
    topic: str
    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Theme:
    """What makes one set of people look different from another."""

    first_names: tuple[str, ...]
    last_names: tuple[str, ...]
    mail_domain: str
    account_types: tuple[str, ...]
    balances: tuple[float, float]


HARBOUR = Theme(
    first_names=(
        "Ada", "Ben", "Clara", "David", "Elena", "Felix", "Grace", "Hugo", "Iris", "Jonas", "Katya", "Liam",
        "Maya", "Noah", "Olivia", "Pablo", "Quinn", "Rosa", "Samir", "Tessa", "Umar", "Vera", "Will", "Yara", "Zoe",
    ),
    last_names=(
        "Archer", "Baker", "Castillo", "Duarte", "Eriksen", "Fischer", "Grant", "Hansen", "Ibrahim", "Jensen",
        "Keller", "Lombardi", "Moreau", "Novak", "Okafor", "Petrov", "Quist", "Romero", "Silva", "Turner",
    ),
    mail_domain="harbour.example",
    account_types=("checking", "savings", "credit"),
    balances=(20.0, 9_500.0),
)  # fmt: skip
SUMMIT = Theme(
    first_names=(
        "Aiko", "Chen", "Daiki", "Emi", "Fumiko", "Haruto", "Indira", "Jin", "Kenji", "Lakshmi", "Mei", "Nikhil",
        "Omi", "Priya", "Ravi", "Sakura", "Tao", "Usha", "Wei", "Yuki",
    ),
    last_names=(
        "Arai", "Bose", "Chandra", "Desai", "Endo", "Fujita", "Gupta", "Hayashi", "Iyer", "Kim", "Liu", "Mori",
        "Nair", "Ono", "Park", "Rao", "Sato", "Tanaka", "Wang", "Zhang",
    ),
    mail_domain="summit.example",
    account_types=("gold", "platinum", "business"),
    balances=(10_000.0, 250_000.0),
)  # fmt: skip


class People:
    """The people of one pair of topics: those who are there at the start, then what happens to them.

    The same arguments give the same records. `first_user` is the number of the first one, so that a later run
    on the same topics adds people instead of repeating them.
    """

    def __init__(self, users_topic: str, accounts_topic: str, theme: Theme, *, first_user: int = 1) -> None:
        self._topics = (users_topic, accounts_topic)
        self._theme = theme
        self._random = random.Random(f"{users_topic} {first_user}")
        self._numbers = count(first_user)
        self._waiting: deque[str] = deque()
        self._accounts: list[tuple[str, str, float]] = []

    def backlog(self, users: int) -> Iterator[SampleRecord]:
        """The users who are there at the start, and the accounts of most of them."""
        for _ in range(users):
            yield self._new_user()
        # The last few have none yet: theirs come while somebody looks.
        while len(self._waiting) > users // 10:
            yield self._new_account()

    def live(self) -> Iterator[SampleRecord]:
        """What happens from then on, without end: new users, accounts, movements, a bad record now and then."""
        bad = cycle((self._cut_off, self._wrong_age, self._list, self._wrong_balance))
        for number in count(1):
            chance = self._random.random()
            if number % BAD_EVERY == 0:
                yield next(bad)()
            elif chance < 0.2:
                yield self._new_user()
            elif (chance < 0.4 and self._waiting) or not self._accounts:
                yield self._new_account() if self._waiting else self._new_user()
            else:
                yield self._movement()

    def _new_user(self) -> SampleRecord:
        user = self._user()
        if self._random.randrange(100) >= ACCOUNTLESS:
            self._waiting.append(user["userId"])
        return self._sample(0, user["userId"], user)

    def _user(self) -> dict[str, Any]:
        first = self._random.choice(self._theme.first_names)
        last = self._random.choice(self._theme.last_names)
        number = next(self._numbers)
        mail = f"{first}.{last}{number}@{self._theme.mail_domain}".lower()
        age = min(95, max(18, round(self._random.gauss(42, 15))))
        return {"userId": f"u{number:05d}", "name": f"{first} {last}", "email": mail, "age": age}

    def _new_account(self) -> SampleRecord:
        user = self._waiting.popleft()
        account_type = self._random.choice(self._theme.account_types)
        low, high = self._theme.balances
        return self._account(len(self._accounts), user, account_type, round(self._random.uniform(low, high), 2))

    def _movement(self) -> SampleRecord:
        place = self._random.randrange(len(self._accounts))
        user, account_type, balance = self._accounts[place]
        low, high = self._theme.balances
        change = self._random.uniform(-0.05, 0.055) * (high - low)
        return self._account(place, user, account_type, round(max(0.0, balance + change), 2))

    def _account(self, place: int, user: str, account_type: str, balance: float) -> SampleRecord:
        self._accounts[place : place + 1] = [(user, account_type, balance)]
        return self._sample(1, user, {"userId": user, "accountType": account_type, "balance": balance})

    def _cut_off(self) -> SampleRecord:
        user = self._user()
        return SampleRecord(self._topics[0], user["userId"], json.dumps(user)[:-12].encode())

    def _wrong_age(self) -> SampleRecord:
        user = self._user() | {"age": "forty-two"}
        return self._sample(0, user["userId"], user)

    def _list(self) -> SampleRecord:
        user = self._user()["userId"]
        return self._sample(1, user, [user, "savings", 12.5])

    def _wrong_balance(self) -> SampleRecord:
        user = self._user()["userId"]
        return self._sample(1, user, {"userId": user, "accountType": self._theme.account_types[0], "balance": "n/a"})

    def _sample(self, topic: int, key: str, value: object) -> SampleRecord:
        return SampleRecord(self._topics[topic], key, json.dumps(value).encode())


class SampleProducer:
    """Writes samples to a broker: some at once, then endless ones at a rate, in a thread of its own."""

    def __init__(self, bootstrap_servers: str) -> None:
        # Silent: the broker ends with the demo, and nobody needs to read the client's errors about that.
        config: dict[str, str | int] = {"bootstrap.servers": bootstrap_servers, "linger.ms": 5}
        self._client = Producer(config, logger=SILENT)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def write(self, samples: Iterable[SampleRecord]) -> int:
        """Write them all; returns their number when the broker has them."""
        written = 0
        for sample in samples:
            self._send(sample)
            written += 1
        left = self._client.flush(30)
        if left:
            raise TimeoutError(f"{left} of {written} sample records were not accepted by the broker within 30 s")
        return written

    def start(self, endless: Sequence[Iterator[SampleRecord]], records_per_second: float) -> None:
        """From now on take one of each in turn, so many a second of each, until `stop`."""
        rounds = zip(*endless, strict=True)
        arguments = (rounds, records_per_second)
        self._thread = threading.Thread(target=self._run, args=arguments, name="turnout-samples", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what the broker has not taken within a second is dropped."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._client.flush(_FLUSH_SECONDS)

    def _run(self, rounds: Iterator[tuple[SampleRecord, ...]], rounds_per_second: float) -> None:
        since, sent = time.monotonic(), 0
        while not self._stopping.wait(max(_TICK_SECONDS, since + (sent + 1) / rounds_per_second - time.monotonic())):
            due = int((time.monotonic() - since) * rounds_per_second) - sent
            if due > max(1.0, rounds_per_second):  # the machine slept: go on, do not catch up
                since, sent, due = time.monotonic(), 0, 1
            for sample in chain.from_iterable(islice(rounds, due)):
                self._send(sample)
            self._client.poll(0)
            sent += due

    def _send(self, sample: SampleRecord) -> None:
        while not self._stopping.is_set():
            try:
                self._client.produce(sample.topic, sample.value, sample.key)
            except BufferError:  # the client's queue is full: let it drain
                self._client.poll(0.1)
            else:
                return
