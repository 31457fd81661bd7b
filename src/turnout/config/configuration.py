"""The configuration in force: one object that all ask, because an apply changes it while the process runs.

It knows the settings of now, those of any generation, and what a text that is to be applied would make of them.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from turnout.config import document as yaml_document
from turnout.config import secrets, sent
from turnout.config.changes import SECTIONS, Needs, SettingChange, as_json, compare
from turnout.config.loading import completed, document_of, parse, read_document
from turnout.config.output_checks import fitting_alerts
from turnout.config.server import ApplyAccess
from turnout.config.settings import FileOrigin, Settings
from turnout.config.tables import sections_of
from turnout.errors import ConfigError, TurnoutError
from turnout.plan.control_parsing import is_text
from turnout.plan.plan import Plan

BODY = "the file"
"""How a text that was sent is named in its faults."""

_KEPT = 8


def file_text(settings: Settings) -> str:
    """The file that settings were read from, as it may be shown and kept: secrets as `***`, no comments."""
    origin = settings.origin
    return "" if origin is None else _kept_text(origin.document)


def _kept_text(document: Mapping[str, Any]) -> str:
    return yaml_document.to_yaml(secrets.redacted(document))


@dataclass(frozen=True, slots=True)
class Proposed:
    """Settings that are to be applied, and how they differ from those in force."""

    settings: Settings
    changes: tuple[SettingChange, ...]
    in_force: Settings

    def needs(self, needs: Needs) -> list[SettingChange]:
        return [change for change in self.changes if change.needs is needs]

    @property
    def builds(self) -> bool:
        """Whether a generation has to be built for them."""
        return bool(self.needs(Needs.GENERATION))

    @property
    def report(self) -> dict[str, Any]:
        """What the sender is told of it."""
        return {"changes": as_json(self.changes)}


def _with_sinks(sections: dict[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of a generation with the sinks in force, where it has their tables, and its own of other tables."""
    tables, shown = _tables(sections), _tables(now)
    sinks = {name: sink for name, sink in (sections.get("sinks") or {}).items() if sink["table"] not in shown}
    sinks |= {name: sink for name, sink in (now.get("sinks") or {}).items() if sink["table"] in tables}
    others = {name: value for name, value in sections.items() if name != "sinks"}
    return {**others, "sinks": sinks} if sinks else others


def _tables(document: Mapping[str, Any]) -> set[str]:
    return {*(source["table"] for source in document["sources"].values()), *(document.get("views") or {})}


class Configuration:
    """The settings in force. The orchestrator's thread changes them; any thread may read."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._listeners: list[Callable[[Settings], None]] = []
        # Each is replaced as a whole, because any thread may read it.
        self._others: dict[str, Settings] = {}
        self._proposed: dict[str, Proposed] = {}

    def listen(self, listener: Callable[[Settings], None]) -> None:
        """Call `listener` with the settings whenever they change, on the thread that changes them; it must not fail."""
        self._listeners.append(listener)

    def adopt(self, settings: Settings) -> None:
        """Put settings in force."""
        if settings is not self.settings:
            self.settings = settings
            self._others, self._proposed = {}, {}
            for listener in self._listeners:
                listener(settings)

    def of(self, plan: Plan) -> Settings:
        """The settings in force with the sections of a plan; ConfigError where these cannot be read any more."""
        if not plan.sections or plan.sections == sections_of(self.settings):
            return self.settings
        found = self._others.get(plan.sections)
        if found is None:
            now = self._origin().document
            others = {name: value for name, value in now.items() if name not in (*SECTIONS, "alerts")}
            document = others | _with_sinks(json.loads(plan.sections), now)
            found = self._parsed(document)
            if alerts := fitting_alerts(self.settings, found):
                found = self._parsed({**document, "alerts": {name: now["alerts"][name] for name in alerts}})
            self._others = dict([(plan.sections, found), *self._others.items()][:_KEPT])
        return found

    def proposed(self, text: str) -> Proposed:
        """What a sent text would put in force, parsed once for each file in force; ConfigError has all its faults.

        Nothing that it names is run or read: `sent` refuses what the file in force does not name. Any thread may call.
        """
        in_force, found = self.settings, self._proposed.get(text)
        if found is None or found.in_force is not in_force:
            settings = self._parsed(self._sent_document(text), text)
            found = Proposed(settings, compare(in_force, settings), in_force)
            self._proposed = dict([(text, found), *self._proposed.items()][:_KEPT])
        return found

    def _sent_document(self, text: str) -> dict[str, Any]:
        origin = self._origin()
        if sent.allowed(self.settings) is ApplyAccess.OFF:
            hint = "access.apply says what may be changed; change the file on disk and restart"
            raise TurnoutError("forbidden", "this server does not accept a configuration over HTTP", hint)
        if not text.strip():
            raise ConfigError([f"{BODY} is empty; send the whole turnout.yaml as the body"])
        if not is_text(text):
            raise ConfigError([f"{BODY} is not UTF-8 text; save it as UTF-8"])
        document = document_of(text, BODY)
        if not document:
            raise ConfigError([f"{BODY}: has no settings; send the whole turnout.yaml"])
        sent.check(document, origin)
        return document

    def on_disk(self) -> str | None:
        """The file that the process was started with as it is now, as it may be kept; None where it cannot be read."""
        path = self._origin().path
        try:
            return None if path is None else _kept_text(completed(read_document(path)))
        except ConfigError:
            return None

    def taken_up(self, text: str) -> Settings:
        """The settings of a kept text; what is secret in it comes from the settings in force."""
        return self._parsed(document_of(text, "the applied configuration that the store keeps"))

    def _parsed(self, document: Mapping[str, Any], text: str = "") -> Settings:
        origin = self._origin()
        return parse(document, origin.folder, origin.environ, origin, text=text)

    def _origin(self) -> FileOrigin:
        if self.settings.origin is None:
            raise TurnoutError(
                "config_invalid",
                "this server was not started with a file, so none can be applied",
                "start it with `turnout run -c turnout.yaml`",
            )
        return self.settings.origin
