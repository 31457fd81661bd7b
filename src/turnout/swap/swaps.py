"""Swaps: decides the waiting messages by the rules of `swap_rules`, and does what they ask for.

The builder builds, the publisher switches and writes outcomes. All on the orchestrator's thread.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from turnout.config.configuration import Configuration
from turnout.config.settings import OnBreak
from turnout.errors import ConfigError, TurnoutError
from turnout.logs import Say, about
from turnout.plan.control import Action, ApplyRequest, ControlMessage, ControlRejected, Outcome, resolve
from turnout.plan.guards import BrokenGuard
from turnout.plan.plan import Plan
from turnout.plan.swap_rules import Decision, Effect, SwapState, Verdict, decide, interrupt, replay
from turnout.plan.times import now_milliseconds
from turnout.spark.jvm.engine import is_gone
from turnout.store.database import is_store_failure
from turnout.swap.applies import apply_of
from turnout.swap.builder import Builder, Cancelled
from turnout.swap.control_queue import ControlQueue, QueuedMessage, Reply
from turnout.swap.generations import Generation
from turnout.swap.lifecycle import Lifecycle
from turnout.swap.publisher import GUARD_BROKEN, Publisher, SwapRequest

_LOGGED_CHARS = 500
_TEMPORARY = ("kafka_unreachable", "registry_unreachable", "registry_refused")


@dataclass(frozen=True, slots=True)
class Swaps:
    """From waiting messages to their outcomes."""

    _queue: ControlQueue
    _publisher: Publisher
    _lifecycle: Lifecycle
    _builder: Builder
    _configuration: Configuration
    _say: Say

    def publish_first(self) -> None:
        """Build what the configuration and the control topic together ask for, and publish it."""
        messages = self._queue.waiting()
        decision = replay(
            [message.parsed for message in messages], self._publisher.plan, partial(self._expired, messages)
        )
        check = partial(self._check, len(messages), decision.plan)
        with self._builder.under_way(decision.plan):
            try:
                self._builder.validate(decision.plan, check)
            except TurnoutError as error:
                if decision.asker is None or _is_temporary(error) or self._fault_without_messages() == str(error):
                    raise
                self._reject(messages[decision.asker], error)
                return
            generation = self._builder.build(decision.plan, decision.read, first=True, check=check)
        self._publisher.publish(generation, SwapRequest(messages, decision), Outcome.APPLIED)

    def _expired(self, messages: Sequence[QueuedMessage], made: int, asked: int) -> bool:
        """Whether a message came when the time of the candidate that another had asked for was over."""
        now, seconds = now_milliseconds(), self._configuration.settings.swap.candidate_seconds
        first, second = (messages[index].record.timestamp_ms or now for index in (made, asked))
        return second - first >= 1000 * seconds

    def _fault_without_messages(self) -> str:
        """The fault of the plan without any message: no message is rejected for that one."""
        try:
            self._builder.validate(self._publisher.plan)
        except TurnoutError as error:
            return str(error)
        return ""

    def decide(self) -> None:
        """Decide the next messages that can be decided together, and do what they ask for."""
        waiting = self._queue.waiting()
        decision = decide([message.parsed for message in waiting], self._publisher.standing)
        messages = waiting[: len(decision.verdicts)]
        request = SwapRequest(messages, decision)
        self._log(request.verdicts)
        if decision.effect is Effect.NONE:
            self._publisher.unchanged(request.verdicts)
        elif decision.effect is Effect.DRY_RUN:
            self._dry_run(request)
        else:
            with about(request_id=messages[decision.asker or 0].request_id):
                if decision.effect is Effect.ROLLBACK:
                    self._rollback(request)
                elif decision.effect is Effect.APPLY:
                    self._apply(messages[0], decision)
                elif decision.effect is Effect.PUBLISH:
                    self._publish_candidate(request)
                elif decision.effect is Effect.DISCARD:
                    self._publisher.discard(f"discarded by {messages[0].record.requester}", messages[0])
                else:
                    candidate = decision.effect is Effect.CANDIDATE
                    self._swap(request, Outcome.CANDIDATE if candidate else Outcome.APPLIED)

    def _log(self, decided: Mapping[QueuedMessage, Verdict]) -> None:
        for message, verdict in decided.items():
            with about(request_id=message.request_id):
                self._log_message(message, verdict)

    def _log_message(self, message: QueuedMessage, verdict: Verdict) -> None:
        parsed, raw = message.parsed, (message.record.raw or "")[:_LOGGED_CHARS]
        if verdict.error is not None:
            # A file has a line for each fault, and its text says nothing more.
            of_file = f"configuration rejected: {verdict.error}" if message.record.apply is not None else ""
            self._say("ERROR", of_file.replace("\n", "; ") or f"control message rejected: {verdict.error} (raw: {raw})")
            return
        if isinstance(parsed, ApplyRequest):
            self._say("INFO", f"{message.record.requester} sent a configuration to apply")
            return
        assert isinstance(parsed, ControlMessage)
        for warning in parsed.warnings:
            self._say("WARNING", f"control message: {warning}")
        if parsed.action is Action.CHANGE:
            plan = resolve(parsed, self._publisher.plan)
            changed = str(plan != self._publisher.plan).lower()
            self._say("INFO", f"control message raw: {raw} resolved: {plan.describe()} changed: {changed}")
        else:
            self._say("INFO", f"control message raw: {raw} asks for a {parsed.action.value}")

    def _reject(self, message: QueuedMessage, error: TurnoutError, report: Mapping[str, Any] | None = None) -> None:
        """Put a rejection in the place of a message; the queue is then decided without it."""
        message.parsed = ControlRejected(error.message, error.hint, code=error.code, status=error.status, report=report)

    def _apply(self, message: QueuedMessage, decision: Decision) -> None:
        """Put another configuration in force: at once, or with a generation that is built by it."""
        assert isinstance(message.parsed, ApplyRequest)
        dry_run, now = message.parsed.dry_run, self._configuration.settings
        try:
            apply, plan = apply_of(self._configuration, message.parsed, self._publisher.plan)
        except ControlRejected as error:
            message.parsed = error
            return
        request = SwapRequest([message], replace(decision, plan=plan), apply)
        try:
            self._builder.generations.check_written(now.written_topics, apply.settings.written_topics)
        except TurnoutError as error:
            if dry_run:
                self._reject(message, error, apply.report)
            else:
                self._turn_down(request, error)
            return
        if dry_run:
            self._dry_run(request)
        elif not apply.changes:
            self._publisher.unchanged({message: Verdict(Outcome.UNCHANGED, "no change")})
        elif apply.builds:
            self._swap(request, Outcome.APPLIED)
        else:
            self._publisher.adopt(message, apply)

    def _turn_down(self, request: SwapRequest, error: TurnoutError) -> None:
        """Let a swap fail for a reason that may be gone in a moment; else reject the message that asked for it."""
        assert request.asker is not None
        if _is_temporary(error):
            self._publisher.fail(request, error)
        else:
            self._reject(request.asker, error, request.report)

    def _dry_run(self, request: SwapRequest) -> None:
        """Report what a build or an apply would do."""
        message, plan, apply = request.messages[0], request.plan, request.apply
        report = apply.report if apply else {}
        changes = plan != self._publisher.plan
        try:
            if apply is None:
                report = self._builder.dry_run(plan, request.decision.read, changes=changes)
                self._say("INFO", f"dry run: {plan.describe()} would be {'built' if changes else 'no change'}")
            elif apply.builds:
                self._builder.validate(plan)
                report |= self._builder.estimate(plan)
        except TurnoutError as error:
            if is_gone(error):
                raise
            self._reject(message, error, report if apply else None)
        else:
            self._queue.settle({message: Reply(Outcome.UNCHANGED, "dryRun", self._publisher.number, report=report)})

    def _rollback(self, request: SwapRequest) -> None:
        """Return to the previous plan: at once while its generation lingers, else by a build."""
        plan = request.plan
        if error := self._fault_of(plan):
            self._reject(request.messages[0], error)
            return
        lingering = [g for g in self._lifecycle.lingering if g.plan == plan and g.query is not None and g.query.running]
        if not lingering:
            self._swap(request, Outcome.ROLLED_BACK)
            return
        generation = max(lingering, key=lambda g: g.number)
        self._publisher.publish(generation, request, Outcome.ROLLED_BACK)

    def _fault_of(self, plan: Plan) -> TurnoutError | None:
        """Why a plan of before cannot be published any more: the rules or the file have changed since."""
        if fault := next(filter(None, map(self._queue.rules.fault, plan.topics.values())), None):
            return TurnoutError("bad_control", *fault)
        try:
            self._configuration.of(plan)
        except ConfigError as error:
            return TurnoutError("config_invalid", error.message, "apply a file instead")
        return None

    def _publish_candidate(self, request: SwapRequest) -> None:
        """Publish the candidate at once, with the file that it was built by, if an apply made it."""
        candidate = self._lifecycle.candidate
        assert candidate is not None and candidate.candidacy is not None
        [message], config = request.messages, candidate.candidacy.config
        try:
            if config is not None:
                apply, _ = apply_of(self._configuration, ApplyRequest(config), self._publisher.plan)
                request = replace(request, apply=apply)
            elif fault := self._fault_of(candidate.plan):
                raise fault
            if topics := candidate.deleted_topics():
                text = f"the candidate, generation {candidate.number}, cannot read on: topic {topics[0]!r} was deleted"
                raise TurnoutError("unknown_topic", text, "create the topic again, or discard the candidate")
        except TurnoutError as error:
            self._reject(message, error)
            return
        broken = self._broken_guards(message, candidate)
        if broken:
            self._publisher.fail(request, _guard_broken(broken))
        else:
            self._publish(candidate, request)

    def _broken_guards(self, asker: QueuedMessage | None, generation: Generation) -> list[BrokenGuard]:
        """The guards that a generation breaks, unless the message passes over them."""
        live = self._lifecycle.live
        return [] if live is None or _forces(asker) else self._builder.generations.broken_guards(live, generation)

    def _publish(self, generation: Generation, request: SwapRequest) -> None:
        """Publish a generation that breaks no guard, and have it watched if that is configured."""
        old = self._lifecycle.live
        self._publisher.publish(generation, request, Outcome.APPLIED)
        guards = self._configuration.settings.swap.guards
        if guards is not None and guards.watch and not _forces(request.asker):
            self._lifecycle.watched = old

    def watch(self) -> None:
        """Look at the guards again when the linger time ends; publish the generation before if one is broken."""
        old, live = self._lifecycle.end_of_watch(), self._lifecycle.live
        if old is None or live is None or not (broken := self._builder.generations.broken_guards(old, live)):
            return
        why = f"generation {live.number} breaks guards: {'; '.join(map(str, broken))}"
        self._say("ERROR", f"{why}; generation {old.number} is published again")
        self._publisher.publish(old, SwapRequest((), Decision((), old.plan)), Outcome.ROLLED_BACK, why)

    def _swap(self, request: SwapRequest, outcome: Outcome) -> None:
        """Build the plan beside the published generation, and publish it, or keep it as the candidate.

        A failure changes nothing.
        """
        plan, validated = request.plan, False
        check = partial(self._check, len(request.messages), plan, publishes=outcome is not Outcome.CANDIDATE)
        broken: list[BrokenGuard] = []
        guards = self._configuration.settings.swap.guards
        refuses = guards is not None and guards.on_break is OnBreak.REJECT and outcome is not Outcome.CANDIDATE

        def guard(generation: Generation) -> None:
            if outcome is not Outcome.ROLLED_BACK:
                broken.extend(self._broken_guards(request.asker, generation))
            if broken and refuses:
                raise _guard_broken(broken)

        try:
            with self._builder.under_way(plan):
                self._publisher.set_state(SwapState.VALIDATING)
                check()
                self._builder.validate(plan, check)
                validated = True
                generation = self._builder.build(plan, request.decision.read, first=False, check=check, guard=guard)
        except Cancelled as cancelled:
            self._publisher.cancel(request, cancelled.args[0])
        except TurnoutError as error:
            if not validated:
                self._publisher.set_state(SwapState.LIVE)
            if is_store_failure(error):
                raise
            if validated:
                self._publisher.fail(request, error)
            else:
                self._turn_down(request, error)
        else:
            if broken or outcome is Outcome.CANDIDATE:
                self._publisher.keep_candidate(generation, request, broken)
            elif outcome is Outcome.ROLLED_BACK:
                self._publisher.publish(generation, request, outcome)
            else:
                self._publish(generation, request)

    def _check(self, building: int, plan: Plan, *, publishes: bool = True) -> None:
        """Decide cancels and a rollback that wait behind the first `building` messages, whose plan is built.

        Cancelled if they end the build. Their outcomes are then written together with those of the build.
        """
        waiting = self._queue.waiting()[building:]
        parsed = [message.parsed for message in waiting]
        verdicts = interrupt(parsed, plan, self._publisher.number, publishes=publishes)
        decided = {waiting[index]: verdict for index, verdict in verdicts.items()}
        self._log({message: verdict for message, verdict in decided.items() if verdict.outcome is not None})
        if any(verdict.outcome is not Outcome.REJECTED for verdict in decided.values()):
            raise Cancelled(decided)
        if decided:
            self._publisher.unchanged(decided)


def _forces(message: QueuedMessage | None) -> bool:
    parsed = message.parsed if message else None
    return isinstance(parsed, ControlMessage | ApplyRequest) and parsed.force


def _guard_broken(broken: Sequence[BrokenGuard]) -> TurnoutError:
    hint = "check the topics; force ignores the guards, and swap.guards has their limits"
    return TurnoutError(GUARD_BROKEN, "; ".join(map(str, broken)), hint)


def _is_temporary(error: TurnoutError) -> bool:
    """Whether the error is temporary: the same plan may be valid in a moment."""
    return error.code in _TEMPORARY or is_gone(error)
