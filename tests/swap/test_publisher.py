"""What a published message has done is to be seen by whoever is told its outcome, and not a moment later."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from turnout.config import Settings, parse
from turnout.config.configuration import Configuration, Proposed, file_text
from turnout.config.settings import SwapSettings
from turnout.config.tables import first_plan, layout_of
from turnout.plan.control import Outcome
from turnout.plan.offsets import Offsets
from turnout.plan.plan import Plan
from turnout.plan.swap_rules import Decision, Effect, Verdict
from turnout.store import config_history
from turnout.store.database import Database
from turnout.store.generation_tables import GenerationTables
from turnout.store.ledger import Ledger
from turnout.swap.control_queue import ControlQueue, QueuedMessage, Reply
from turnout.swap.health import Health
from turnout.swap.lifecycle import Lifecycle
from turnout.swap.publisher import Publisher, SwapRequest


@dataclass
class Publishing:
    """A publisher over a real store, and what was in force whenever the sender of a message was told."""

    database: Database
    folder: Path
    told_early: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.settings = self.of_file(max_viewers=5)
        self.configuration = Configuration(self.settings)
        ledger = Ledger(self.database, list(self.settings.sources))
        self.queue = ControlQueue(self.settings, ledger, self.say)
        self.lifecycle = Lifecycle(SwapSettings(), Health(self.say, "starting"), self.say)
        self.publisher = Publisher(ledger, self.queue, self.lifecycle, self.say, self.configuration)
        self.lifecycle.live = self.generation(1, self.publisher.plan)
        self.message = self.queue.submit('{"action": "rollback"}', "test")
        self.configuration.listen(lambda settings: self.told_early.append(self.message.done.is_set()))

    def say(self, level: str, text: str) -> None:
        pass

    def of_file(self, **server: Any) -> Settings:
        document = {"kafka": {"bootstrap_servers": "127.0.0.1:9"}, "server": server, "data_dir": str(self.folder)}
        return parse(yaml.safe_load(yaml.safe_dump(document)), self.folder, {})

    def generation(self, number: int, plan: Plan) -> Any:
        tables = GenerationTables(self.database, number, layout_of(self.configuration.of(plan), plan))
        with self.database.write() as cursor:
            tables.create(cursor, views_built=True)
        return SimpleNamespace(
            number=number,
            tables=tables,
            offsets=Offsets({}),
            build_seconds=0.0,
            catch_up_seconds=0.0,
            origins={},
            plan=plan,
            forget_build=lambda: None,
        )

    def apply_of(self, settings: Settings) -> Proposed:
        return Proposed(settings, (), self.configuration.settings)


@pytest.fixture
def publishing(tmp_path: Path) -> Iterator[Publishing]:
    database = Database.open(tmp_path / "data")
    yield Publishing(database, tmp_path)
    database.close()


def told(message: QueuedMessage) -> Outcome | None:
    return message.answer.outcome if message.done.is_set() and message.answer else None


@pytest.mark.parametrize("builds", [True, False])
def test_settings_are_in_force_and_the_generation_is_live_before_the_outcome_is_told(
    publishing: Publishing, builds: bool
) -> None:
    publisher, wanted = publishing.publisher, publishing.of_file(max_viewers=7)
    apply = publishing.apply_of(wanted)
    if builds:
        plan = first_plan(wanted)
        decision = Decision((Verdict(None),), plan, Effect.APPLY, asker=0)
        new = publishing.generation(2, plan)
        publisher.publish(new, SwapRequest([publishing.message], decision, apply), Outcome.APPLIED)
        assert publishing.lifecycle.live is new and publisher.plan == plan
    else:
        publisher.adopt(publishing.message, apply)
    assert publishing.told_early == [False], "the sender would still find the settings of before"
    assert told(publishing.message) is Outcome.APPLIED and publishing.configuration.settings is wanted
    kept = config_history.newest(publishing.database)
    assert kept is not None and kept.document == file_text(wanted)


def test_outcome_that_stands_is_told_also_where_taking_over_fails(publishing: Publishing) -> None:
    def fails(settings: Settings) -> None:
        raise RuntimeError("a listener that fails")

    publishing.configuration.listen(fails)
    with pytest.raises(RuntimeError, match="a listener"):
        publishing.publisher.adopt(publishing.message, publishing.apply_of(publishing.of_file(max_viewers=7)))
    assert told(publishing.message) is Outcome.APPLIED and publishing.queue.waiting() == []


def test_candidate_is_written_before_its_outcome_is_told_and_replaces_the_one_before(publishing: Publishing) -> None:
    publisher, ledger = publishing.publisher, Ledger(publishing.database, ["users", "accounts"])
    decision = Decision((Verdict(None),), publisher.plan, Effect.CANDIDATE, asker=0)
    for number in (2, 3):
        message = publishing.queue.submit('{"joinType": "inner", "publish": false}', "test")
        publisher.keep_candidate(publishing.generation(number, publisher.plan), SwapRequest([message], decision))
        candidacy = ledger.candidate()
        assert told(message) is Outcome.CANDIDATE and candidacy is not None
        assert (candidacy.generation, publisher.standing.candidate_generation) == (number, number)
    assert publisher.number == 1, "nothing is published"
    publisher.expire_candidate()
    assert ledger.candidate() is not None, "its time lasts"
    publishing.lifecycle.settings = SwapSettings(candidate_seconds=1e-9)
    publish = publishing.queue.submit('{"action": "publish"}', "test")
    publisher.expire_candidate()
    assert ledger.candidate() is not None, "a message to publish it waits"
    publishing.queue.settle({publish: Reply(Outcome.REJECTED, "", 1)})
    publisher.expire_candidate()
    assert (ledger.candidate(), publishing.lifecycle.candidate) == (None, None)
    with publishing.database.read() as cursor:
        rows = cursor.execute("SELECT generation, outcome, requester FROM turnout.swaps ORDER BY _id").fetchall()
    made, gone = "candidate", "discarded"
    assert rows == [(2, made, "test"), (2, gone, "test"), (3, made, "test"), (3, gone, "turnout")]


def test_file_that_needs_no_generation_discards_only_a_candidate_that_has_a_file(publishing: Publishing) -> None:
    publisher, wanted = publishing.publisher, publishing.of_file(max_viewers=7)
    decision = Decision((Verdict(None),), publisher.plan, Effect.CANDIDATE, asker=0)
    for number, apply in ((2, None), (3, publishing.apply_of(wanted))):
        message = publishing.queue.submit('{"joinType": "inner", "publish": false}', "test")
        request = SwapRequest([message], decision, apply)
        publisher.keep_candidate(publishing.generation(number, publisher.plan), request)
        other = publishing.queue.submit("{}", "test")
        publisher.adopt(other, publishing.apply_of(publishing.of_file(max_viewers=8 + number)))
        assert (publishing.lifecycle.candidate is None) == (apply is not None)
