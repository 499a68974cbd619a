"""A study in the database, as the ground on which its plan is carried out: claims, Optuna's trials, verdicts."""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial

from dsopt.launch.maker import this_process
from dsopt.launch.placement import Placement
from dsopt.launch.placers.placer import ChoosingPlacer, LeasingPlacer
from dsopt.protocol.run_dir import RunDir
from dsopt.search import plan
from dsopt.search.baseline_twin import is_baseline
from dsopt.search.history import BASELINE, History
from dsopt.search.observing import profile_attributes
from dsopt.search.proof import proof_step
from dsopt.search.pruners import memory_pruner, runs_since_best_of
from dsopt.search.sampler import CandidateSampler, distributions
from dsopt.search.steps import Explore, RunReference
from dsopt.search.tuners import tuner_named
from dsopt.store import trials
from dsopt.store.attempts import NewTask, Task
from dsopt.store.leases import is_folder_free
from dsopt.store.reading import kept_trials
from dsopt.store.stored import StoredStudy
from dsopt.store.transactions import DevicesTaken, LeftToOthers, MustBeAlone
from dsopt.study.comparison import spec_of_run
from dsopt.study.folders import results_folder
from dsopt.study.own_sources import script_source
from dsopt.study.part import REFERENCE, VERDICT, Part
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec
from dsopt.study.trial_attributes import TrialAttributes
from dsopt.worker.assignment import Assignment
from dsopt.worker.capacity import Places, files_of, places_of, request_of
from dsopt.worker.foreign import reference_candidate
from dsopt.worker.hand import Hand
from dsopt.worker.happenings import StageClosed, TaskSkipped
from dsopt.worker.history import Snapshot
from dsopt.worker.outage import Outage

Bears: TypeAlias = Callable[[StudySpec, int, Candidate | None, bool], bool]


class StudyGround:
    """A study that workers share, as the ground on which its plan is carried out.

    Nothing is locked while the plan is made. Each of its steps holds for the version of the study that was read; if
    somebody else has changed the study since, the step raises `StudyChanged` and has changed nothing.

    Attributes:
        known: what the next step is decided on.
    """

    def __init__(
        self,
        hand: Hand,
        study: StoredStudy,
        read: Callable[[], Snapshot],
        bears: Bears,
        leaves: Callable[[RunReference, History], bool],
    ) -> None:
        self._bears = bears
        self._leaves = leaves
        self._hand = hand
        self._study = study
        self._read = read
        self.known = read()

    @property
    def history(self) -> History:
        """What is known now."""
        return self.known.history

    def look_again(self) -> None:
        """Takes in what this worker itself has changed."""
        self.known = self._read()

    def close_stage(self, stage: int, verdict: str) -> None:
        """Writes the verdict on the stage's Optuna study."""
        self._hand.ledger.mark_part(self._study, Part.of(stage), {VERDICT: verdict}, version=self.known.version)
        self._hand.tell(StageClosed(study=self._study, stage=stage, verdict=verdict))
        self.look_again()

    def run_reference(self, step: RunReference) -> Assignment:
        """Begins a reference run.

        Raises:
            LeftToOthers: workers of other nodes should begin it.
            DevicesTaken: as `begin` says.
        """
        if self._leaves(step, self.history):
            raise LeftToOthers
        profile = profile_attributes(step.candidate) if step.name == "profile" and step.candidate else TrialAttributes()
        attrs = TrialAttributes(candidate=step.name, round=step.round) | profile
        if step.why:
            attrs["why"] = step.why
        frozen = create_trial(state=TrialState.RUNNING, user_attrs=dict(attrs))
        task = NewTask(part=REFERENCE, name=step.name, round=step.round, frozen=frozen)
        candidate = reference_candidate(self._study, step.name, self.history)
        return self.begin(task, candidate, plan.state_of(step), step.left_by)

    def run_proof(self, outage: Outage) -> Assignment | None:
        """Begins a run that shows whether the machine is well, if one is needed, and there is one.

        Raises:
            LeftToOthers, DevicesTaken: as for a reference run.
        """
        outage.keep(_open_trials(self.history))
        if (nodes := outage.unproved_on) is None:
            return None
        step = proof_step(self._study.spec, self.history, nodes, outage.waiting)
        return None if step is None else self.run_reference(step)

    def explore(self, step: Explore) -> Assignment | None:
        """Asks the sampler (ours) for a candidate and begins its run. None: it needs no run, or a pruner refused it."""
        known = self.history.facts_for(self._study.spec)
        space = self._study.spec.space(step.stage, known.hidden_size if known else None)
        part, shapes = Part.of(step.stage), distributions(space)
        optuna_study = self._hand.store.optuna_study(self._study, part)
        sampler = CandidateSampler(
            step.candidates,
            space,
            tuner=tuner_named(self._study.spec.autotuning.tuner_type),
            observations=self.history.stages[step.stage],
            maximize=self._study.spec.autotuning.maximize,
            forecast=step.forecast,
        )
        asked = create_trial(state=TrialState.RUNNING)
        asked.number = self.known.numbers[part]
        params = sampler.sample_relative(optuna_study, asked, shapes)
        candidate = Candidate.from_params(step.stage, params)
        attrs = TrialAttributes(candidate=candidate.name, phase=step.phase)
        task = NewTask(part=part, name=candidate.name, round=0, frozen=asked, phase=step.phase)
        if is_baseline(self._study.spec, self.history, candidate):
            own = "it is your own configuration, measured as the baseline"
            like = trials.trial_like(self._baseline(), BASELINE, attrs=attrs, params=params, distributions=shapes)
            self._skip(replace(task, frozen=like), candidate, own, step)
            return None
        frozen = create_trial(state=TrialState.RUNNING, params=params, distributions=shapes, user_attrs=dict(attrs))
        refusal = _refusal(self._study, step, optuna_study, frozen, self.history)
        if refusal is not None:
            refused = trials.refused_trial(*refusal, attrs=attrs, params=params, distributions=shapes)
            self._skip(replace(task, frozen=refused), candidate, refusal[1], step)
            return None
        if step.forecast is not None:
            frozen.set_user_attr("why", step.forecast.of([candidate]).why(0, step.forecast.best))
        return self.begin(replace(task, frozen=frozen), candidate, plan.state_of(step))

    def begin(
        self,
        task: Task | NewTask,
        candidate: Candidate | None,
        state: str | None = None,
        left_by: Callable[[Iterable[str]], Collection[str]] = lambda _: (),
    ) -> Assignment:
        """Begins an attempt of a task; a new one is claimed with it.

        Args:
            candidate: what it runs.
            state: of the study from then on.
            left_by: of some nodes, those to take only if no others are free.

        Raises:
            DevicesTaken: not enough devices are free now; `MustBeAlone`: the run must wait until it is alone.
            Fenced, OSError: the study has changed, or the task is another's; the run directory cannot be made.
        """
        hand, study = self._hand, replace(self._study, spec=spec_of_run(self._study.spec, task.name))
        if not self._bears(study.spec, task.round, candidate, isinstance(task, NewTask)):
            raise MustBeAlone
        places, script, files = self._places(study.spec, candidate), script_source(study.spec), self._folder(study.spec)
        with self._granted(places) as granted:
            request = request_of(places, [*hand.lost_nodes, *left_by(places.nodes)], granted, files)
            run_dir = RunDir.create(results_folder(study.spec), task.name, hand.store.identity, this_process())
            try:
                if isinstance(task, NewTask):
                    task.frozen.set_user_attr("run_dir", str(run_dir.path))
                    claimed, attempt = hand.ledger.begin(
                        study, task, run_dir.path, request, decisions=self.known.decisions, state=state
                    )
                else:
                    claimed, attempt = hand.ledger.begin(study, task, run_dir.path, request)
            except BaseException:
                run_dir.discard()
                raise
        nodes = tuple(attempt.hosts or places.hosts) or (() if study.spec.is_simulated else (hand.ledger.me.node,))
        return Assignment(
            study=study,
            task=replace(claimed, candidate=candidate),
            attempt=attempt,
            run_dir=run_dir,
            history=self.history,
            placement=places.placer.place(attempt.hosts) if isinstance(places.placer, LeasingPlacer) else granted,
            nodes=nodes,
            rates=hand.speed.of(nodes),
            strangers=hand.strangers,
            script=script,
            is_first=isinstance(task, NewTask),
        )

    def _folder(self, spec: StudySpec) -> str:
        """The name of the folder that a run has for itself; empty: of none.

        Raises:
            DevicesTaken: another has it.
        """
        files = files_of(spec, self.history)
        if files:
            with self._hand.store.engine.connect() as connection:
                if not is_folder_free(connection, files):
                    raise DevicesTaken
        return files

    def _places(self, spec: StudySpec, candidate: Candidate | None) -> Places:
        """Where a run may take place now, on devices that are no slower than others if there are enough of them."""
        return self._hand.free_of(places_of(spec, self._hand.pool, candidate))

    @contextlib.contextmanager
    def _granted(self, places: Places) -> Iterator[Placement | None]:
        """What an engine that chooses devices itself grants to a run: it gets it back unless the run begins.

        Raises:
            DevicesTaken: it has granted nothing yet.
        """
        placer = places.placer
        if not isinstance(placer, ChoosingPlacer):
            yield None
            return
        assert places.wanted is not None
        granted = placer.acquire(places.wanted, self._hand.lost_nodes, self._hand.wake)
        if granted is None:
            raise DevicesTaken
        try:
            yield granted
        except BaseException:
            self._hand.release(granted)
            raise

    def _skip(self, task: NewTask, candidate: Candidate, why: str, step: Explore) -> None:
        state = plan.state_of(step)
        skipped = self._hand.ledger.skip(self._study, task, decisions=self.known.decisions, state=state)
        self.look_again()
        self._hand.tell(TaskSkipped(study=self._study, task=replace(skipped, candidate=candidate), why=why))

    def _baseline(self) -> FrozenTrial:
        baseline = self.history.find(BASELINE)
        assert baseline is not None, "a candidate can be the baseline only after that was measured"
        kept = kept_trials(self._hand.store, self._study)
        return next(one.trial for one in kept if (one.part, one.trial.number) == (REFERENCE, baseline.trial))


def _refusal(
    study: StoredStudy, step: Explore, optuna_study: optuna.Study, trial: FrozenTrial, history: History
) -> tuple[str, str] | None:
    """Why a pruner refuses a trial before it costs a run, as reason and message; None if none does."""
    if memory_pruner(step.memory, step.stage).prune(optuna_study, trial):
        return "predicted_oom", step.memory.why_not(Candidate.from_params(step.stage, trial.params)) or ""
    patience = study.spec.autotuning.patience
    if step.phase == "explore" and runs_since_best_of(history, step.stage) >= patience:
        return "early_stopping", f"the last {patience} runs of this stage brought nothing better"
    return None


def _open_trials(history: History) -> set[tuple[Part, int]]:
    """The trials that are not over."""
    parts = {REFERENCE: history.reference} | {Part.of(stage): found for stage, found in history.stages.items()}
    return {(part, o.trial) for part, found in parts.items() for o in found if o.state == "running"}
