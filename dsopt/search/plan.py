"""What to do next, as a pure function of the spec and of what is known: an interrupted study just goes on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dsopt.search.history import History, ModelFacts, Observation, Phase
from dsopt.search.memory import MemoryModel
from dsopt.search.micro_batch import next_micro_batch, sizes_to_explore
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, Candidate, StageSpace
from dsopt.study.spec import StudySpec

# a finalist is within this fraction of the best: what lies further below is not the best by any noise we have seen
_FINALIST_WITHIN = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReference:
    """Run the user's configuration, the least-memory profile, or a finalist again."""

    name: str
    round: int
    candidate: Candidate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explore:
    """Try one of these candidates; in the "range" phase there is just one, and patience does not count yet."""

    stage: int
    candidates: Sequence[Candidate]
    phase: Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseStage:
    """A stage is done with; the verdict says why, for people."""

    stage: int
    verdict: str


@dataclass(frozen=True, slots=True)
class Wait:
    """What comes next depends on a run that another worker has in hand."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Everything has been measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """The study cannot go on before the user has mended something."""

    message: str


Step: TypeAlias = RunReference | Explore | CloseStage | Wait | Finish | GiveUp


def next_step(spec: StudySpec, history: History) -> Step:
    """The next step of a study: baseline, stages in order, confirmation."""
    step = _reference_step(spec, history)
    if step is not None:
        return step
    facts = history.facts
    assert facts is not None
    for stage in spec.stages:
        if stage not in history.verdicts:
            return _stage_step(spec, history, facts, stage)
    return _confirmation_step(spec, history)


def state_of(step: Step) -> str:
    """The study's state while this step is taken."""
    if isinstance(step, RunReference):
        return "baseline" if step.round == 0 else "confirming"
    return "searching"


def minimal_micro_batch(spec: StudySpec, facts: ModelFacts) -> int:
    """The micro-batch size a stage begins with: the user's, else what the user's own run had."""
    listed = spec.micro_batch_list
    if listed:
        return listed[0]
    given = spec.ds_config.get(MICRO_BATCH)
    smallest = given if isinstance(given, int) else facts.micro_batch
    return max(smallest, spec.autotuning.min_train_micro_batch_size_per_gpu)


def profile_candidate(spec: StudySpec) -> Candidate:
    """The configuration with the least memory that DeepSpeed's tutorial describes: ZeRO 3, micro-batch 1."""
    gas = spec.ds_config.get(ACCUMULATION)
    return Candidate(stage=3, micro_batch=1, gas=gas if isinstance(gas, int) else 1)


def finalists(spec: StudySpec, history: History) -> list[Observation]:
    """The measured candidates that may be the best: within 10 % of it, at most as many as the spec allows."""
    ranked = sorted(history.measured, key=history.score, reverse=True)
    if not ranked:
        return []
    best = ranked[0].value
    assert best is not None
    near = [o for o in ranked if o.value is not None and not history.is_better(best, o.value, _FINALIST_WITHIN)]
    return [o for o in near if not is_baseline(history, o.candidate)][: spec.confirmation.finalists]


def is_baseline(history: History, candidate: Candidate | None) -> bool:
    """Whether a candidate is the user's own configuration under another name."""
    baseline = history.find("baseline")
    facts = baseline.facts if baseline else None
    if facts is None or candidate is None or candidate.knobs:
        return False
    own = (facts.zero_stage, facts.micro_batch, facts.gas)
    return own == (candidate.stage, candidate.micro_batch, candidate.gas)


def _reference_step(spec: StudySpec, history: History) -> Step | None:
    baseline = history.find("baseline")
    if baseline is None:
        return RunReference(name="baseline", round=0, candidate=None)
    if baseline.state == "running":
        return Wait()
    if baseline.state == "measured":
        return None
    if baseline.reason in ("no_metrics", "timeout"):
        return GiveUp(message=f"the baseline could not be measured: {baseline.message}")
    profile = history.find("profile")
    if profile is None:
        return RunReference(name="profile", round=0, candidate=profile_candidate(spec))
    if profile.state == "running":
        return Wait()
    if profile.state == "measured":
        return None
    return GiveUp(
        message="neither your configuration nor the one with the least memory (ZeRO 3, micro-batch 1) runs. "
        f"Yours: {baseline.message} Least memory: {profile.message}"
    )


def _stage_step(spec: StudySpec, history: History, facts: ModelFacts, stage: int) -> Step:
    observations = history.stages[stage]
    memory = MemoryModel.fit(facts, history.observations)
    if not observations:
        verdict = _why_not(history, memory, stage)
        if verdict:
            return CloseStage(stage=stage, verdict=verdict)
    running = any(o.state == "running" for o in observations)
    spent = _budget_spent(spec, observations)
    if spent:
        return Wait() if running else CloseStage(stage=stage, verdict=spent)
    space, gas = spec.space(stage), facts.gas
    sizes = spec.micro_batch_list
    if sizes is None:
        size = _next_in_range(spec, history, facts, memory, space)
        if size is not None:
            # the next size depends on how this one does, so there is one at a time
            return (
                Wait()
                if running
                else Explore(stage=stage, candidates=[_first_setting(space, size, gas)], phase="range")
            )
        if running:
            return Wait()
        measured = _by_size([o for o in observations if o.phase == "range"], space, gas)
        sizes = tuple(sizes_to_explore(measured, spec.autotuning.num_tuning_micro_batch_sizes, history.is_better))
    tried = {o.name for o in observations}
    left = [c for c in space.candidates(sizes, gas) if c.name not in tried and _in_budget(spec, facts, c)]
    if left:
        return Explore(stage=stage, candidates=left, phase="explore")
    if running:
        return Wait()
    if history.best(stage) is None:
        message = next((o.message for o in observations if o.message), "nothing in it was small enough")
        return CloseStage(stage=stage, verdict=f"nothing ran: {message}")
    return CloseStage(stage=stage, verdict="explored")


def _budget_spent(spec: StudySpec, observations: Sequence[Observation]) -> str | None:
    """Why nothing more may be tried at a stage, if so."""
    launched = sum(o.launched for o in observations)
    if any(o.reason == "early_stopping" for o in observations):
        return f"explored; stopped after {spec.autotuning.tuner_early_stopping} runs without a better one"
    if launched >= spec.autotuning.tuner_num_trials:
        return f"explored; tuner_num_trials ({launched}) is spent"
    return None


def _why_not(history: History, memory: MemoryModel, stage: int) -> str | None:
    """Why a stage need not be entered at all, if so."""
    explored = [s for s in sorted(history.verdicts) if history.best(s) is not None and s < stage]
    if len(explored) >= 2:
        last, before = history.best(explored[-1]), history.best(explored[-2])
        assert last and before and last.value is not None and before.value is not None
        if not history.is_better(last.value, before.value):
            return f"not explored: ZeRO {explored[-1]} was no better than ZeRO {explored[-2]}"
    needed = memory.estimate(stage, 1)
    if needed > memory.facts.device_memory_bytes:
        have = memory.facts.device_memory_bytes
        return f"skipped: needs about {needed / 2**30:.1f} GiB a device at micro-batch 1, of {have / 2**30:.1f} GiB"
    return None


def _next_in_range(
    spec: StudySpec, history: History, facts: ModelFacts, memory: MemoryModel, space: StageSpace
) -> int | None:
    observations = history.stages[space.stage]
    measured = _by_size(observations, space, facts.gas)
    first = next(space.settings())
    unrunnable = {
        o.candidate.micro_batch
        for o in observations
        if o.state in ("infeasible", "failed") and o.candidate is not None and o.candidate.knobs == first
    }
    smallest = minimal_micro_batch(spec, facts)
    # what was best at the stage before is where this one's range begins
    before = [best.candidate for s in sorted(history.verdicts) if (best := history.best(s)) is not None]
    start = max(smallest, before[-1].micro_batch) if before and before[-1] is not None else smallest
    limits = [
        size
        for size in (
            memory.largest_micro_batch(space.stage),
            spec.autotuning.max_train_micro_batch_size_per_gpu,
            _largest_in_budget(spec, facts),
        )
        if size is not None
    ]
    return next_micro_batch(
        measured,
        unrunnable,
        start=start,
        floor=smallest if measured else spec.autotuning.min_train_micro_batch_size_per_gpu,
        ceiling=min(limits, default=None),
        is_better=history.is_better,
    )


def _by_size(observations: Sequence[Observation], space: StageSpace, gas: int) -> dict[int, float]:
    """Metric by micro-batch size, of those measured with the setting that the range is found with."""
    first = next(space.settings())
    return {
        o.candidate.micro_batch: o.value
        for o in observations
        if o.candidate is not None and o.value is not None and (o.candidate.knobs, o.candidate.gas) == (first, gas)
    }


def _first_setting(space: StageSpace, size: int, gas: int) -> Candidate:
    return Candidate(stage=space.stage, micro_batch=size, gas=gas, knobs=next(space.settings()))


def _largest_in_budget(spec: StudySpec, facts: ModelFacts) -> int | None:
    """The largest micro-batch size within `max_train_batch_size`."""
    total = spec.autotuning.max_train_batch_size
    return None if total is None else max(1, total * spec.autotuning.mp_size // (facts.world_size * facts.gas))


def _in_budget(spec: StudySpec, facts: ModelFacts, candidate: Candidate) -> bool:
    largest = _largest_in_budget(spec, facts)
    return largest is None or candidate.micro_batch <= largest


def _confirmation_step(spec: StudySpec, history: History) -> Step:
    """Rounds of the baseline and each finalist, every other one backwards, so that slow drift cancels out."""
    chosen = finalists(spec, history)
    if not chosen:
        return Finish()
    baseline = history.find("baseline")
    runs: list[tuple[str, Candidate | None]] = [(o.name, o.candidate) for o in chosen]
    if baseline is not None and baseline.state == "measured":
        runs.insert(0, ("baseline", None))
    waiting = False
    for round_ in range(1, spec.confirmation.rounds + 1):
        for name, candidate in runs if round_ % 2 else reversed(runs):
            found = history.find(name, round_)
            if found is None:
                return RunReference(name=name, round=round_, candidate=candidate)
            waiting = waiting or found.state == "running"
    return Wait() if waiting else Finish()
