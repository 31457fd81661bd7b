"""The live, building and lingering generations and the candidate: restarts their queries, and retires them.

Publisher and builder set the live and the building one, and the candidate. Only the orchestrator's thread calls the
methods; other threads may read `live`, `building`, `candidate` and `lingering`.
"""

import logging
import time
from dataclasses import dataclass, field

import duckdb

from turnout.config.settings import SwapSettings
from turnout.errors import TurnoutError, first_line
from turnout.logs import Say, about
from turnout.plan.swap_rules import SwapState, to_retire
from turnout.store.database import is_store_failure, store_failed
from turnout.store.ledger import CandidateRecord
from turnout.swap.build_progress import BuildMeter
from turnout.swap.generations import Generation, Generations
from turnout.swap.health import Health, Subject
from turnout_client.retries import growing_pause

log = logging.getLogger("turnout")

PAUSES_SECONDS = (0.25, 5.0)
"""The first and the longest pause before something that failed is tried again."""
_NO_ROOM = "No space left on device"


@dataclass(slots=True)
class Lifecycle:
    """All living generations."""

    settings: SwapSettings
    _health: Health
    _say: Say
    generations: Generations | None = None
    live: Generation | None = None
    building: Generation | None = None
    progress: BuildMeter | None = None
    """The progress of the build under way, from its validation on."""
    candidate: Generation | None = None
    lingering: list[Generation] = field(default_factory=list)
    watched: Generation | None = None
    """The generation before the live one, if guards are looked at again when its linger time ends."""
    _leftovers: list[Generation] = field(default_factory=list)

    def all(self) -> list[Generation]:
        some = [self.live, self.building, self.candidate, *self.lingering, *self._leftovers]
        return [generation for generation in some if generation is not None]

    def maintain(self) -> None:
        """Start queries again that ended, and close generations whose time is over."""
        if self.live is not None:
            self.keep_reading(self.live)
        if not self._health.has(Subject.SPARK):  # after a restart, the published generation comes first
            for generation in (*self.lingering, self.candidate):
                if generation is not None:
                    self.keep_reading(generation)
        self._end_lingering(self.settings.max_linger_generations)
        self._remove_leftovers()

    def go_on(self, generations: Generations) -> None:
        """After a restart of Spark: give every generation a query from its checkpoint, the published one first."""
        self.generations = generations
        for generation in [self.live, *self.lingering, self.candidate]:
            if generation is not None:
                generations.give_query(generation)
                generation.waiting, generation.restarts, generation.restart_at = True, 1, 0.0

    def keep_reading(self, generation: Generation) -> None:
        """Restart a query that has ended, after a pause that grows."""
        query = generation.query
        assert query is not None
        shown = generation is self.live or generation is self.building
        with about(generation=generation.number):
            if query.running:
                if shown and (generation.restarts == 0 or query.idle):
                    generation.restarts = 0
                    self._health.good(Subject.SPARK, f"Spark runs again, and generation {generation.number} reads")
                    self._health.good(Subject.READING, f"generation {generation.number} reads again")
                return
            if not generation.waiting and (failure := query.failure()) is not None:
                self._pause(generation)
                self._note_failure(generation, failure, shown)
            if generation.waiting and time.monotonic() >= generation.restart_at:
                self._pause(generation)  # before the next attempt, if this one fails
                # After two failures, a record may be the reason.
                query.start(careful=generation.restarts > 3)
                generation.waiting = False

    def take_up(self, generation: Generation, candidacy: CandidateRecord | None = None) -> None:
        """Make a generation of the store the live one or the candidate, after a restart. `maintain` starts it."""
        generation.waiting = True
        if candidacy is not None:
            self.make_candidate(generation, candidacy)
        else:
            self.live, generation.state = generation, SwapState.LIVE

    def make_candidate(self, generation: Generation, candidacy: CandidateRecord) -> None:
        """Make a generation the candidate; another one goes."""
        self.let_candidate_go()
        self.candidate, generation.state, generation.candidacy = generation, SwapState.CANDIDATE, candidacy

    def begin(self, generation: Generation) -> None:
        """Note a build. What kept the orchestrator from building is over."""
        self.building = generation
        self._health.good(Subject.STEP)

    def replace(self, old: Generation | None, new: Generation) -> None:
        """Make `new` the live generation; `old` lingers, and another candidate goes."""
        if self.candidate is new:
            self.candidate = None
        self.let_candidate_go()
        self.watched = None
        new.state = SwapState.LIVE
        self.lingering = [g for g in self.lingering if g is not new]
        if old is not None:
            old.state = SwapState.LINGERING
            old.lingering_since = time.monotonic()
            self._end_lingering(max(0, self.settings.max_linger_generations - 1))
            self.lingering.append(old)
        self.live = new
        if old is None:
            self._clear_shown_before(new)

    def end_of_watch(self) -> Generation | None:
        """The generation before the live one, once: when its linger time ends, and it was kept to be compared."""
        watched = self.watched
        if watched is None or time.monotonic() < watched.lingering_since + self.settings.linger_seconds:
            return None
        self.watched = None
        return watched

    def let_candidate_go(self) -> None:
        """Give up the candidate, if there is one; `maintain` removes it."""
        if self.candidate is not None:
            self.candidate.state = SwapState.RETIRED
            self._leftovers.append(self.candidate)
            self.candidate = None

    def discard(self, generation: Generation) -> None:
        """Remove a failed build: now, or later if the store fails."""
        self._leftovers.append(generation)
        try:
            self._remove_leftovers()
        except Exception as error:
            log.warning("generation %d is removed later: %s", generation.number, first_line(error))

    def _pause(self, generation: Generation) -> None:
        generation.waiting = True
        generation.restarts += 1
        generation.restart_at = time.monotonic() + growing_pause(generation.restarts, *PAUSES_SECONDS)

    def _note_failure(self, generation: Generation, failure: str, shown: bool) -> None:
        hint = "; check that the disk of data_dir has room" if _NO_ROOM in failure else ""
        text = f"generation {generation.number} stopped reading: {failure}; it tries again{hint}"
        if shown:
            self._health.bad(Subject.READING, text)
        else:
            self._say("ERROR", text)
        error = generation.query.error if generation.query is not None else None
        if error is not None and is_store_failure(error):
            self._health.bad(Subject.STORE, store_trouble(error))

    def _clear_shown_before(self, first: Generation) -> None:
        """Remove the empty tables, or those with other columns, that readers saw before the first publish."""
        assert self.generations is not None
        try:
            self.generations.clear_all_but(first.number)
        except (duckdb.Error, TurnoutError) as error:
            log.warning("tables from before the first publish are removed at the next start: %s", first_line(error))

    def _end_lingering(self, most: int) -> None:
        """Let lingering generations go whose time is over, and the oldest beyond `most`; `maintain` removes them."""
        lingering = {g.number: g.lingering_since for g in self.lingering if g is not self.watched}
        for number in to_retire(lingering, time.monotonic(), self.settings.linger_seconds, most):
            generation = next(g for g in self.lingering if g.number == number)
            self.lingering.remove(generation)
            generation.state = SwapState.RETIRED
            self._leftovers.append(generation)

    def _remove_leftovers(self) -> None:
        while self._leftovers:
            assert self.generations is not None
            self.generations.remove(self._leftovers[0])
            number = self._leftovers.pop(0).number
            with about(generation=number):
                self._say("INFO", f"closed generation {number}")


def store_trouble(error: BaseException) -> str:
    """Describe what is wrong with the store, and what to do."""
    return str(store_failed(error) if isinstance(error, duckdb.Error) else error)
