"""Why nothing more is tried at a stage, in words that both orders of stages share."""

from collections.abc import Sequence
from typing import Final

from dsopt.search.history import Observation
from dsopt.search.memory import MemoryModel
from dsopt.study.fixed_offload import missing_offload
from dsopt.study.space import Candidate, StageSpace
from dsopt.study.spec import StudySpec

ONLY_OWN: Final = "your own configuration is its only candidate"


def unavailable(spec: StudySpec, stage: int) -> str | None:
    """Says if a stage cannot have the offload that the user fixes."""
    missing = missing_offload(spec, stage)
    return f"skipped: {missing}" if missing else None


def budget_spent(spec: StudySpec, observations: Sequence[Observation]) -> str | None:
    """Says if a stage has had `tuner_num_trials` runs."""
    spent = sum(o.is_spent for o in observations)
    if spent >= spec.autotuning.tuner_num_trials:
        return f"{came_of(observations)}; it has had its {spent} runs (tuner_num_trials)"
    return None


def patience_spent(spec: StudySpec, observations: Sequence[Observation]) -> str:
    """Says that the last runs of all stages brought nothing better, and how many runs this stage had of its own."""
    patience = spec.autotuning.patience
    if any(o.launched for o in observations):
        own = sum(o.is_spent for o in observations)
        last = "run, at any stage," if patience == 1 else f"{patience} runs, counted over all stages,"
        here = f"{own or 'no'} run{'s' * (own > 1)} here"
        return f"{came_of(observations)}, with {here}; the last {last} brought nothing better"
    last = "last run" if patience == 1 else f"last {patience} runs"
    return f"not tried: the {last} at other stages brought nothing better"


def nothing_ran(observations: Sequence[Observation]) -> str:
    """For a stage without a figure to rank: why its first run failed, or that all were stopped early."""
    if any(o.state == "slow" for o in observations):
        return "explored; all its runs were stopped early, slower than the best"
    sizes = [o.candidate.micro_batch for o in observations if o.reason == "oom" and o.candidate is not None]
    if sizes and all(o.reason in ("oom", "predicted_oom") for o in observations):
        return f"nothing ran: even micro-batch {min(sizes)} ran out of memory"
    message = next((o.message for o in observations if o.message), "no candidate was small enough")
    return f"nothing ran: {message.removesuffix('.')}"


def came_of(observations: Sequence[Observation]) -> str:
    """The outcome of a stage that ends early."""
    return "explored" if any(o.state == "measured" for o in observations) else nothing_ran(observations)


def reasons_against(spec: StudySpec, space: StageSpace, memory: MemoryModel) -> list[str | None]:
    """For each group of a stage's settings, why its smallest candidate will not run; None if it may."""
    size = (spec.micro_batch_list or (spec.autotuning.min_train_micro_batch_size_per_gpu,))[0]
    firsts = (space.settings(group)[0] for group in space.groups())
    return [memory.why_not(Candidate(stage=space.stage, micro_batch=size, gas=1, knobs=first)) for first in firsts]
