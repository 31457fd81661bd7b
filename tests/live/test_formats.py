"""Avro by a real schema registry, through the whole path: schemas that evolve, records that are none, an outage."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from apicurio import ApicurioRegistry
from faults.proxy import Proxy
from in_process_turnout import ServedTurnout
from kafka_log import read_all
from turnout.config import parse
from turnout.config.tables import source_table
from turnout.local.broker import EmbeddedBroker
from turnout.schemas.record_decoder import RecordDecoder, raw
from turnout.schemas.source_schemas import schemas_of
from turnout.testing import Record, create_topic, produce, wait_until
from turnout_process import ASKED_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USERS = {"userId": "string", "name": "string", "email": "string", "age": "int64"}
ACCOUNTS = {"userId": "string", "accountType": "string", "balance": "double"}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApicurioRegistry]:
    with ApicurioRegistry(tmp_path_factory.mktemp("registry")) as running:
        yield running


def user_schema(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "User", "namespace": "shop", "fields": list(fields)}


def framed(number: int, schema: dict[str, Any], record: dict[str, Any]) -> bytes:
    """A record as Confluent's serializer writes it."""
    payload = io.BytesIO()
    fastavro.schemaless_writer(payload, schema, record)
    return b"\0" + number.to_bytes(4, "big") + payload.getvalue()


FIRST = user_schema(
    {"name": "userId", "type": "string"}, {"name": "name", "type": "string"}, {"name": "age", "type": "int"}
)
SECOND = user_schema(
    {"name": "userId", "type": "string"},
    {"name": "name", "type": "string", "default": "nobody"},
    {"name": "age", "type": "long"},
    {"name": "email", "type": ["null", "string"], "default": None},
)
THIRD = user_schema({"name": "userId", "type": "string"}, {"name": "age", "type": ["null", "long"], "default": None})


def test_avro_of_a_registry_whose_schema_evolves_and_that_goes_away(
    spark: SparkSession,
    broker: EmbeddedBroker,
    registry: ApicurioRegistry,
    topic_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    bootstrap = broker.bootstrap_servers
    names = ("users", "accounts", "control", "dead", "text")
    users, accounts, control, dead, text = (topic_name(name) for name in names)
    for topic in (users, accounts, control, dead, text):
        create_topic(bootstrap, topic, 1)
    sections = {
        "sources": {
            "users": {"topic": users, "table": "users_ui", "key": "userId", "columns": USERS, "format": "avro"},
            "accounts": {"topic": accounts, "table": "accounts_ui", "key": "userId", "columns": ACCOUNTS},
        },
        "control": {"topic": control},
        "start": "earliest",
        "dead_letter_topic": dead,
    }
    # What is between the two is cut and healed: an outage, without a start of the registry, which takes seconds.
    between = Proxy(registry.port)
    url = registry.url.replace(str(registry.port), str(between.port))
    running = ServedTurnout(tmp_path / "run", spark, bootstrap, schema_registry={"url": url}, **sections)

    def people() -> dict[str, Any]:
        return {row["userId"]: (row["name"], row["email"], row["age"]) for row in running.rows("users_ui")}

    first = registry.register(f"{users}-value", FIRST)
    produce(bootstrap, users, [framed(first, FIRST, {"userId": "u1", "name": "Ada", "age": 36})])
    produce(bootstrap, accounts, [{"userId": f"u{n}", "accountType": "gold", "balance": n} for n in range(1, 5)])
    with between, running:
        assert people() == {"u1": ("Ada", None, 36)}

        second = registry.register(f"{users}-value", SECOND)
        later = {"userId": "u2", "name": "Ben", "age": 2**40, "email": "b@shop"}
        garbage, unknown = b"\0" + first.to_bytes(4, "big") + b"\xff\xff\xff", b"\0\0\1\0\0" + b"x"
        values = [garbage, framed(second, SECOND, later), unknown]
        values.append(framed(first, FIRST, {"userId": "u3", "name": "Cid", "age": 1}))
        produce(bootstrap, users, [Record(value, key=b"its key") for value in values])
        wait_until(lambda: len(people()) == 3, interval=ASKED_SECONDS, what="records of both schemas")
        assert people() == {"u1": ("Ada", None, 36), "u2": ("Ben", "b@shop", 2**40), "u3": ("Cid", None, 1)}

        third = registry.register(f"{users}-value", THIRD)
        between.cut()
        produce(bootstrap, users, [framed(second, SECOND, later | {"userId": "u4"})])
        wait_until(lambda: "u4" in people(), interval=ASKED_SECONDS, what="a record whose schema is known")
        produce(bootstrap, users, [framed(third, THIRD, {"userId": "u5", "age": None})])
        wait_until(
            lambda: "schema registry" in running.reason(), interval=ASKED_SECONDS, what="that the registry is missed"
        )
        failed = running.http.post("/api/control", json={"joinType": "inner"})
        assert (failed.status_code, failed.json()["error"]["code"]) == (503, "registry_unreachable"), failed.text
        produce(bootstrap, users, [framed(third, THIRD, {"userId": f"u{n}", "age": n}) for n in range(6, 50)])
        between.heal()
        wait_until(lambda: len(people()) == 49, interval=ASKED_SECONDS, what="the records that came meanwhile")
        running.wait_ready()
        assert people()["u5"] == (None, None, None)
        assert people()["u49"] == (None, None, 49)
        balances = {row["userId"]: row["balance"] for row in running.rows("final_ui")}
        assert balances == {f"u{n}": float(n) if n < 5 else None for n in range(1, 50)}

        produce(bootstrap, text, [{"userId": "u1"}])
        refused = running.http.post("/api/control", json={"usersTopic": text})
        assert refused.status_code == 422
        assert "no schema id: the first byte is not 0" in refused.text
        bad = {(row["offset"], row["reason"], row["value"]) for row in running.rows("bad_records")}
        assert bad == {
            (1, f"not valid Avro of schema {first}", "base64:" + base64.b64encode(garbage).decode()),
            (3, "schema 65536 is not in the registry", "base64:" + base64.b64encode(unknown).decode()),
        }
    letters = read_all(bootstrap, [dead])
    assert [(letter.key, letter.value) for letter in letters] == [(b"its key", garbage), (b"its key", unknown)]


def test_protobuf_of_a_registry_with_references(registry: ApicurioRegistry, tmp_path: Path) -> None:
    inner = 'syntax = "proto3"; package shop; message Address { string city = 1; }'
    outer = (
        'syntax = "proto3"; package shop; import "address.proto"; '
        "message Other {} message User { string user_id = 1; Address address = 2; }"
    )
    registry.register("address", inner, "PROTOBUF")
    reference = {"name": "address.proto", "subject": "address", "version": 1}
    number = registry.register("user", outer, "PROTOBUF", [reference])
    source = {"topic": "t", "table": "t", "key": "userId", "columns": {"userId": "string", "address": "string"}}
    document = {
        "schema_registry": {"url": registry.url},
        "views": {},
        "sources": {"a": source | {"format": "protobuf"}},
    }
    settings = parse(document, tmp_path, {})
    decoder = RecordDecoder([source_table("a", settings.sources["a"], "t")], schemas_of(settings))
    decoded = decoder.decode(raw([b"\0" + number.to_bytes(4, "big") + b"\x02\x02\x0a\x01a\x12\x03\x0a\x01c"]))
    assert decoded.rows[0].select(["userId", "address"]).to_pylist() == [{"userId": "a", "address": '{"city":"c"}'}]
    assert decoded.faults is None
