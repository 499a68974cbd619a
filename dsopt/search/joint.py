"""What to do next over all stages at once: the run that is worth most for its time, until none is worth it."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dsopt.protocol.text import significant
from dsopt.search.crashes import Crash, common_crashes, with_crashes, without_crashes
from dsopt.search.facts import ModelFacts
from dsopt.search.forecast import Forecast, Outlook
from dsopt.search.from_elsewhere import first_from_elsewhere, imported_step
from dsopt.search.grid import Grid
from dsopt.search.history import History
from dsopt.search.limits import accumulations, accumulations_with, in_budget, largest_in_budget, listed_sizes
from dsopt.search.memory import EVEN, MemoryModel
from dsopt.search.payback import least_worth
from dsopt.search.pruners import runs_since_best
from dsopt.search.repeat import disturbed_step, repeat_step
from dsopt.search.ruled_out import ruled_out
from dsopt.search.steps import CloseStage, Explore, RunReference, Step, Wait
from dsopt.search.verdicts import (
    ONLY_OWN,
    budget_spent,
    came_of,
    nothing_ran,
    patience_spent,
    reasons_against,
    unavailable,
)
from dsopt.study.own_sizes import keeps_accumulation, smallest_micro_batch
from dsopt.study.space import Candidate, Setting, StageSpace
from dsopt.study.spec import StudySpec

# Above this probability of fitting, a candidate may run whatever it promises.
_SURE_ENOUGH: Final = 0.97
# Below that, a candidate must be worth the risk; below this, it is never run.
_TOO_RISKY: Final = 0.1
# Below this the models are not even asked: such a size is out of reach.
_CONCEIVABLE: Final = 0.02
# At most so many candidates of one stage are considered; sizes are thinned out if knobs would make them more.
_MOST: Final = 4000
_FEWEST_SIZES: Final = 4
_Knowledge: TypeAlias = Literal["none", "to come", "measured"]
# DeepSpeed's default of `max_train_micro_batch_size_per_gpu`, which holds if the user sets no limit
_LARGEST_SIZE: Final = 1024
_LEAST_TOLD: Final = 0.01  # % that a run would gain; less is told as less than this


def joint_step(spec: StudySpec, history: History, facts: ModelFacts, is_own: Callable[[Candidate], bool]) -> Step:
    """The next step of a search over all stages that are open.

    First runs of candidates and further runs of known configurations compete by what they are worth for their time.
    A candidate that is the user's own configuration (`is_own`) is not run again.
    """
    left = [stage for stage in spec.stages if stage not in history.verdicts]
    for stage, reason in ((stage, unavailable(spec, stage)) for stage in left):
        if reason is not None:
            return CloseStage(stage=stage, verdict=reason)
    forecast = Forecast(spec, facts, history)
    if (link := first_from_elsewhere(history, forecast.believed)) is not None:
        return link
    spent = _is_patience_spent(spec, history, forecast)
    least = least_worth(spec, history) if _can_answer(spec, history, forecast) else 0.0
    crashes, met = common_crashes(spec, history), dict[int, Sequence[Crash]]()
    outlooks: dict[int, Outlook] = {}
    allowed: dict[int, NDArray[np.bool_]] = {}
    barred: dict[int, str] = {}  # by crashes, as far as is known until now
    for stage in left:
        untried, met[stage] = without_crashes(_untried(spec, history, facts, forecast, stage), crashes)
        candidates = [candidate for candidate in untried if not is_own(candidate)]
        verdict = budget_spent(spec, history.tried(stage))
        if verdict is None and not candidates:
            verdict = with_crashes(_nothing_left(spec, forecast, history, stage, has_own=bool(untried)), met[stage])
            if met[stage]:
                barred[stage] = verdict
                continue
        if verdict is None:
            outlooks[stage] = forecast.of(candidates)
            is_near = _is_near(spec, history, forecast.memory, stage, outlooks[stage].grid)
            allowed[stage] = _may_be_run(outlooks[stage], least, _knowledge(history, stage)) & is_near
        elif not any(o.state == "running" for o in history.stages[stage]):
            return CloseStage(stage=stage, verdict=verdict)
    chosen, most = (None, 0.0) if spent else _worth_most(outlooks, allowed)
    again = _known_again(spec, history, forecast, most)
    if again is not None:
        return again
    if chosen is not None and most >= least:
        candidates = [c for c, may in zip(outlooks[chosen].grid.candidates, allowed[chosen], strict=True) if may]
        return Explore(stage=chosen, candidates=candidates, phase="joint", memory=forecast.memory, forecast=forecast)
    if not (outlooks or barred) or any(o.state == "running" for o in history.everything):
        return Wait()
    stage = min(outlooks or barred)
    if not outlooks:
        return CloseStage(stage=stage, verdict=barred[stage])
    if spent:
        return CloseStage(stage=stage, verdict=patience_spent(spec, history.tried(stage)))
    verdict = _verdict(outlooks[stage], forecast.best, allowed[stage], history, stage, least)
    return CloseStage(stage=stage, verdict=with_crashes(verdict, met[stage]))


def _known_again(spec: StudySpec, history: History, forecast: Forecast, most: float) -> RunReference | None:
    """A run of what has a figure, if none of what has none is worth more; rounds come after all stages."""
    least = max(least_worth(spec, history), most)
    if spec.confirmation is None:
        return repeat_step(history, forecast, least)
    return imported_step(history, forecast, least) or disturbed_step(history, forecast, least)


def _worth_most(outlooks: Mapping[int, Outlook], allowed: Mapping[int, NDArray[np.bool_]]) -> tuple[int | None, float]:
    """The stage whose best allowed run is worth most, and what that is; None if none is allowed there."""
    worths = {stage: float(np.max(outlooks[stage].worth[allowed[stage]], initial=0.0)) for stage in outlooks}
    chosen = max(worths, key=lambda stage: worths[stage], default=None)
    if chosen is None or not allowed[chosen].any():
        return None, 0.0
    return chosen, worths[chosen]


def _can_answer(spec: StudySpec, history: History, forecast: Forecast) -> bool:
    """Whether something runs, and was compared with something else: until then, an answer is worth any time."""
    has_tried = any(history.measured_here(o).launched for o in history.observations) or spec.stop_when == "payback"
    return bool(forecast.believed.winners) and has_tried


def _is_near(spec: StudySpec, history: History, memory: MemoryModel, stage: int, grid: Grid) -> NDArray[np.bool_]:
    """Which candidates of a stage are small enough beside those that ran out of memory, shape `(n,)`."""
    kinds = [memory.kinds.of(setting) for _, setting in grid.settings]
    largest = {kind: _largest_after_oom(spec, history, memory, stage, kind) for kind in set(kinds)}
    near: NDArray[np.bool_] = grid.micro_batch <= np.array([largest[kind] for kind in kinds])[grid.which]
    return near


def _largest_after_oom(spec: StudySpec, history: History, memory: MemoryModel, stage: int, kind: Setting) -> float:
    """The largest micro-batch size to try at a stage where one ran out of memory, or at a higher stage: well below.

    It halves the way down from there to the largest that ran there or at a lower stage, which needs more memory, on a
    scale of doublings: what the memory model believed has just been shown wrong. Only what has the same settings
    outside of ZeRO counts: others, such as recomputed activations, may take far less.
    """
    full = [
        candidate.micro_batch
        for candidate in memory.out_of_memory
        if candidate.stage >= stage and memory.kinds.of(candidate.knobs) == kind
    ]
    if not full:
        return math.inf
    seen = [
        o.facts.micro_batch
        for o in history.everything
        if o.facts is not None
        and o.facts.zero_stage <= stage
        and memory.kinds.of(o.candidate.knobs if o.candidate else ()) == kind
    ]
    least = smallest_micro_batch(spec) if not kind else spec.autotuning.min_train_micro_batch_size_per_gpu
    ran = max((size for size in seen if size < min(full)), default=least)
    return max(ran, math.sqrt(min(full) * ran))


def _may_be_run(outlook: Outlook, least: float, knowledge: _Knowledge) -> NDArray[np.bool_]:
    """Which candidates of a stage are worth their risk of running out of memory, shape `(n,)`.

    While nothing of a stage has been measured, these are the candidates that surely fit, if one of them is worth a run
    (`least`): it teaches as much, and an OOM teaches nothing about speed.
    """
    sure: NDArray[np.bool_] = outlook.fits >= _SURE_ENOUGH
    if knowledge == "to come" or (knowledge == "none" and (outlook.worth[sure] >= least).any()):
        return sure
    return sure | ((outlook.worth >= 0) & (outlook.fits >= _TOO_RISKY))


def _knowledge(history: History, stage: int) -> _Knowledge:
    """Whether anything of a stage was measured, or the first of it is running."""
    if any(o.facts is not None and o.facts.zero_stage == stage for o in history.everything):
        return "measured"
    return "to come" if any(o.state == "running" for o in history.stages[stage]) else "none"


def _untried(spec: StudySpec, history: History, facts: ModelFacts, forecast: Forecast, stage: int) -> list[Candidate]:
    """The candidates of a stage that may still be tried, including the user's own configuration if it is one."""
    space = spec.space(stage, facts.hidden_size)
    tried = {o.name for o in history.stages[stage]}
    out = ruled_out(spec, history, facts)
    candidates: list[Candidate] = []
    for group in space.groups():
        own = out.micro_batch
        sizes = _sizes(spec, facts, forecast, space, group) if own is None else (own,)
        for size in sizes:
            for gas in accumulations_with(spec, facts, group, size):
                candidates += space.untried(tried, in_budget(spec, facts, group, (size,), gas), (gas,), group)
    return [candidate for candidate in candidates if out.allow(candidate)]


def _sizes(spec: StudySpec, facts: ModelFacts, forecast: Forecast, space: StageSpace, group: Setting) -> Sequence[int]:
    """The micro-batch sizes of a group to consider."""
    if spec.micro_batch_list is not None:
        return spec.micro_batch_list
    listed, first = listed_sizes(spec, facts, group), space.settings(group)[0]
    floor = _floor(spec, facts, forecast, space.stage, first)
    if listed is not None:
        return [size for size in listed if size >= floor]
    gas = accumulations(spec, facts)[0] if keeps_accumulation(spec) else 1
    limit = largest_in_budget(spec, facts, first, gas) or max(_LARGEST_SIZE, floor, facts.micro_batch)
    edges = [
        min(limit, forecast.memory.largest_micro_batch(space.stage, first, probability, gas=facts.gas))
        for probability in (_CONCEIVABLE, 0.5, _SURE_ENOUGH)
    ]
    sizes = sorted({*spaced_sizes(edges[0]), *edges, *(edge - edge % 8 for edge in edges), floor, facts.micro_batch})
    sizes = [size for size in sizes if floor <= size <= edges[0]]
    settings = len(space.settings(group))
    if len(sizes) * settings > _MOST and len(sizes) > _FEWEST_SIZES:
        outlook = forecast.of([Candidate(stage=space.stage, micro_batch=s, gas=facts.gas, knobs=first) for s in sizes])
        order = np.argsort(-(outlook.score + np.log(np.maximum(outlook.fits, 1e-9))), kind="stable")
        sizes = sorted(sizes[int(i)] for i in order[: max(_FEWEST_SIZES, _MOST // settings)])
    return sizes


def _floor(spec: StudySpec, facts: ModelFacts, forecast: Forecast, stage: int, setting: Setting) -> int:
    """The smallest micro-batch size to try: the user's, or a smaller one if that will not fit."""
    floor = smallest_micro_batch(spec)
    own = Grid.of([Candidate(stage=stage, micro_batch=floor, gas=facts.gas, knobs=setting)])
    is_runnable = float(forecast.memory.fit_probability(own)[0]) >= _TOO_RISKY
    return floor if is_runnable else spec.autotuning.min_train_micro_batch_size_per_gpu


def spaced_sizes(largest: int) -> list[int]:
    """Micro-batch sizes up to the largest: all up to 16, then eight per doubling."""
    sizes = list(range(1, min(16, largest) + 1))
    while sizes and sizes[-1] < largest:
        sizes.append(sizes[-1] + 2 ** max(0, sizes[-1].bit_length() - 4))
    return [size for size in sizes if size <= largest]


def _is_patience_spent(spec: StudySpec, history: History, forecast: Forecast) -> bool:
    patience = spec.autotuning.tuner_early_stopping
    if patience is None or spec.stop_when != "patience":
        return False
    ended = sorted(history.observations, key=lambda o: o.order)
    return runs_since_best(history, ended, forecast.believed.elsewhere) >= patience


def _nothing_left(spec: StudySpec, forecast: Forecast, history: History, stage: int, *, has_own: bool) -> str:
    """Why no candidate of a stage is left; `has_own`: the user's own configuration is one of its candidates."""
    if history.best(stage) is not None:
        return "explored"
    if has_own:
        return "explored" if history.stages[stage] else ONLY_OWN
    if history.stages[stage]:
        return nothing_ran(history.tried(stage))
    space = spec.space(stage, forecast.memory.facts.hidden_size)
    known = [reason for reason in reasons_against(spec, space, forecast.memory) if reason is not None]
    return f"skipped: {known[-1] if known else 'nothing to try'}"


def _verdict(
    outlook: Outlook, best: float, allowed: NDArray[np.bool_], history: History, stage: int, least: float
) -> str:
    """Why nothing more is tried at a stage, in figures.

    Args:
        outlook: on its candidates.
        best: the best score so far.
        allowed: which of them may be run.
        history: what counts.
        stage: the stage.
        least: what a run must be worth, relative.
    """
    has_launched = any(history.measured_here(o).launched for o in history.stages[stage])
    was_run = has_launched or stage == history.own_stage
    came = came_of(history.tried(stage)) if has_launched else "explored"
    if not allowed.any():
        likely = "worth the risk of an OOM" if (outlook.fits >= _TOO_RISKY).any() else "likely to fit"
        return f"{came}; nothing else is {likely}" if was_run else f"skipped: nothing in it is {likely}"
    only_own = "only your own configuration was run; the rest is"
    head = f"{came}; the rest is" if has_launched else only_own if was_run else "not tried:"
    upper = np.expm1(outlook.score + 1.96 * outlook.deviation - best) * 100
    most, safe = (float(np.max(upper[which], initial=0.0)) for which in (allowed, allowed & (outlook.fits >= EVEN)))
    if most == 0:
        return f"{head} likely slower than the best, not worth another run"
    rest = f"likely no more than {safe:.1f} % faster than the best" if safe else "likely slower than the best"
    risk = ", or likely to run out of memory" if most > safe else ""
    worth = 100 * max(0.0, float(np.max(outlook.worth[allowed])))
    gain = f"{significant(worth, 2)} %" if worth >= _LEAST_TOLD else f"less than {_LEAST_TOLD} %"
    return f"{head} {rest}{risk}; a run would gain {gain} on average, and must gain {significant(100 * least, 2)} %"
