"""What to do next at one ZeRO stage: find the range of micro-batch sizes, explore within it, close the stage."""

from collections.abc import Sequence

from dsopt.search.history import History, ModelFacts, Observation
from dsopt.search.memory import MemoryModel, replicas
from dsopt.search.micro_batch import next_micro_batch, sizes_to_explore
from dsopt.search.steps import CloseStage, Explore, Step, Wait
from dsopt.study.space import MICRO_BATCH, Candidate, Setting, StageSpace
from dsopt.study.spec import StudySpec


def stage_step(spec: StudySpec, history: History, facts: ModelFacts, stage: int) -> Step:
    """The next step at a stage.

    Settings that differ in what changes memory (offload, checkpointing, other flags, resources) form groups, each with
    a range of micro-batch sizes of its own; then all that is left is explored as one.
    """
    observations = history.stages[stage]
    space = spec.space(stage, facts.hidden_size)
    models = {group: MemoryModel.fit(spec, facts, history.observations, group) for group in space.groups()}
    if not observations:
        verdict = _why_not_entered(spec, history, space, models)
        if verdict:
            return CloseStage(stage=stage, verdict=verdict)
    running = any(o.state == "running" for o in observations)
    spent = _budget_spent(spec, observations)
    if spent:
        return Wait() if running else CloseStage(stage=stage, verdict=spent)
    left: list[Candidate] = []
    tried = {o.name for o in observations}
    gases = accumulations(spec, facts)
    for group, memory in models.items():
        first = next(space.settings(group))
        sizes = spec.micro_batch_list
        if sizes is None:
            size = _next_in_range(spec, history, memory, stage, first, gases[0])
            if size is not None:
                # the next size depends on how this one does, so there is one at a time
                candidate = Candidate(stage=stage, micro_batch=size, gas=gases[0], knobs=first)
                return Wait() if running else Explore(stage=stage, candidates=[candidate], phase="range")
            if running:
                return Wait()
            measured = _by_size([o for o in observations if o.phase == "range"], first, gases[0])
            sizes = tuple(sizes_to_explore(measured, spec.autotuning.num_tuning_micro_batch_sizes, history.is_better))
        candidates = space.candidates(sizes, gases, group)
        left += [c for c in candidates if c.name not in tried and _is_in_budget(spec, facts, c)]
    if left:
        return Explore(stage=stage, candidates=left, phase="explore")
    if running:
        return Wait()
    if history.best(stage) is None:
        message = next((o.message for o in observations if o.message), "nothing in it was small enough")
        return CloseStage(stage=stage, verdict=f"nothing ran: {message}")
    return CloseStage(stage=stage, verdict="explored")


def accumulations(spec: StudySpec, facts: ModelFacts) -> tuple[int, ...]:
    """The accumulations to try: the user's, else what the user's own run had."""
    return spec.accumulation_list or (facts.gas,)


def smallest_micro_batch(spec: StudySpec, facts: ModelFacts) -> int:
    """The smallest micro-batch size to try: the user's; for "auto" the mapped argument's, else 1."""
    given = spec.ds_config.get(MICRO_BATCH)
    smallest = given if isinstance(given, int) else facts.micro_batch
    if given == "auto":
        flag = spec.autotuning.arg_mappings.get(MICRO_BATCH)
        typed = spec.launch.script_value(flag) if flag else None
        smallest = int(typed) if typed is not None and typed.isdecimal() else 1
    return max(smallest, spec.autotuning.min_train_micro_batch_size_per_gpu)


def _budget_spent(spec: StudySpec, observations: Sequence[Observation]) -> str | None:
    """Why nothing more may be tried at a stage, if so."""
    launched = sum(o.launched for o in observations)
    if any(o.reason == "early_stopping" for o in observations):
        return f"explored; stopped after {spec.autotuning.tuner_early_stopping} runs without a better one"
    if launched >= spec.autotuning.tuner_num_trials:
        return f"explored; tuner_num_trials ({launched}) is spent"
    return None


def _why_not_entered(
    spec: StudySpec, history: History, space: StageSpace, models: dict[Setting, MemoryModel]
) -> str | None:
    """Why a stage need not be entered at all, if so."""
    stage = space.stage
    explored = [s for s in sorted(history.verdicts) if history.best(s) is not None and s < stage]
    if len(explored) >= 2:
        last, before = history.best(explored[-1]), history.best(explored[-2])
        assert last and before and last.value is not None and before.value is not None
        if not history.is_better(last.value, before.value):
            return f"not explored: ZeRO {explored[-1]} was no better than ZeRO {explored[-2]}"
    size = (spec.micro_batch_list or (spec.autotuning.min_train_micro_batch_size_per_gpu,))[0]
    reasons = []
    for group, memory in models.items():
        facts = memory.facts
        setting = next(space.settings(group))
        candidate = Candidate(stage=stage, micro_batch=size, gas=accumulations(spec, facts)[0], knobs=setting)
        reason = memory.why_not(candidate)
        if reason is None:
            return None
        reasons.append(reason)
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
    smallest = smallest_micro_batch(spec, facts)
    least = spec.autotuning.min_train_micro_batch_size_per_gpu
    probe = Candidate(stage=stage, micro_batch=least, gas=gas, knobs=setting)
    if not measured and not unrunnable and observations and not memory.fits(probe):
        return None  # nothing of this group is expected to fit
    start = smallest
    if spec.ds_config.get(MICRO_BATCH) == "auto":
        start = max(start, facts.micro_batch)  # what the user's own run had
    # what was best before, at this stage or the one before it, is where this range begins
    bests = [best.candidate for s in sorted({*history.verdicts, stage}) if (best := history.best(s)) is not None]
    if bests and bests[-1] is not None:
        start = max(start, bests[-1].micro_batch)
    limits = [
        size
        for size in (
            memory.largest_micro_batch(stage, setting),
            spec.autotuning.max_train_micro_batch_size_per_gpu,
            _largest_in_budget(spec, facts, setting, gas),
        )
        if size is not None
    ]
    return next_micro_batch(
        measured,
        unrunnable,
        start=start,
        floor=smallest if measured else least,
        ceiling=min(limits, default=None),
        is_better=history.is_better,
    )


def _by_size(observations: Sequence[Observation], setting: Setting, gas: int) -> dict[int, float]:
    """Metric by micro-batch size, of those measured with the setting that the range is found with."""
    return {
        o.candidate.micro_batch: o.value
        for o in observations
        if o.candidate is not None and o.value is not None and (o.candidate.knobs, o.candidate.gas) == (setting, gas)
    }


def _largest_in_budget(spec: StudySpec, facts: ModelFacts, setting: Setting, gas: int) -> int | None:
    """The largest micro-batch size within `max_train_batch_size`."""
    total = spec.autotuning.max_train_batch_size
    return None if total is None else max(1, total // (replicas(spec, facts, setting) * gas))


def _is_in_budget(spec: StudySpec, facts: ModelFacts, candidate: Candidate) -> bool:
    """Whether a candidate's `train_batch_size` is one the user allows."""
    batch = candidate.micro_batch * candidate.gas * replicas(spec, facts, candidate.knobs)
    most = spec.autotuning.max_train_batch_size
    smallest_possible = candidate.micro_batch == 1 and candidate.gas == 1
    return (most is None or batch <= most or smallest_possible) and batch >= spec.autotuning.min_train_batch_size
