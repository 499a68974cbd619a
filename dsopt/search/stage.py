"""What to do next at one ZeRO stage: find the range of micro-batch sizes, explore within it, close the stage."""

from collections.abc import Sequence
from dataclasses import replace

from dsopt.search.facts import ModelFacts
from dsopt.search.forecast import Forecast
from dsopt.search.history import History, Observation
from dsopt.search.limits import accumulations, in_budget, largest_in_budget, listed_sizes
from dsopt.search.memory import MemoryModel
from dsopt.search.micro_batch import next_micro_batch, sizes_to_explore
from dsopt.search.ruled_out import ruled_out
from dsopt.search.steps import CloseStage, Explore, Step, Wait
from dsopt.search.tally import Tally, tally
from dsopt.search.verdicts import budget_spent, nothing_ran, reasons_against, unavailable
from dsopt.study.own_sizes import smallest_micro_batch
from dsopt.study.space import Candidate, Setting, StageSpace
from dsopt.study.spec import StudySpec


def stage_step(spec: StudySpec, history: History, facts: ModelFacts, stage: int) -> Step:
    """The next step at a stage.

    Settings that differ in what changes memory (offload, checkpointing, other flags, resources) form groups, each with
    its own range of micro-batch sizes; then everything that is left is explored together.
    """
    verdict = unavailable(spec, stage)
    if verdict:
        return CloseStage(stage=stage, verdict=verdict)
    observations = history.stages[stage]
    space = spec.space(stage, facts.hidden_size)
    # only one tuner uses predicted speed; all use whether a candidate fits
    forecast = Forecast(spec, facts, history) if spec.autotuning.tuner_type == "model_based" else None
    memory = forecast.memory if forecast else MemoryModel(spec, facts, history)
    if not observations:
        verdict = _why_not_entered(spec, history, space, memory)
        if verdict:
            return CloseStage(stage=stage, verdict=verdict)
    tried = tally(history, stage, _Tried)
    running = tried.running > 0
    spent = _budget_spent(spec, observations, tried)
    if spent:
        return Wait() if running else CloseStage(stage=stage, verdict=spent)
    left: list[Candidate] = []
    out = ruled_out(spec, history, facts)
    for group in space.groups():
        first = space.settings(group)[0]
        gases = accumulations(spec, facts, first) if out.gas is None else (out.gas,)
        sizes = _listed(spec, history, memory, stage, first) if out.micro_batch is None else (out.micro_batch,)
        if sizes is None:
            size = _next_in_range(spec, history, memory, stage, first, gases[0])
            if size is not None:
                # the next size depends on this one's result, so sizes run one at a time
                candidate = Candidate(stage=stage, micro_batch=size, gas=gases[0], knobs=first)
                return Wait() if running else Explore(stage=stage, candidates=[candidate], phase="range", memory=memory)
            if running:
                return Wait()
            measured = _by_size([o for o in observations if o.phase == "range"], first, gases[0])
            sizes = tuple(sizes_to_explore(measured, spec.autotuning.num_tuning_micro_batch_sizes, history.is_better))
        for gas in gases:
            left += space.untried(tried.names, in_budget(spec, facts, first, sizes, gas), (gas,), group)
    if left:
        return Explore(stage=stage, candidates=left, phase="explore", memory=memory, forecast=forecast)
    if running:
        return Wait()
    if history.best(stage) is None:
        return CloseStage(stage=stage, verdict=nothing_ran(observations))
    return CloseStage(stage=stage, verdict="explored")


class _Tried(Tally):
    """What was tried at a stage: names, how many go on, how many spend the budget, whether patience was spent."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.running = 0
        self.spent = 0
        self.is_stopped = False

    def add(self, run: Observation) -> None:
        self.names.add(run.name)
        self.running += run.state == "running"
        self.spent += run.is_spent
        self.is_stopped |= run.reason == "early_stopping"


def _budget_spent(spec: StudySpec, observations: Sequence[Observation], tried: _Tried) -> str | None:
    """Why nothing more may be tried at a stage, if so."""
    if tried.is_stopped:
        return f"explored; stopped after {spec.autotuning.patience} runs without a better one"
    return budget_spent(spec, observations) if tried.spent >= spec.autotuning.tuner_num_trials else None


def _why_not_entered(spec: StudySpec, history: History, space: StageSpace, memory: MemoryModel) -> str | None:
    """Why a stage need not be entered at all, if so."""
    stage = space.stage
    explored = [s for s in sorted(history.verdicts) if history.best(s) is not None and s < stage]
    if len(explored) >= 2:
        last, before = history.best(explored[-1]), history.best(explored[-2])
        assert last and before and last.value is not None and before.value is not None
        if not history.is_better(last.value, before.value):
            return f"not explored: ZeRO {explored[-1]} was no better than ZeRO {explored[-2]}"
    reasons = reasons_against(spec, space, memory)
    if None in reasons:
        return None
    return f"skipped: {reasons[-1]}" if reasons else "skipped: nothing to try"


def _next_in_range(
    spec: StudySpec, history: History, memory: MemoryModel, stage: int, setting: Setting, gas: int
) -> int | None:
    observations = history.stages[stage]
    facts = memory.facts
    measured = _by_size(observations, setting, gas)
    unrunnable = {
        o.candidate.micro_batch
        for o in observations
        if o.state in ("infeasible", "failed") and o.candidate is not None and o.candidate.knobs == setting
    }
    smallest = smallest_micro_batch(spec)
    least = spec.autotuning.min_train_micro_batch_size_per_gpu
    probe = Candidate(stage=stage, micro_batch=least, gas=gas, knobs=setting)
    if not measured and not unrunnable and observations and not memory.fits(probe):
        return None  # no candidate of this group is expected to fit
    start = max(smallest, facts.micro_batch)  # what the user's own run had
    # this range begins at the best size so far, of this stage or the one before it
    bests = [best.candidate for s in sorted({*history.verdicts, stage}) if (best := history.best(s)) is not None]
    if bests and bests[-1] is not None:
        start = max(start, bests[-1].micro_batch)
    limits = [
        size
        for size in (
            memory.largest_micro_batch(stage, setting),
            largest_in_budget(spec, facts, setting, gas),
        )
        if size is not None
    ]
    return next_micro_batch(
        measured,
        unrunnable,
        start=start,
        floor=least if not measured and _may_shrink(spec, memory, observations, probe) else smallest,
        ceiling=min(limits, default=None),
        is_better=history.is_better,
    )


def _listed(
    spec: StudySpec, history: History, memory: MemoryModel, stage: int, setting: Setting
) -> tuple[int, ...] | None:
    """The micro-batch sizes to try with a setting, if the user lists them or keeps the global batch."""
    sizes = listed_sizes(spec, memory.facts, setting)
    if sizes is None or spec.micro_batch_list is not None:
        return sizes
    probe = Candidate(stage=stage, micro_batch=1, gas=memory.facts.gas, knobs=setting)
    may_shrink = _may_shrink(spec, memory, history.stages[stage], probe)
    return sizes if may_shrink else tuple(size for size in sizes if size >= smallest_micro_batch(spec))


def _may_shrink(spec: StudySpec, memory: MemoryModel, observations: Sequence[Observation], probe: Candidate) -> bool:
    """Whether sizes below the user's smallest are tried with the setting of a candidate: only if that does not fit.

    A crash is not a reason.
    """
    smallest = smallest_micro_batch(spec)
    return not memory.fits(replace(probe, micro_batch=smallest)) or any(
        o.reason in ("oom", "predicted_oom")
        and o.candidate.knobs == probe.knobs
        and o.candidate.micro_batch <= smallest
        for o in observations
        if o.candidate is not None
    )


def _by_size(observations: Sequence[Observation], setting: Setting, gas: int) -> dict[int, float]:
    """Metric by micro-batch size, of those measured with the setting that finds the range."""
    return {
        o.candidate.micro_batch: o.value
        for o in observations
        if o.candidate is not None and o.value is not None and (o.candidate.knobs, o.candidate.gas) == (setting, gas)
    }
