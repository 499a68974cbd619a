"""What to run next: adopts what dead workers left, or carries out the plan, on a snapshot and without a lock."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from dsopt.errors import DsoptError
from dsopt.experiment.outcome import Measured, Slow
from dsopt.launch.device_locks import without_reserved
from dsopt.launch.placers.placer import ChoosingPlacer
from dsopt.report.changed_script import runs_of_others
from dsopt.report.left import mean_seconds
from dsopt.search.carry_out import next_run
from dsopt.search.history import History, Observation
from dsopt.search.plan import next_step
from dsopt.search.steps import Finish, GiveUp, RunReference, Wait
from dsopt.search.tally import Tally, tallies
from dsopt.store.attempts import Task
from dsopt.store.burying import Burying
from dsopt.store.leases import can_take, count_free, is_folder_free
from dsopt.store.signatures import check_trust_now
from dsopt.store.stored import StoredStudy
from dsopt.store.transactions import DevicesTaken, LeftToOthers, MustBeAlone, StudyChanged
from dsopt.store.trials import find_added
from dsopt.store.turns import Turns
from dsopt.store.workers import nodes_at_work
from dsopt.study.part import REFERENCE, Part
from dsopt.study.space import Candidate
from dsopt.worker.assignment import Assignment
from dsopt.worker.capacity import files_of, places_of_runs, request_of
from dsopt.worker.foreign import BEYOND_LIMITS, Foreign, is_beyond_limits, is_own, reference_candidate
from dsopt.worker.ground import Bears, StudyGround
from dsopt.worker.hand import Hand
from dsopt.worker.happenings import ScriptChanged, StudyProgressed, TaskEnded
from dsopt.worker.history import HistoryReader, Snapshot
from dsopt.worker.holders import Holders
from dsopt.worker.outage import Outage
from dsopt.worker.spooled import attributes_noted, known_outcome

_WAITS_SECONDS: Final = 30.0  # a trial that needs nodes of a training lets others begin
_LEFT_SECONDS: Final = 20.0  # and as long as a run takes, a run is left to other nodes
_LOOK_SECONDS: Final = 4.0  # so often, a worker looks whether others have died
_LOOK_SECONDS_EACH: Final = 0.25  # or so often, times how many there are: all of them look as often as sixteen


class Asker:
    """Asks in a worker's name what to run next of one study.

    Args:
        hand: what to carry the plan out with.
        study: the study.
        may_bury: whether this worker may take others for dead now.
        is_avoided: whether a trial should be left to workers of other nodes.
        bears: whether a run may begin beside those in hand.
        outage: what runs say of the machine.
    """

    def __init__(
        self,
        hand: Hand,
        study: StoredStudy,
        may_bury: Callable[[], bool],
        is_avoided: Callable[[tuple[Part, int]], bool],
        bears: Bears,
        outage: Outage,
    ) -> None:
        self._hand = hand
        self._study = study
        self._outage = outage
        self._may_bury = may_bury
        self._is_avoided = is_avoided
        self._bears = bears
        self._foreign = Foreign(hand.ledger, study, hand.tell)
        self._burying = Burying(hand.store.engine, hand.pool)
        self._turns = Turns(hand.store.engine, study.id)
        self._reader: HistoryReader | None = None
        self._look_at = -math.inf
        self._told = -1  # how many trials were over when watchers were last told
        self._idle_at: int | None = None  # the version at which there was nothing to run
        self._changes_told: tuple[list[str], int] = [], 0  # of the script: files, and runs before
        self._waits_until: dict[tuple[Part, int], float] = {}  # trials that others left, until they are tried again
        self._left_since: dict[tuple[str, int], float] = {}  # by name and round
        self._is_leaving = False  # a run to workers of other nodes, for a while
        self._lacks_devices = False  # others had them when it last planned
        self._files = ""  # the folder that runs have for themselves, when it last planned
        self._holders = Holders(hand, study)

    def next(self, version: int) -> Assignment | None:
        """Begins the next run. None: there is none now, because others run what comes first, or devices are taken.

        Args:
            version: the study's version now.

        Raises:
            Fenced: the study or this worker is gone.
            DsoptError: the study cannot continue before the user has fixed something, such as its signature; where the
                plan says so, it is stopped with that note.
        """
        self._look_after_the_dead()
        if self._idle_at == version:
            return None
        if self._lacks_devices and not self._are_devices_free():
            self._tell_of_holders()
            return None
        self._idle_at, self._lacks_devices, self._is_leaving = None, False, False
        self._holders.forget()
        check_trust_now(self._hand.store.engine, self._study)
        self._get_ready()
        refused_at = -1
        while True:
            try:
                with self._turns.take():
                    ground = StudyGround(self._hand, self._study, self.snapshot, self._bears, self._leaves)
                    self._files = files_of(self._study.spec, ground.history)
                    found = ground.run_proof(self._outage) if self._outage.is_shared else None
                    found = found or self._adopted(ground)
                    return found or (None if self._outage.avoids_others else self._planned(ground))
            except StudyChanged:
                now = self._hand.store.now(self._study)
                if now.state in ("finished", "stopped"):
                    return None
                if now.version == refused_at:
                    raise DsoptError(
                        f"study '{self._study.name}': its trials in Optuna's tables were removed, so that no new one "
                        "gets a number. Restore them from a backup, or create the study under another name."
                    ) from None
                refused_at = now.version
            except LeftToOthers:
                self._is_leaving = True
                return None
            except DevicesTaken:
                self._lacks_devices = True
                self._tell_of_holders()
                return None

    def _leaves(self, step: RunReference, known: History) -> bool:
        """Whether a run is left to the workers of other nodes; not for long, as those may have no devices for it."""
        if self._hand.pool.placer is not None or not (step.avoid or step.on):
            return False
        me = self._hand.ledger.me.node
        at_work = {me, *nodes_at_work(self._hand.store.engine, self._study.id)}
        if me not in step.left_by(at_work) or step.left_by(at_work) == at_work:
            return False
        since = self._left_since.setdefault((step.name, step.round), time.monotonic())
        run = mean_seconds(self._study.spec, known) or 0.0
        return time.monotonic() - since < _LEFT_SECONDS + run

    def _tell_of_holders(self) -> None:
        if not self._is_being_granted:
            self._holders.look(self._files)

    @property
    def may_begin_soon(self) -> bool:
        """Whether what keeps the next run from beginning is over in moments: others answer, measure, or begin it."""
        return self._is_being_granted or self._is_leaving or (self._lacks_devices and self._holders.are_soon_gone)

    @property
    def _is_being_granted(self) -> bool:
        """Whether it waits for the answer of an engine that chooses devices."""
        placer = self._hand.pool.placer
        return self._lacks_devices and isinstance(placer, ChoosingPlacer) and placer.standing in ("asked", "granted")

    def _are_devices_free(self) -> bool:
        """Whether there are devices for some run: to plan takes longer than to look."""
        spec, hand = self._study.spec, self._hand
        if self._files:
            with hand.store.engine.connect() as connection:
                if not is_folder_free(connection, self._files):
                    return False
        if isinstance(hand.pool.placer, ChoosingPlacer):
            return hand.pool.placer.standing not in ("asked", "queued")
        me = hand.ledger.me.node
        every = [hand.free_of(places) for places in places_of_runs(spec, hand.pool)]
        with hand.store.engine.connect() as connection:
            requests = [request_of(places) for places in every]
            if any(one.wanted is not None for one in requests):
                return any(one.wanted is None or can_take(connection, hand.ledger.me, one) for one in requests)
            least = min(requests, key=lambda one: one.count)
            return count_free(connection, me, replace(least, pool=without_reserved(least.pool))) >= least.count

    def _get_ready(self) -> None:
        """Does what takes long the first time before others wait for this worker's turn to end."""
        if self._reader is None:
            next_step(self._study.spec, self.snapshot().history)
            for part in self._study.parts:
                self._hand.store.optuna_study(self._study, part)

    def look_again(self) -> None:
        """Makes the next question look at everything again, such as after devices came free."""
        self._idle_at = None

    def snapshot(self) -> Snapshot:
        """What is known now; tells watchers when more of it is over, whoever ran it."""
        if self._reader is None:
            self._reader = HistoryReader(self._hand.store, self._study)
        known = self._reader.snapshot()
        while self._foreign.leave_out(known.history):
            known = self._reader.snapshot()
        over = sum(one.count for one in tallies(known.history, _Over))
        if self._told != over:
            self._told = over
            self._hand.tell(StudyProgressed(study=self._study, history=known.history))
        return known

    def _look_after_the_dead(self) -> None:
        if time.monotonic() < self._look_at:
            return
        ledger = self._hand.ledger
        with self._hand.store.engine.connect() as connection:
            added = find_added(connection, self._study)
            seen = self._burying.look(connection, ledger.me)
        self._look_at = time.monotonic() + max(_LOOK_SECONDS, _LOOK_SECONDS_EACH * len(seen.others))
        self._foreign.end_added(added)
        if self._burying.see_to(seen, ledger.me, may_bury=self._may_bury()):
            self._idle_at, self._look_at = None, -math.inf  # the dead may have left devices

    def _planned(self, ground: StudyGround) -> Assignment | None:
        found = next_run(self._study.spec, ground)
        match found:
            case Assignment():
                self._tell_of_script(found)
                return found
            case GiveUp(message=message):
                self._hand.ledger.change(self._study, version=ground.known.version, state="stopped", note=message)
                raise DsoptError(f"study '{self._study.name}': {message}")
            case Finish():
                self._hand.ledger.finish(self._study, version=ground.known.version)
            case Wait() if not ground.known.has_free:  # what is left to other nodes becomes this one's when they leave
                self._idle_at = ground.known.version
            case Wait():
                return ground.run_proof(self._outage)
        return None

    def _tell_of_script(self, begun: Assignment) -> None:
        """Tells watchers once of each change of the script since the runs before."""
        if self._study.spec.compare:
            return
        changes = files, runs = runs_of_others(self._study.spec, begun.history)
        if files and changes != self._changes_told:
            self._changes_told = changes
            self._hand.tell(ScriptChanged(study=self._study, task=begun.task, files=files, runs=runs))

    def _adopted(self, ground: StudyGround) -> Assignment | None:
        """Begins another attempt of a trial that another worker left, unless its outcome is known."""
        hand, study = self._hand, self._study
        task = hand.ledger.adopt(study, self._rank) if ground.known.has_free else None
        if task is None:
            return None
        ground.look_again()
        if not is_own(task.part, task.trial, ground.history):
            return self._adopted(ground)  # the snapshot has left it out
        if task.part != REFERENCE and is_beyond_limits(study, self._candidate(task, ground), ground.history):
            self._foreign.leave(task.part, task.trial, BEYOND_LIMITS)
            ground.look_again()
            return self._adopted(ground)
        attempts = hand.store.attempts_for(study, task)
        known = known_outcome(study.spec, attempts)
        if known is not None:
            lost = attempts[-1] if isinstance(known, Measured | Slow) else None
            left = attributes_noted(study.spec, lost) if lost is not None else None
            hand.ledger.end_without_a_run(study, task, known, lost, left)
            value = known.metric(study.spec.autotuning.metric) if isinstance(known, Measured) else None
            named = replace(task, candidate=self._candidate(task, ground))
            hand.tell(TaskEnded(study=study, task=named, outcome=known, value=value))
            ground.look_again()
            return self._adopted(ground)
        try:
            return ground.begin(task, self._candidate(task, ground))
        except (DevicesTaken, OSError, StudyChanged) as error:
            hand.ledger.leave(study, task)
            if not isinstance(error, DevicesTaken) or isinstance(error, MustBeAlone) or not hand.taken_nodes.now:
                raise
            # for as long as a training lasts; what needs fewer nodes may begin meanwhile
            self._waits_until[task.key] = time.monotonic() + _WAITS_SECONDS
            ground.look_again()
            return None

    def _rank(self, trial: tuple[Part, int]) -> tuple[int, int] | None:
        """What comes first of the trials that others left; None: it is not to be adopted now."""
        waits = self._is_avoided(trial) or time.monotonic() < self._waits_until.get(trial, -math.inf)
        return None if waits else self._outage.rank(trial)

    def _candidate(self, task: Task, ground: StudyGround) -> Candidate | None:
        """The point of the space that an adopted task runs; None for the user's own configuration."""
        if task.part == REFERENCE:
            return reference_candidate(self._study, task.name, ground.history)
        assert task.part.stage is not None
        return next(o.candidate for o in ground.history.stages[task.part.stage] if o.trial == task.trial)


class _Over(Tally):
    """How many runs are over."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, run: Observation) -> None:
        self.count += run.state != "running"
