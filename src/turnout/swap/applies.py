"""Applies: what a configuration that was sent would do to the one in force, and which one is in force at a start.

`swaps` does what is decided here, as it does for control messages: one at a time, and built beside what is published.
"""

import json
from dataclasses import dataclass, replace

from turnout.config import Settings, sent
from turnout.config.changes import Needs, SettingChange, compare
from turnout.config.configuration import Configuration, Proposed, file_text
from turnout.config.server import ApplyAccess
from turnout.config.tables import plan_after
from turnout.errors import ConfigError, TurnoutError
from turnout.plan.control import MAX_MESSAGE_BYTES, ApplyRequest, ControlRejected
from turnout.plan.plan import Plan
from turnout.store import config_history
from turnout.store.config_history import ConfigEntry
from turnout.store.database import PUBLISHED, Database, scalar
from turnout.store.ledger import MessageRecord

STARTED = "started"
"""The outcome of a configuration that came into force by a start."""

_SHOWN_CHANGES = 20


def apply_of(configuration: Configuration, message: ApplyRequest, plan: Plan) -> tuple[Proposed, Plan]:
    """What a message puts in force, and what the published plan becomes; ControlRejected where it cannot be applied."""
    try:
        proposed = configuration.proposed(message.config)
    except TurnoutError as error:
        raise _refused(error) from error
    if changes := proposed.needs(Needs.RESTART):
        why = f"{', '.join(change.path for change in changes)}: a change of this needs a restart"
        hint = "leave it as it is, or change the file that `turnout run` is started with, and restart"
        raise _not_applied("restart_needed", why, hint, proposed)
    limited = sent.allowed(proposed.in_force) is not ApplyAccess.ALL
    if limited and (paths := sent.beyond_tables(proposed.in_force, proposed.settings)):
        why = f"{', '.join(paths)}: this server takes no change of this over HTTP"
        hint = "leave it as it is, set access.apply to all, or change the file on disk and restart"
        raise _not_applied("forbidden", why, hint, proposed)
    if proposed.builds:
        plan = plan_after(plan, configuration.settings, proposed.settings)
    return proposed, plan


def described(changes: tuple[SettingChange, ...]) -> str:
    """Changes as one line for logs and the history."""
    more = f" and {len(changes) - _SHOWN_CHANGES} more" if len(changes) > _SHOWN_CHANGES else ""
    return "; ".join(map(str, changes[:_SHOWN_CHANGES])) + more


def _refused(error: TurnoutError) -> ControlRejected:
    code = "config_invalid" if isinstance(error, ConfigError) else error.code
    return ControlRejected(error.message, error.hint, code=code)


def _not_applied(code: str, why: str, hint: str, proposed: Proposed) -> ControlRejected:
    message = f"{why}, so nothing of the file was applied"
    return ControlRejected(message, hint, code=code, report=proposed.report)


# -- as messages


def record_of(
    configuration: Configuration, request: ApplyRequest, requester: str
) -> tuple[MessageRecord, ApplyRequest | ControlRejected]:
    """An apply as the store keeps it, and as it is decided. The store gets no secret, and nothing of a wrong file."""
    given = {"requestId": request.request_id, "expectedGeneration": request.expected_generation}
    fields = {"action": "apply", "dryRun": request.dry_run} | ({"force": True} if request.force else {})
    fields |= {name: value for name, value in given.items() if value is not None}
    record = MessageRecord(json.dumps(fields), requester)
    try:
        text = file_text(configuration.proposed(request.config).settings)
        if len(text.encode()) > MAX_MESSAGE_BYTES:
            raise TurnoutError("config_invalid", f"the file has more than {MAX_MESSAGE_BYTES:,} bytes", "shorten it")
    except TurnoutError as error:
        refused = _refused(error)
        refused.request_id = request.request_id
        return replace(record, refused=str(refused), apply=replace(request, config="")), refused
    return replace(record, apply=replace(request, config=text)), request


# -- at a start


@dataclass(frozen=True, slots=True)
class InForce:
    """The configuration in force at a start, the one before it, and a line about it for the log."""

    configuration: Configuration
    before: Settings
    said: str = ""


def in_force_at_start(settings: Settings, database: Database) -> InForce:
    """Find the configuration in force: that of the file if it has changed since the last start or apply, else the last.

    ConfigError where what was applied cannot be read any more.
    """
    configuration = Configuration(settings)
    if settings.origin is None:
        return InForce(configuration, settings)
    on_disk, last = file_text(settings), config_history.newest(database)
    if last is None:
        _keep(database, settings, ())
        return InForce(configuration, settings)
    try:
        before = configuration.taken_up(last.document)
    except ConfigError as error:
        if on_disk == last.on_disk != last.document:
            hint = "; or change the file on disk, which then takes its place"
            raise ConfigError([*error.faults[:-1], error.faults[-1] + hint]) from error
        before = settings  # it cannot be told what has changed
    if on_disk == last.document or not (changes := compare(before, settings)):
        return InForce(configuration, before)
    if on_disk == last.on_disk:
        who = f"that {last.requester} applied at {last.time:%Y-%m-%d %H:%M:%S} UTC"
        said = f"the configuration {who} stays in use: the file on disk has not changed since"
        return InForce(Configuration(before), before, said)
    _keep(database, settings, changes)
    return InForce(configuration, before, f"the file on disk has changed, and is used: {described(changes)}")


def _keep(database: Database, settings: Settings, changes: tuple[SettingChange, ...]) -> None:
    text = file_text(settings)
    with database.write() as cursor:
        entry = ConfigEntry(
            generation=scalar(cursor, PUBLISHED),
            requester="configuration",
            outcome=STARTED,
            changes=list(changes),
            document=text,
            on_disk=text,
        )
        config_history.add(cursor, entry)
