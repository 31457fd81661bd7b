"""Records that are hostile, huge, wide, many or all alike."""

from __future__ import annotations

import itertools
import json
import time

from faults.scenarios import bulk
from faults.stage import Stage
from faults.world import ACCOUNTS, ANY_TIME, USERS, Comparison, Topics, World
from turnout.testing import Record, produce, wait_until

LOAD_SECONDS = 2
BULK_RECORDS = 45_000
"""So many that a build reads them in Spark's Python workers."""

HOT_ROWS = 100_000
HOT_RECORDS = 10_000
"""On each side: paired, they would be 100 million rows."""

HOT_USER = b'{"userId": "hot", "name": "n%d", "email": "e", "age": 1}'
HOT_ACCOUNT = b'{"userId": "hot", "accountType": "a", "balance": %d}'
LARGE_BYTES = 990_000
WIDE_COLUMNS = 1000
BAD_RECORDS = 1_000_000
STRANGE_TIMES = (1_794_787_200_000_000, 2**63 - 1, 10**17, -2, -62_135_596_800_001, -(10**17), -(2**63) + 1)
"""Milliseconds: microseconds sent as such, and what no clock and no `datetime` has."""

BOMBS = {"zstd": 300, "gzip": 200, "lz4": 200, "snappy": 18}
"""Megabytes that a record of less than one has when it is unpacked."""

STRANGE_DAYS = ("58844-07-17", "-0043-03-15", "5881580-07-10", "294247-01-10", "0000-02-29", "9999999-01-01")


def poison() -> list[bytes]:
    """Records that have brought readers of JSON down."""
    long_number = "9" * 400
    fields = ",".join(f'"f{n}": {n}' for n in range(8000))
    return [
        b'{"userId": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"userId": "deep", "name": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
        b'{"userId": "deep enough", "name": ' + b"[" * 200 + b"]" * 200 + b"}",
        b"[" * 500_000,
        b"{" * 500_000,
        f'{{"userId": "big", "age": {long_number}}}'.encode(),
        f'{{"userId": "long", "name": {long_number}, "age": 1e400, "balance": -1e400}}'.encode(),
        b'{"userId": "e", "age": 1e999999999, "balance": 1e-999999999}',
        b'{"userId": "\xc3\x28", "name": "bad utf-8"}',
        b"\xff\xfe\x00\x00{",
        b"\x00" * 1000,
        b'{"userId": "nul", "name": "a\x00b"}',
        b'{"userId": "escaped nul", "name": "a\\u0000b"}',
        b'\xef\xbb\xbf{"userId": "bom"}',
        b'{"userId": "wide", ' + fields.encode() + b"}",
        b'{"userId": "twice", "userId": "twice", "userId": "last"}',
        b'{"userId": "comment" /* no */}',
        b"{'userId': 'quotes'}",
        b'{"userId": "nan", "age": NaN, "balance": Infinity}',
        b'{"userId": "cut", "name": "\\u12',
        b'{"userId": "a"} {"userId": "b"}',
        b'{"__proto__": {"userId": "x"}, "constructor": 1, "userId": "proto"}',
        b'{"userId": "sql\'); DROP TABLE users_ui; --", "name": "${jndi:ldap://x}"}',
        b" " * 100_000,
        b"{}",
    ]


def poisoned_batch(stage: Stage) -> Comparison:
    """Hostile records come live, between good ones."""
    world = stage.world()
    for topic in world.topics.pair:
        produce(world.bootstrap, topic, poison())
    return world.recover(time.monotonic())


def poisoned_build(stage: Stage) -> Comparison:
    """A build reads hostile records in bulk."""
    world = stage.world()
    world.producer.pause()
    poisoned = world.make_topics()
    bulk.users(world.bootstrap, poisoned.users, BULK_RECORDS)
    for topic in poisoned.pair:
        produce(world.bootstrap, topic, poison())
    began = time.monotonic()
    world.move(poisoned, joinType="full")
    return world.recover(began)


def strange_times(stage: Stage) -> Comparison:
    """Records of any time, with dates of any year: read live, by a build, and after a restart."""
    columns = USERS | {"born": "date", "seen": "timestamp"}
    with World(stage.new_folder(), stage.kafka, user_columns=columns) as world:
        for _ in range(2):  # the second time they are there before the build
            topics = world.make_topics(config=ANY_TIME)
            _write_strange_times(world, topics)
            world.move(topics)
            world.producer.resume()
            _write_strange_times(world, topics)
            world.settle()
            began = time.monotonic()
            world.process.stop()
            world.process.start()
        assert world.turnout.http.get("/api/status").json()["newestRecord"] == "+292278994-08-17T07:12:55.807Z"
        return world.recover(began)


def _write_strange_times(world: World, topics: Topics) -> None:
    users: list[Record] = []
    accounts: list[Record] = []
    for number, (moment, born) in enumerate(itertools.product(STRANGE_TIMES, STRANGE_DAYS)):
        user = {"userId": f"s{number % 9}", "name": "n", "email": "e", "age": number, "born": born, "seen": born}
        account = {"userId": f"s{number % 9}", "accountType": "a", "balance": number}
        users += [Record(value, None, number % 2, moment) for value in (user, b"{bad %d" % number)]
        accounts.append(Record(account, None, number % 2, moment))
    produce(world.bootstrap, topics.users, users)
    produce(world.bootstrap, topics.accounts, accounts)


def strange_control_times(stage: Stage) -> Comparison:
    """Control messages of any time, and records that are no message; the last one is good, and Turnout restarts."""
    world = stage.world()
    for value in (b"\xff" * 300_000, b"{" + b" " * 900_000, b"\x1b[2J\n", None):
        world.control.send_raw(value)
    for number, moment in enumerate(STRANGE_TIMES):
        world.control.send({"joinType": ("inner", "left")[number % 2]}, moment)
        world.control.send_raw(b"\xff")
    # Messages that wait together are one change: the last one has to differ from what is shown.
    other = "anti" if world.turnout.status()["joinType"] == "full" else "full"
    last = world.control.send({"joinType": other})
    wait_until(lambda: world.control.outcome(last) == "applied", what="the last message to be applied")
    began = time.monotonic()
    world.process.stop()
    world.process.start()
    return world.recover(began)


def hot_key(stage: Stage) -> Comparison:
    """10,000 records of one key come to both topics of an inner join, read live, by a build, and after a restart."""
    with World(stage.new_folder(), stage.kafka, account_rows="all") as world:
        world.move(joinType="inner")
        world.producer.resume()
        time.sleep(stage.load_seconds)
        bulk.write(world.bootstrap, world.topics.users, (HOT_USER % n for n in range(HOT_RECORDS)))
        bulk.write(world.bootstrap, world.topics.accounts, (HOT_ACCOUNT % n for n in range(HOT_RECORDS)))
        for number in range(5):
            produce(world.bootstrap, world.topics.accounts, [HOT_ACCOUNT % number])
            time.sleep(0.5)
        world.settle()
        _assert_hot_is_left_out(world)
        for join in ("left", "inner"):
            assert world.control.post({"joinType": join})["outcome"] == "applied"
        _assert_hot_is_left_out(world)
        world.producer.resume()
        began = time.monotonic()
        world.process.stop()
        world.process.start()
        produce(world.bootstrap, world.topics.users, [HOT_USER % 1])
        time.sleep(stage.load_seconds)
        return world.recover(began)


def _assert_hot_is_left_out(world: World) -> None:
    status, metrics = world.turnout.status(), world.turnout.http.get("/metrics").text
    assert status["leftOut"] == [{"view": "final_ui", "keys": 1, "first": ["hot"]}], status["leftOut"]
    assert 'turnout_left_out_keys{view="final_ui"} 1.0' in metrics
    assert "turnout_spark_starts_total 1.0" in metrics, "Spark's JVM has ended"


def one_sided_key(stage: Stage) -> Comparison:
    """One key has 100,000 rows on the left, and its account changes all the time."""
    world = stage.world()
    bulk.write(world.bootstrap, world.topics.users, (HOT_USER % n for n in range(HOT_ROWS)))
    for number in range(5):
        produce(world.bootstrap, world.topics.accounts, [{"userId": "hot", "accountType": "a", "balance": number}])
        time.sleep(0.5)
    return world.recover(time.monotonic())


def large_records(stage: Stage) -> Comparison:
    """Records of 1 MB: good ones, mistyped ones, and ones that are no JSON."""
    world = stage.world()
    time.sleep(LOAD_SECONDS)
    text = "x" * LARGE_BYTES
    good = [{"userId": f"large {n}", "name": text, "email": "e", "age": n} for n in range(10)]
    wrong = [{"userId": "wrong", "name": "n", "email": "e", "age": text}, {"userId": "unknown", "other": text}]
    produce(world.bootstrap, world.topics.users, [*good, *wrong])
    produce(world.bootstrap, world.topics.users, [text])
    return world.recover(time.monotonic())


def decompression_bomb(stage: Stage) -> Comparison:
    """Records of a few kilobytes that unpack to hundreds of megabytes, read live; then by a build."""
    with World(stage.new_folder(), stage.kafka, spark={"driver_memory": "512m"}) as world:
        world.producer.resume()
        time.sleep(LOAD_SECONDS)
        _send_bombs(world)
        world.settle()
        later = world.make_topics()
        old, world.topics = world.topics, later
        _send_bombs(world)
        world.topics = old
        world.move(later)
        world.producer.resume()
        time.sleep(LOAD_SECONDS)
        return world.recover(time.monotonic())


def _send_bombs(world: World) -> None:
    for codec, megabytes in BOMBS.items():
        value = b'{"userId": "bomb", "name": "%s"}' % (b"x" * (megabytes << 20))
        damaged = "the record at offset {offset} cannot be unpacked: it is damaged"
        large = f"record too large: {len(value):,} bytes"
        world.send_bomb(codec, value, damaged if codec == "zstd" else large)
        produce(
            world.bootstrap, world.topics.users, [{"userId": f"behind {codec}", "name": "n", "email": "e", "age": 1}]
        )


def control_bomb(stage: Stage) -> Comparison:
    """A record of the control topic that unpacks to 300 MB, with good messages around it; Turnout restarts."""
    world = stage.world()
    world.control.send({"joinType": "inner"})
    for codec, megabytes in BOMBS.items():
        world.control.send_bomb(codec, b"x" * (megabytes << 20))
    # Messages that wait together are one change: the last one has to differ from what is shown.
    other = "anti" if world.turnout.status()["joinType"] == "full" else "full"
    last = world.control.send({"joinType": other})
    wait_until(lambda: world.control.outcome(last) == "applied", what="the message behind the bombs to be applied")
    began = time.monotonic()
    world.process.stop()
    world.process.start()
    return world.recover(began)


def wide_source(stage: Stage) -> Comparison:
    """A source of 1,000 columns, of which some records have all, some few, and some wrong ones."""
    kinds = ("string", "int64", "double")
    columns = USERS | {f"c{n}": kinds[n % 3] for n in range(WIDE_COLUMNS - len(USERS))}
    examples = {"string": "text", "int64": 7, "double": 0.5}
    full = {name: examples[kind] for name, kind in columns.items()}
    with World(stage.new_folder(), stage.kafka, user_columns=columns) as world:
        values = [full | {"userId": f"w{n}", "c1": "no" if n % 50 == 0 else n} for n in range(1000)]
        bulk.write(world.bootstrap, world.topics.users, (json.dumps(value).encode() for value in values))
        produce(world.bootstrap, world.topics.accounts, [dict.fromkeys(ACCOUNTS) | {"userId": "w1"}])
        world.producer.resume()
        time.sleep(LOAD_SECONDS)
        return world.recover(time.monotonic())


def many_bad_records(stage: Stage) -> Comparison:
    """A million distinct records that are no JSON: each has its row in bad_records."""
    world = stage.world()
    bulk.write(world.bootstrap, world.topics.users, (b"{bad %d" % n for n in range(BAD_RECORDS)))
    return world.recover(time.monotonic())
