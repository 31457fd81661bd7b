"""Swaps: decides the waiting messages by the rules of `swap_rules`, and does what they ask for.

The builder builds, the publisher switches and writes outcomes. All on the orchestrator's thread.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from turnout.config.configuration import Configuration
from turnout.errors import ConfigError, TurnoutError
from turnout.logs import about
from turnout.plan.control import Action, ControlMessage, ControlRejected, Outcome, resolve
from turnout.plan.swap_rules import Decision, SwapState, Verdict, Work, decide, replay
from turnout.spark.engine import is_gone
from turnout.store.config_history import as_json
from turnout.store.database import is_store_failure
from turnout.swap.applies import Apply, apply_of, is_apply, is_kept_apply
from turnout.swap.builder import Builder
from turnout.swap.control_queue import Answer, ControlQueue, QueuedMessage
from turnout.swap.health import Say
from turnout.swap.lifecycle import Lifecycle
from turnout.swap.publisher import Publisher

_SHOWN_OF_A_MESSAGE = 500
_NO_CHANGE = Verdict(Outcome.UNCHANGED, "no change")
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
        decision = replay([message.parsed for message in messages], self._publisher.plan)
        try:
            self._builder.validate(decision.plan)
        except TurnoutError as error:
            if decision.carrier is None or _is_temporary(error) or self._fault_without_messages() == str(error):
                raise
            self._reject(messages[decision.carrier], error)
            return
        generation = self._builder.build(decision.plan, first=True)
        self._publisher.publish(generation, messages, decision, Outcome.APPLIED)

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
        decision = decide([message.parsed for message in waiting], self._publisher.plan, self._publisher.number)
        messages = waiting[: len(decision.verdicts)]
        for message in messages:
            with about(request_id=message.request_id):
                self._log(message)
        if decision.work is Work.NONE:
            self._publisher.unchanged(messages, decision)
        elif decision.work is Work.DRY_RUN:
            self._dry_run(messages[0], decision)
        else:
            with about(request_id=messages[decision.carrier or 0].request_id):
                if decision.work is Work.ROLLBACK:
                    self._rollback(messages, decision)
                elif decision.work is Work.APPLY:
                    self._apply(messages[0], decision)
                else:
                    self._swap(messages, decision, Outcome.APPLIED)

    def _log(self, message: QueuedMessage) -> None:
        parsed, shown = message.parsed, (message.record.raw or "")[:_SHOWN_OF_A_MESSAGE]
        if is_apply(parsed):
            self._say("INFO", f"{message.record.requester} sent a configuration to apply")
            return
        if isinstance(parsed, ControlRejected):
            # A file has a line for each fault, and its text says nothing more.
            told = f"configuration rejected: {parsed}" if is_kept_apply(message.record.raw) else ""
            self._say("ERROR", told.replace("\n", "; ") or f"control message rejected: {parsed} (raw: {shown})")
            return
        for warning in parsed.warnings:
            self._say("WARNING", f"control message: {warning}")
        if parsed.action is Action.CHANGE:
            plan = resolve(parsed, self._publisher.plan)
            changed = str(plan != self._publisher.plan).lower()
            self._say("INFO", f"control message raw: {shown} resolved: {plan.describe()} changed: {changed}")
        else:
            self._say("INFO", f"control message raw: {shown} asks for a rollback")

    def _reject(self, message: QueuedMessage, error: TurnoutError, report: Mapping[str, Any] | None = None) -> None:
        """Put a rejection in the place of a message; the queue is then decided without it."""
        message.parsed = ControlRejected(
            error.message,
            error.hint,
            code=error.code,
            status=error.status,
            request_id=message.request_id,
            report=report,
        )

    def _apply(self, message: QueuedMessage, decision: Decision) -> None:
        """Put another configuration in force: at once, or with a generation that is built by it."""
        assert isinstance(message.parsed, ControlMessage)
        try:
            apply = apply_of(self._configuration, message.parsed, self._publisher.plan)
            dry_run = message.parsed.dry_run
            if not self._sinks_can_be(message, decision, apply, dry_run=dry_run):
                return
            if dry_run:
                self._dry_apply(message, apply)
            elif not apply.changes:
                self._publisher.unchanged([message], replace(decision, verdicts=(_NO_CHANGE,)))
            elif apply.builds:
                self._swap([message], replace(decision, plan=apply.plan), Outcome.APPLIED, apply)
            else:
                self._publisher.adopt(message, apply)
        except ControlRejected as error:
            message.parsed = error

    def _sinks_can_be(self, message: QueuedMessage, decision: Decision, apply: Apply, *, dry_run: bool) -> bool:
        """Whether the topics of new sinks are there; else the message is rejected, or has failed."""
        try:
            self._builder.check_sinks(self._configuration.settings.sinks, apply.settings.sinks)
        except TurnoutError as error:
            if dry_run:
                self._reject(message, error, {"changes": as_json(apply.changes)})
            else:
                self._turn_down([message], replace(decision, plan=apply.plan), error, apply)
            return False
        return True

    def _turn_down(
        self, messages: Sequence[QueuedMessage], decision: Decision, error: TurnoutError, apply: Apply | None
    ) -> None:
        """Let a swap fail for a reason that may be gone in a moment; else reject the message that asked for it."""
        assert decision.carrier is not None
        if _is_temporary(error):
            self._publisher.fail(messages, decision, error, apply)
        else:
            report = {"changes": as_json(apply.changes)} if apply else None
            self._reject(messages[decision.carrier], error, report)

    def _dry_apply(self, message: QueuedMessage, apply: Apply) -> None:
        """Report what an apply would do."""
        report: dict[str, Any] = {"changes": as_json(apply.changes)}
        if apply.builds:
            try:
                self._builder.validate(apply.plan)
                report["records"] = self._builder.estimate(apply.plan)
            except TurnoutError as error:
                if is_gone(error):
                    raise
                self._reject(message, error, report)
                return
        self._queue.settle([message], [Answer(Outcome.UNCHANGED, "dryRun", self._publisher.number, report=report)])

    def _dry_run(self, message: QueuedMessage, decision: Decision) -> None:
        """Report what a build would do."""
        assert isinstance(message.parsed, ControlMessage)
        plan = decision.plan
        if message.parsed.action is Action.ROLLBACK:
            plan = self._publisher.previous or self._publisher.plan
        changes = plan != self._publisher.plan
        try:
            report = self._builder.dry_run(plan, changes=changes)
        except TurnoutError as error:
            if is_gone(error):
                raise
            self._reject(message, error)
            return
        self._say("INFO", f"dry run: {plan.describe()} would be {'built' if changes else 'no change'}")
        self._queue.settle([message], [Answer(Outcome.UNCHANGED, "dryRun", self._publisher.number, report=report)])

    def _rollback(self, messages: Sequence[QueuedMessage], decision: Decision) -> None:
        """Return to the previous plan: at once while its generation lingers, else by a build."""
        plan = self._publisher.previous
        if plan is None:
            self._reject(messages[0], _nothing_to_roll_back())
            return
        if faults := self._queue.rules.faults(plan.topics.values()):
            message, hint = faults[0]
            self._reject(messages[0], TurnoutError("bad_control", message, hint))
            return
        try:
            self._configuration.of(plan)
        except ConfigError as error:
            self._reject(messages[0], TurnoutError("config_invalid", error.message, "apply a file instead"))
            return
        lingering = [g for g in self._lifecycle.lingering if g.plan == plan and g.query is not None and g.query.running]
        target = replace(decision, plan=plan, work=Work.BUILD)
        if not lingering:
            self._swap(messages, target, Outcome.ROLLED_BACK)
            return
        generation = max(lingering, key=lambda g: g.number)
        generation.build_seconds = generation.catch_up_seconds = 0.0  # this time it took none
        self._publisher.publish(generation, messages, target, Outcome.ROLLED_BACK)

    def _swap(
        self,
        messages: Sequence[QueuedMessage],
        decision: Decision,
        outcome: Outcome,
        apply: Apply | None = None,
    ) -> None:
        """Build the plan beside the published generation, and publish it; a failure changes nothing."""
        try:
            self._publisher.set_state(SwapState.VALIDATING)
            self._builder.validate(decision.plan)
        except TurnoutError as error:
            self._publisher.set_state(SwapState.LIVE)
            if is_store_failure(error):
                raise
            self._turn_down(messages, decision, error, apply)
            return
        try:
            generation = self._builder.build(decision.plan, first=False)
        except TurnoutError as error:
            if is_store_failure(error):
                raise
            self._publisher.fail(messages, decision, error, apply)
            return
        self._publisher.publish(generation, messages, decision, outcome, apply)


def _is_temporary(error: TurnoutError) -> bool:
    """Whether the error is temporary: the same plan may be valid in a moment."""
    return error.code in _TEMPORARY or is_gone(error)


def _nothing_to_roll_back() -> TurnoutError:
    return TurnoutError(
        "nothing_to_roll_back",
        "there is no plan before the present one",
        "a rollback needs an earlier swap; name topics or a join instead",
    )
