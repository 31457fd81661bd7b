"""Control messages: what is taken, what is refused and in which words, and what the plan becomes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.config import Settings
from turnout.config.topic_rules import TopicRules
from turnout.plan.control import (
    MAX_MESSAGE_BYTES,
    Action,
    ControlMessage,
    ControlRejected,
    Outcome,
    generation_conflict,
    resolve,
)
from turnout.plan.control_parsing import parse_message
from turnout.plan.joins import Join
from turnout.plan.plan import Plan, Start

SOURCES = ("users", "accounts")
CURRENT = Plan({"users": "users", "accounts": "accounts"}, {"final_ui": Join.LEFT})


def parsed(**fields: Any) -> ControlMessage:
    return parse_message(json.dumps(fields).encode(), SOURCES)


def rejected(raw: bytes | str | None) -> ControlRejected:
    with pytest.raises(ControlRejected) as caught:
        parse_message(raw, SOURCES)
    return caught.value


ABSENT = ["null", '""', '"  \\t\\n"', "NaN"]


@pytest.mark.parametrize("value", ABSENT, ids=["null", "empty", "blank", "NaN"])
@pytest.mark.parametrize(
    "name",
    [
        "usersTopic",
        "accountsTopic",
        "joinType",
        "start",
        "requestId",
        "expectedGeneration",
        "dryRun",
        "action",
    ],
)
def test_message_absent_value_takes_the_current_one(name: str, value: str) -> None:
    assert parse_message(f'{{"{name}": {value}}}', SOURCES) == ControlMessage()


@pytest.mark.parametrize("name", ["usersTopic", "accountsTopic", "joinType"])
@pytest.mark.parametrize("value", ["nan", "NaN", " NAN "])
def test_message_nan_as_text_takes_the_current_topic_and_join(name: str, value: str) -> None:
    assert parsed(**{name: value}) == ControlMessage()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param({}, ControlMessage(), id="empty object"),
        pytest.param({"usersTopic": " u2\n"}, ControlMessage({"users": "u2"}), id="topic is trimmed"),
        pytest.param(
            {"usersTopic": "u2", "accountsTopic": "a.b_c-3"},
            ControlMessage({"users": "u2", "accounts": "a.b_c-3"}),
            id="both topics",
        ),
        pytest.param({"usersTopic": "t" * 249}, ControlMessage({"users": "t" * 249}), id="longest topic"),
        pytest.param({"joinType": " Inner "}, ControlMessage(join=Join.INNER), id="join case and space"),
        pytest.param({"joinType": "LEFT OUTER"}, ControlMessage(join=Join.LEFT), id="join alias"),
        pytest.param({"joinType": "join"}, ControlMessage(join=Join.INNER), id="join alias of inner"),
        pytest.param({"requestId": " r1 "}, ControlMessage(request_id="r1"), id="request id"),
        pytest.param({"requestId": 42}, ControlMessage(request_id="42"), id="request id as a number"),
        pytest.param({"requestId": 0}, ControlMessage(request_id="0"), id="request id zero"),
        pytest.param({"requestId": "nan"}, ControlMessage(request_id="nan"), id="request id that says nan"),
        pytest.param({"start": "Earliest"}, ControlMessage(start=Start("earliest")), id="start"),
        pytest.param(
            {"start": {"timestamp": "1970-01-01T00:00:01Z"}},
            ControlMessage(start=Start("timestamp", 1000)),
            id="start timestamp",
        ),
        pytest.param(
            {"start": {"users": "Earliest", "accounts": {"timestamp": "1970-01-01T00:00:01Z"}}},
            ControlMessage(starts={"users": Start("earliest"), "accounts": Start("timestamp", 1000)}),
            id="start of some sources",
        ),
        pytest.param({"expectedGeneration": 0}, ControlMessage(expected_generation=0), id="generation zero"),
        pytest.param({"expectedGeneration": 7}, ControlMessage(expected_generation=7), id="generation"),
        pytest.param({"dryRun": True}, ControlMessage(dry_run=True), id="dry run"),
        pytest.param({"dryRun": False}, ControlMessage(), id="no dry run"),
        pytest.param({"action": " RollBack "}, ControlMessage(action=Action.ROLLBACK), id="rollback"),
        pytest.param({"action": "CANCEL"}, ControlMessage(action=Action.CANCEL), id="cancel"),
        pytest.param({"action": " Publish "}, ControlMessage(action=Action.PUBLISH), id="publish the candidate"),
        pytest.param(
            {"action": "publish", "force": True}, ControlMessage(action=Action.PUBLISH, force=True), id="forced"
        ),
        pytest.param({"action": "discard"}, ControlMessage(action=Action.DISCARD), id="discard"),
        pytest.param(
            {"joinType": "inner", "publish": False}, ControlMessage(join=Join.INNER, publish=False), id="candidate"
        ),
        pytest.param({"publish": None, "joinType": "inner"}, ControlMessage(join=Join.INNER), id="no publish"),
        pytest.param(
            {"action": "rollback", "usersTopic": "", "joinType": None},
            ControlMessage(action=Action.ROLLBACK),
            id="rollback with blank fields",
        ),
    ],
)
def test_message_is_parsed(fields: dict[str, Any], message: ControlMessage) -> None:
    assert parsed(**fields) == message


def test_message_topic_fields_follow_the_configured_sources() -> None:
    message = parse_message('{"ordersTopic": "o2", "usersTopic": "u2"}', ["orders"])
    assert message.topics == {"orders": "o2"}
    assert "unknown field 'usersTopic' is ignored" in message.warnings[0]


def test_message_with_byte_order_mark_is_parsed() -> None:
    assert parse_message(b'\xef\xbb\xbf{"usersTopic": "u2"}', SOURCES).topics == {"users": "u2"}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("userTopic", "usersTopic"),
        ("users_topic", "usersTopic"),
        ("accountTopic", "accountsTopic"),
        ("jointype", "joinType"),
        ("join", "joinType"),
        ("request_id", "requestId"),
        ("dry-run", "dryRun"),
    ],
)
def test_message_unknown_field_is_ignored_with_the_one_meant(name: str, meant: str) -> None:
    message = parsed(**{name: "x"})
    assert (message.topics, message.join) == ({}, None)
    assert message.warnings == (f"unknown field '{name}' is ignored (did you mean {meant}?)",)


def test_message_unknown_field_far_from_all_names_the_known_ones() -> None:
    (warning,) = parsed(zzz=1).warnings
    assert warning.endswith(
        "(known: usersTopic, accountsTopic, joinType, requestId, start, expectedGeneration, dryRun, publish, force, "
        "action)"
    )


def test_message_with_very_many_unknown_fields_has_few_warnings() -> None:
    warnings = parsed(**{f"f{number}": 1 for number in range(5000)}).warnings
    assert len(warnings) == 11
    assert warnings[-1] == "4990 more unknown fields are ignored"


def test_message_repeated_field_takes_the_last_with_a_warning() -> None:
    message = parse_message('{"usersTopic": "a", "usersTopic": "b"}', SOURCES)
    assert message.topics == {"users": "b"}
    assert message.warnings == ("'usersTopic' is given more than once: the last one counts",)


REJECTIONS = [
    pytest.param(None, "null value (a tombstone)", "send a JSON object", id="tombstone"),
    pytest.param(b"", "an empty message", "send a JSON object", id="empty"),
    pytest.param(b" \n", "an empty message", "send a JSON object", id="blank"),
    pytest.param(b"\xff\xfe{", "not UTF-8 at byte 0", "encoded as UTF-8", id="not UTF-8"),
    pytest.param("\ud800", "not UTF-8", "encoded as UTF-8", id="half of a surrogate pair"),
    pytest.param(
        b'{"a": 1,}',
        "not valid JSON at line 1 column 8 (near '{\"a\": 1,}'): trailing comma is not allowed",
        "send a JSON object",
        id="malformed",
    ),
    pytest.param(b"{'usersTopic': 'x'}", "not valid JSON at line 1 column 2", "", id="single quotes"),
    pytest.param(b"hello", "not valid JSON at line 1 column 1", "", id="plain text"),
    pytest.param(b'{"a": 1} {"b": 2}', "not valid JSON at line 1 column 10", "", id="two objects"),
    pytest.param(b"[]", "an array instead of an object", "send one JSON object", id="array"),
    pytest.param(b'[{"usersTopic": "x"}]', "an array instead of an object", "", id="array of objects"),
    pytest.param(b"7", "a number instead of an object", "", id="number"),
    pytest.param(b"true", "true instead of an object", "", id="boolean"),
    pytest.param(b"null", "null instead of an object", "", id="JSON null"),
    pytest.param(
        json.dumps('{"usersTopic": "x"}').encode(),
        "it was encoded twice",
        "send the object itself",
        id="twice",
    ),
    pytest.param(b'{"a": "' + b"x" * 1_000_000 + b'"}', "1000009 bytes", "only the fields", id="1 MB"),
    pytest.param(b"[" * 100_000, "nested too deeply", "flat object", id="deep array"),
    pytest.param(b'{"a":' * 50_000, "nested too deeply", "flat object", id="deep object"),
    pytest.param(b'{"a": ' + b"9" * 5000 + b"}", "too many digits", "", id="endless number"),
    pytest.param(b'{"usersTopic": 7}', "usersTopic: a number", "as a string", id="topic number"),
    pytest.param(b'{"usersTopic": Infinity}', "usersTopic: a number", "", id="topic infinity"),
    pytest.param(b'{"usersTopic": false}', "usersTopic: false", "as a string", id="topic boolean"),
    pytest.param(b'{"usersTopic": []}', "usersTopic: an array", "as a string", id="topic array"),
    pytest.param(b'{"joinType": {}}', "joinType: an object", "as a string", id="join object"),
    pytest.param(b'{"usersTopic": "a b"}', "'a b' is not a Kafka topic name", "1 to 249", id="topic space"),
    pytest.param(b'{"usersTopic": ".."}', "'..' is not a Kafka topic name", "", id="topic dots"),
    pytest.param(b'{"usersTopic": "a/b"}', "'a/b' is not a Kafka topic name", "", id="topic slash"),
    pytest.param(b'{"usersTopic": "\xc3\xbc"}', "'ü' is not a Kafka topic name", "", id="topic umlaut"),
    pytest.param(b'{"usersTopic": "\\ud800"}', r"'\ud800' is not a Kafka", "", id="topic half of a surrogate pair"),
    pytest.param(b'{"usersTopic": "%s"}' % (b"t" * 250), "is not a Kafka topic name", "", id="topic too long"),
    pytest.param(
        b'{"joinType": "outer space"}',
        "joinType: unknown join 'outer space' (known: left, natural, inner, right, full, semi, anti",
        "send one of the known joins",
        id="join unknown",
    ),
    pytest.param(b'{"start": "never"}', "start: unknown start 'never'", '"earliest"', id="start unknown"),
    pytest.param(b'{"start": 5}', "start: unknown start 5", "", id="start number"),
    pytest.param(b'{"start": {"timestamp": 5}}', "timestamp is a number", "", id="start timestamp number"),
    pytest.param(b'{"start": {"timestamp": "soon"}}', "'soon' is not ISO 8601", "", id="start timestamp text"),
    pytest.param(b'{"start": {"timestamp": "9999-12-31T23:59:59-12:00"}}', "start: ", "", id="start past the end"),
    pytest.param(b'{"start": {}}', "start: unknown start", "", id="start empty object"),
    pytest.param(b'{"requestId": true}', "requestId: true", "a string or a number", id="request id boolean"),
    pytest.param(b'{"requestId": "\\udc00"}', "requestId: half of a surrogate pair", "", id="request id half"),
    pytest.param(b'{"expectedGeneration": -1}', "-1 is not a generation", "0 or more", id="generation -1"),
    pytest.param(b'{"expectedGeneration": true}', "True is not a generation", "", id="generation boolean"),
    pytest.param(b'{"expectedGeneration": 1.5}', "1.5 is not a generation", "", id="generation fraction"),
    pytest.param(b'{"expectedGeneration": "7"}', "'7' is not a generation", "", id="generation text"),
    pytest.param(b'{"dryRun": "true"}', "dryRun: a string", "true or false", id="dry run text"),
    pytest.param(b'{"dryRun": 1}', "dryRun: a number", "", id="dry run number"),
    pytest.param(
        b'{"action": "restart"}', "'restart' is not known (known: rollback, cancel, publish, discard)", "", id="action"
    ),
    pytest.param(b'{"action": 1}', "action: a number is not known", "", id="action number"),
    pytest.param(b'{"action": "rollback", "usersTopic": "x"}', "a rollback takes no", "alone", id="rollback topic"),
    pytest.param(b'{"action": "rollback", "joinType": "left"}', "a rollback takes no", "", id="rollback join"),
    pytest.param(b'{"action": "rollback", "start": "latest"}', "a rollback takes no", "", id="rollback start"),
    pytest.param(b'{"action": "cancel", "usersTopic": "x"}', "a cancel takes no topics", "alone", id="cancel topic"),
    pytest.param(b'{"action": "cancel", "dryRun": true}', "a cancel takes no dryRun", "alone", id="cancel dry run"),
    pytest.param(b'{"action": "publish", "dryRun": true}', "a publish takes no dryRun", "alone", id="publish dry run"),
    pytest.param(b'{"action": "discard", "joinType": "left"}', "a discard takes no topics", "alone", id="discard join"),
    pytest.param(b'{"action": "rollback", "publish": false}', "start or publish", "alone", id="rollback for review"),
    pytest.param(b'{"action": "discard", "force": true}', "a discard takes no force", "alone", id="discard by force"),
    pytest.param(b'{"publish": "no"}', "a string instead of true or false", "publish as true", id="publish as text"),
]


@pytest.mark.parametrize(("raw", "reason", "remedy"), REJECTIONS)
def test_message_is_rejected_with_reason_and_remedy(raw: bytes | str | None, reason: str, remedy: str) -> None:
    error = rejected(raw)
    assert reason in error.message
    assert error.hint
    assert remedy in error.hint
    assert (error.code, error.status) == ("bad_control", 422)
    assert len(str(error)) < 600


def test_message_of_the_largest_size_is_parsed() -> None:
    frame = len('{"x": ""}')
    raw = f'{{"x": "{"y" * (MAX_MESSAGE_BYTES - frame)}"}}'
    assert len(raw) == MAX_MESSAGE_BYTES
    assert parse_message(raw, SOURCES).topics == {}
    assert "allowed" in rejected(raw + " ").message


def test_rejection_keeps_the_request_id() -> None:
    assert rejected(b'{"requestId": 9, "joinType": "x"}').request_id == "9"
    assert rejected(b'{"requestId": [], "joinType": "x"}').request_id is None


def test_rejection_tells_every_fault_at_once() -> None:
    error = rejected(b'{"usersTopic": 1, "joinType": "x", "dryRun": 3}')
    assert all(name in error.message for name in ("usersTopic", "joinType", "dryRun"))


def test_rejection_text_can_always_be_written() -> None:
    error = rejected(b'{"joinType": "\\ud800\\u0000", "usersTopic": "\\n"}')
    assert str(error).encode().isascii()
    assert "\0" not in str(error)


ODD_TEXT = st.one_of(
    st.text(),
    st.sampled_from(["nan", "left", "inner", "rollback", "cancel", "publish", "earliest", "\ud800", "u2", "a b", ""]),
)
ODD_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ODD_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9) | st.just("timestamp"), inner),
    max_leaves=8,
)
FIELDS = [
    "usersTopic",
    "accountsTopic",
    "joinType",
    "requestId",
    "start",
    "expectedGeneration",
    "dryRun",
    "action",
    "userTopic",
]


def assert_parsed_or_rejected(raw: bytes | str) -> None:
    try:
        message = parse_message(raw, SOURCES)
    except ControlRejected as error:
        assert error.message
        assert error.hint
        str(error).encode()
        (error.request_id or "").encode()
    else:
        " ".join([*message.warnings, message.request_id or ""]).encode()
        if message.action is Action.CHANGE:
            resolve(message, CURRENT).describe().encode()


@given(st.binary() | st.text())
def test_message_of_random_bytes_is_parsed_or_rejected(raw: bytes | str) -> None:
    assert_parsed_or_rejected(raw)


@given(ODD_JSON | st.dictionaries(st.sampled_from(FIELDS) | st.text(), ODD_JSON))
def test_message_of_random_json_is_parsed_or_rejected(value: object) -> None:
    assert_parsed_or_rejected(json.dumps(value))


@pytest.mark.parametrize("depth", [100, 900, 980, 2000, 40_000])
@pytest.mark.parametrize("field", ["usersTopic", "start", "requestId", "other"])
def test_message_with_nested_field_is_parsed_or_rejected(field: str, depth: int) -> None:
    assert_parsed_or_rejected(f'{{"{field}": ' + "[" * depth + "]" * depth + "}")
    assert_parsed_or_rejected(f'{{"{field}": {{"timestamp": ' + "[" * depth + "]" * depth + "}}")


@pytest.mark.parametrize(
    ("message", "becomes"),
    [
        pytest.param(ControlMessage(), CURRENT, id="nothing given"),
        pytest.param(ControlMessage({"users": "users"}, Join.LEFT), CURRENT, id="the same"),
        pytest.param(ControlMessage(start=Start()), CURRENT, id="the same start"),
        pytest.param(ControlMessage({"users": "u2"}), CURRENT.with_(topics={"users": "u2"}), id="topic"),
        pytest.param(ControlMessage(join=Join.INNER), CURRENT.with_(joins={"final_ui": Join.INNER}), id="join"),
        pytest.param(ControlMessage(start=Start("earliest")), CURRENT.with_(start=Start("earliest")), id="start alone"),
        pytest.param(
            ControlMessage({"accounts": "a2", "users": "u2"}, Join.FULL),
            Plan({"users": "u2", "accounts": "a2"}, {"final_ui": Join.FULL}),
            id="all",
        ),
    ],
)
def test_message_changes_only_what_it_names(message: ControlMessage, becomes: Plan) -> None:
    assert resolve(message, CURRENT) == becomes


def test_message_can_have_a_join_for_one_view() -> None:
    message = parse_message('{"joinType": "inner", "bJoinType": " FULL ", "cJoinType": "left"}', SOURCES, ["a", "b"])
    assert (message.join, message.joins) == (Join.INNER, {"b": Join.FULL})
    assert message.warnings == ("unknown field 'cJoinType' is ignored (did you mean joinType?)",)
    plan = Plan({"users": "u"}, {"a": Join.LEFT, "b": Join.LEFT})
    assert resolve(message, plan).joins == {"a": Join.INNER, "b": Join.FULL}
    with pytest.raises(ControlRejected, match="bJoinType: unknown join 'sideways'"):
        parse_message('{"bJoinType": "sideways"}', SOURCES, ["b"])


def test_resolution_gives_the_join_to_every_view() -> None:
    plan = Plan({"users": "u"}, {"one": Join.LEFT, "two": Join.FULL})
    assert set(resolve(ControlMessage(join=Join.SEMI), plan).joins.values()) == {Join.SEMI}
    assert resolve(ControlMessage(join=Join.LEFT), plan) == plan.with_(joins={"two": Join.LEFT})


@pytest.mark.parametrize("action", [Action.ROLLBACK, Action.CANCEL])
def test_resolution_of_another_action_is_refused(action: Action) -> None:
    with pytest.raises(ValueError, match=f"the action {action.value} does not resolve to a plan"):
        resolve(ControlMessage(action=action), CURRENT)


@pytest.mark.parametrize("expected", [None, 3])
def test_expected_generation_that_holds_is_accepted(expected: int | None) -> None:
    assert generation_conflict(ControlMessage(expected_generation=expected), 3) is None


@pytest.mark.parametrize("expected", [0, 2, 4])
def test_expected_generation_that_does_not_hold_is_a_conflict(expected: int) -> None:
    conflict = generation_conflict(ControlMessage(expected_generation=expected, request_id="r"), 3)
    assert conflict is not None
    assert f"is {expected}, but generation 3 is published" in conflict.message
    assert (conflict.code, conflict.status, conflict.request_id) == ("generation_conflict", 409, "r")


def test_outcome_names_are_pinned() -> None:
    assert [*Outcome] == [
        "applied",
        "unchanged",
        "rejected",
        "failed",
        "superseded",
        "rolled_back",
        "cancelled",
        "candidate",
    ]


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("control", "is the control topic"),
        ("outcomes", "control.ack_topic"),
        ("bad", "dead_letter_topic"),
        ("__consumer_offsets", "is one of Kafka's own"),
        ("payroll", "is not allowed here"),
    ],
)
def test_topics_that_no_source_may_read_are_rejected(topic: str, reason: str) -> None:
    control = {"ack_topic": "outcomes", "topics": ["users-*", "*2"]}
    rules = TopicRules.of(Settings.model_validate({"control": control, "dead_letter_topic": "bad"}))
    with pytest.raises(ControlRejected) as caught:
        parse_message(json.dumps({"usersTopic": topic}), SOURCES, (), rules.fault)
    assert f"usersTopic: topic '{topic}'" in caught.value.message
    assert reason in caught.value.message
    for allowed in ("users-eu", "accounts2", "users", "accounts"):
        assert parse_message(json.dumps({"usersTopic": allowed}), SOURCES, (), rules.fault).topics["users"] == allowed


def test_rejected_topic_is_told_what_is_allowed() -> None:
    rules = TopicRules.of(Settings.model_validate({"control": {"topics": ["users-*"]}}))
    with pytest.raises(ControlRejected) as caught:
        parse_message('{"usersTopic": "payroll"}', SOURCES, (), rules.fault)
    assert caught.value.hint == "control.topics allows users-*, and the topics of the file"


def test_control_topic_of_another_cluster_is_no_topic_of_the_data() -> None:
    control = {"kafka": {"bootstrap_servers": "elsewhere:9092"}, "ack_topic": "outcomes"}
    rules = TopicRules.of(Settings.model_validate({"control": control}))
    assert rules.fault("control") is None
    assert rules.fault("outcomes") is None


@pytest.mark.parametrize("given", ["x" * 201, 10**200])
def test_request_id_has_a_length_limit(given: str | int) -> None:
    with pytest.raises(ControlRejected, match="requestId: 201 characters are too many") as caught:
        parse_message(json.dumps({"requestId": given}), SOURCES)
    assert caught.value.request_id is None
    assert parse_message(json.dumps({"requestId": " " + "x" * 200}), SOURCES).request_id == "x" * 200
