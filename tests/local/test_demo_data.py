"""The sample data: the same each time, complete, mostly good, and two sets that nobody can mix up."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

from turnout.local.demo_data import HARBOUR, SUMMIT, People, SampleRecord


def people(first_user: int = 1) -> People:
    return People("users", "accounts", HARBOUR, first_user=first_user)


def record(sample: SampleRecord) -> Any:
    try:
        return json.loads(sample.value)
    except ValueError:
        return None


def is_good(sample: SampleRecord) -> bool:
    value = record(sample)
    if not isinstance(value, dict):
        return False
    if sample.topic == "users":
        return set(value) == {"userId", "name", "email", "age"} and isinstance(value["age"], int)
    return set(value) == {"userId", "accountType", "balance"} and isinstance(value["balance"], float)


def test_people_are_the_same_each_time() -> None:
    once, again = people(), people()
    assert list(once.backlog(50)) == list(again.backlog(50))
    assert list(islice(once.live(), 500)) == list(islice(again.live(), 500))


def test_backlog_has_all_users_and_most_accounts() -> None:
    samples = list(people().backlog(500))
    assert all(map(is_good, samples))
    users = [sample.key for sample in samples if sample.topic == "users"]
    accounts = [sample.key for sample in samples if sample.topic == "accounts"]
    assert len(users) == len(set(users)) == 500
    assert 400 < len(accounts) == len(set(accounts)) <= 450
    assert set(accounts) < set(users)


def test_key_of_a_record_is_its_user() -> None:
    assert all(record(sample)["userId"] == sample.key for sample in people().backlog(20))


def test_no_user_comes_twice() -> None:
    source = people()
    samples = [*source.backlog(100), *islice(source.live(), 3000)]
    users = [sample.key for sample in samples if sample.topic == "users"]
    assert len(users) == len(set(users))


def test_user_comes_before_its_account() -> None:
    source = people()
    seen: set[str] = set()
    for sample in [*source.backlog(100), *islice(source.live(), 3000)]:
        if sample.topic == "users":
            seen.add(sample.key)
        elif is_good(sample):
            assert sample.key in seen


def test_live_records_have_arrivals_movements_and_few_bad_ones() -> None:
    source = people()
    known = {sample.key for sample in source.backlog(100) if sample.topic == "accounts"}
    samples = list(islice(source.live(), 3000))
    bad = [sample for sample in samples if not is_good(sample)]
    assert len(bad) == 50
    assert any(record(sample) is None for sample in bad)
    assert any(isinstance(record(sample), list) for sample in bad)
    assert any(isinstance(record(sample), dict) and record(sample).get("age") == "forty-two" for sample in bad)
    assert any(isinstance(record(sample), dict) and record(sample).get("balance") == "n/a" for sample in bad)
    assert sum(sample.topic == "users" for sample in samples) > 300
    assert sum(sample.topic == "accounts" and sample.key in known for sample in samples) > 200


def test_live_works_without_a_backlog() -> None:
    assert sum(map(is_good, islice(people().live(), 100))) > 90


def test_later_run_brings_other_people() -> None:
    first = {sample.key for sample in people().backlog(100)}
    later = {sample.key for sample in people(first_user=101).backlog(100)}
    assert not first & later


def test_second_set_looks_different() -> None:
    other = [json.loads(sample.value) for sample in People("users2", "accounts2", SUMMIT).backlog(100)]
    ours = [json.loads(sample.value) for sample in people().backlog(100)]
    for field in ("name", "accountType"):
        assert not {one.get(field) for one in ours if field in one} & {one.get(field) for one in other if field in one}
