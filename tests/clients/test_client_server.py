"""The Python client against the real server: live tables are exactly the server's, through swaps and restarts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fake_orchestrator import FakeOrchestrator
from filled_store import GOLD_1, USER_1, USER_2, Filling, filled
from http_server import SECONDS, application, serving
from turnout.config import Role
from turnout.errors import TurnoutError
from turnout.plan.joins import Join
from turnout.serve.access import Access, Identity, Tokens
from turnout.serve.app import Services, create_app
from turnout.testing import wait_until
from turnout_client import Changes, Client, Mirror, State, connect


@pytest.fixture(scope="module")
def quiet_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose store nobody writes to, for all tests that only read; one of its records is a bad one."""
    with filled(tmp_path_factory.mktemp("quiet")) as made:
        made.batch(users=[None, USER_1])
        with serving(application(made.database)) as url:
            yield url


@pytest.fixture
def reader(quiet_url: str) -> Iterator[Client]:
    with connect(quiet_url) as client:
        yield client


def is_current(client: Client, mirror: Mirror) -> bool:
    """Whether a mirror is what HTTP answers, at the same position."""
    wanted, now = client.rows(mirror.table, limit=100_000), mirror.snapshot()
    if (wanted.generation, wanted.version) != (now.generation, now.version):
        return False
    assert sorted(map(repr, wanted.rows)) == sorted(map(repr, now.rows.values()))
    return True


def cut_off(client: Client) -> None:
    """Break the connection as a network does: without a word."""
    session = client._live._session
    assert session is not None
    assert session._socket is not None
    broken = session._socket
    session.soon(broken.transport.abort)
    # By its state alone one could miss it: it comes back soon.
    wait_until(lambda: session._socket is not broken, what="the loss to be noticed")


def test_window_follows_batches_and_swaps(filling: Filling, client: Client) -> None:
    with client.table("final_ui").window(columns="name,balance", where="age > 30", sort="-age") as windows:
        first = windows.get(SECONDS)
        assert first.rows == ({"name": "Ben", "balance": None}, {"name": "Ada", "balance": 10.5})
        filling.batch(accounts=[{"userId": "u2", "accountType": "silver", "balance": 2.0}])
        second = windows.get(SECONDS)
        assert (second.rows[0], second.ids, second.swapped) == ({"name": "Ben", "balance": 2.0}, first.ids, False)
        filling.swap(Join.INNER, users=[USER_1], accounts=[GOLD_1])
        third = windows.get(SECONDS)
        assert (third.generation, third.swapped, len(third.rows)) == (2, True, 1)
        windows.move(where="age > 1000")
        assert windows.get(SECONDS).total == 0


def test_mirror_follows_batches_and_swaps(filling: Filling, client: Client) -> None:
    changes = client.table("final_ui").changes().wait(SECONDS)
    assert changes.get(SECONDS).snapshot
    filling.batch(users=[{"userId": "u3", "name": "Cy", "email": None, "age": 1}])
    (inserted,) = changes.get(SECONDS).inserted.values()
    assert inserted["name"] == "Cy"
    filling.batch(accounts=[{"userId": "u3", "accountType": "silver", "balance": 2.0}])
    (updated,) = changes.get(SECONDS).updated.values()
    assert (updated["name"], updated["balance"]) == ("Cy", 2.0)
    filling.swap(Join.INNER, users=[USER_1], accounts=[GOLD_1])
    swap = changes.get(SECONDS)
    assert (swap.snapshot, swap.swapped, swap.generation, len(swap.inserted)) == (True, True, 2, 1)
    assert is_current(client, changes.mirror)


@pytest.mark.parametrize("table", ["users_ui", "final_ui", "join_quality", "bad_records"])
def test_mirror_as_arrow_is_the_table_as_arrow(reader: Client, table: str) -> None:
    changes = reader.table(table).changes()
    wait_until(lambda: is_current(reader, changes.mirror))
    mirrored, downloaded = changes.mirror.to_arrow(), reader.table(table).to_arrow()
    assert mirrored.schema == downloaded.schema
    assert sorted(map(repr, mirrored.to_pylist())) == sorted(map(repr, downloaded.to_pylist()))


def test_every_table_can_be_followed(reader: Client) -> None:
    names = [table["name"] for table in reader.tables()]
    mirrors = [reader.table(name).changes() for name in names]
    for changes in mirrors:
        assert changes.wait(SECONDS).mirror.to_arrow().schema == reader.table(changes.table).to_arrow().schema
    assert len(names) > 7


def test_restart_of_the_server_loses_nothing(filling: Filling, tmp_path: Path) -> None:
    with serving(application(filling.database)) as url:
        client = connect(url)
        windows, changes = client.table("users_ui").window(), client.table("users_ui").changes()
        windows.get(SECONDS), changes.get(SECONDS)
        other = client.table("accounts_ui").window()
        other.get(SECONDS)
    with client:
        wait_until(lambda: windows.state is State.AWAY)
        filling.batch(users=[{"userId": "u3", "name": "Cy", "email": None, "age": 1}])
        assert len(changes.mirror) == 2
        with serving(application(filling.database), port=int(url.rpartition(":")[2])):
            assert [row["name"] for row in windows.get(SECONDS).rows] == ["Ada", "Ben", "Cy"]
            wait_until(lambda: is_current(client, changes.mirror))
            other.wait(SECONDS)
            with pytest.raises(TimeoutError):  # nothing changed in it
                other.get(0.01)
            filling.batch(users=[USER_1])
            assert windows.get(SECONDS).total == 4


def test_connection_that_breaks_resumes_with_the_changes_only(filling: Filling, client: Client) -> None:
    changes = client.table("users_ui").changes()
    changes.get(SECONDS)
    cut_off(client)
    filling.batch(users=[{"userId": "u3", "name": "Cy", "email": None, "age": 1}])
    event = changes.get(SECONDS)
    assert (event.snapshot, len(event.inserted)) == (False, 1)
    assert is_current(client, changes.mirror)


def test_generation_that_is_retired_ends_its_subscription(filling: Filling, client: Client) -> None:
    filling.swap(users=[USER_1])
    old, new = client.table("users_ui@1").window(), client.table("users_ui").window()
    assert (old.get(SECONDS).total, new.get(SECONDS).total) == (2, 1)
    filling.drop(1)
    with pytest.raises(TurnoutError) as raised:
        old.get(SECONDS)
    assert raised.value.code == "unknown_table"
    filling.batch(users=[USER_2])
    assert new.get(SECONDS).total == 2


def test_errors_are_those_of_http(reader: Client) -> None:
    for arguments in ({"where": "age = old"}, {"sort": "nothing"}, {"columns": ["nothing"]}):
        with pytest.raises(TurnoutError) as http:
            reader.rows("users_ui", **arguments)
        with pytest.raises(TurnoutError) as live:
            reader.table("users_ui").window(**arguments).wait(SECONDS)
        assert (live.value.as_json(), live.value.status) == (http.value.as_json(), http.value.status)


def test_more_subscriptions_than_a_connection_takes_are_refused_by_name(reader: Client) -> None:
    taken = [reader.table("users_ui").window(offset=place) for place in range(33)]
    wait_until(lambda: all(one.state in (State.LIVE, State.REFUSED) for one in taken))
    refused = [one for one in taken if one.state is State.REFUSED]
    assert [one.error.code for one in refused if one.error] == ["too_many_subscriptions"]


def test_consumers_of_every_kind_end_with_the_same_table(filling: Filling, client: Client) -> None:
    """Random batches and swaps; a callback, an async iterator and a mirror nobody reads must agree with HTTP."""
    chance = random.Random(7)
    copies: list[dict[str, Any]] = [{}, {}]

    def apply(copy: dict[str, Any], event: Changes) -> None:
        if event.snapshot:
            copy.clear()
        copy.update(event.inserted)
        copy.update(event.updated)
        for identity in event.deleted:
            del copy[identity]

    def some(count: int) -> list[dict[str, Any]]:
        return [{"userId": f"u{chance.randrange(9)}", "name": str(n), "email": None, "age": n} for n in range(count)]

    async def consume() -> None:
        async for event in client.table("final_ui").changes():
            apply(copies[1], event)
            if event.generation == 5:
                return

    async def main() -> None:
        consuming = asyncio.ensure_future(consume())
        for _ in range(3):
            for _ in range(5):
                accounts = [{"userId": f"u{chance.randrange(9)}", "accountType": "x", "balance": chance.random()}]
                await asyncio.to_thread(filling.batch, users=some(chance.randrange(4)), accounts=accounts)
            await asyncio.to_thread(filling.swap, users=some(3))
        await asyncio.to_thread(filling.swap, users=[USER_1])
        await asyncio.wait_for(consuming, SECONDS)

    quiet = client.table("final_ui").changes()
    client.table("final_ui").subscribe(lambda event: apply(copies[0], event))
    asyncio.run(main())
    wait_until(lambda: is_current(client, quiet.mirror))
    wait_until(lambda: copies[0] == quiet.mirror.rows)
    assert copies[1] == quiet.mirror.rows


def test_token_that_is_wanted_lets_in_and_its_lack_is_told(filling: Filling, tmp_path: Path) -> None:
    tokens = Tokens([(Identity("wall", Role.VIEWER), "0123456789abcdef0123")])
    services = Services(filling.database, FakeOrchestrator())
    with serving(create_app(services, Access(tokens))) as url:
        with connect(url, "0123456789abcdef0123") as client:
            assert client.table("users_ui").window().get(SECONDS).total == 2
        for token, status in ((None, 401), ("wrong", 401)):
            with connect(url, token) as client, pytest.raises(TurnoutError) as raised:
                client.table("users_ui").changes().wait(SECONDS)
            assert raised.value.status == status and "token" in raised.value.message
            assert "0123456789" not in str(raised.value)
