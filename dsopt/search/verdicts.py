"""Why nothing more is tried at a stage, in words: what both orders of stages say alike."""

from collections.abc import Sequence

from dsopt.search.history import Observation
from dsopt.search.memory import MemoryModel
from dsopt.study.fixed_offload import missing_offload
from dsopt.study.space import Candidate, StageSpace
from dsopt.study.spec import StudySpec


def unavailable(spec: StudySpec, stage: int) -> str | None:
    """That a stage cannot have the offload which the user fixes, if so."""
    missing = missing_offload(spec, stage)
    return f"skipped: {missing}" if missing else None


def budget_spent(spec: StudySpec, observations: Sequence[Observation]) -> str | None:
    """That a stage has had `tuner_num_trials` runs, if so."""
    spent = sum(o.is_spent for o in observations)
    if spent >= spec.autotuning.tuner_num_trials:
        return f"{_came_of(observations)}; tuner_num_trials ({spent}) is spent"
    return None


def patience_spent(spec: StudySpec, observations: Sequence[Observation]) -> str:
    """That the last runs of all stages brought nothing better, of a stage that may have had none of them."""
    patience = spec.autotuning.tuner_early_stopping
    if any(o.launched for o in observations):
        runs = "1 run" if patience == 1 else f"{patience} runs"
        return f"{_came_of(observations)}; stopped after {runs} without a better one"
    last = "last run" if patience == 1 else f"last {patience} runs"
    return f"not tried: the {last} at other stages brought nothing better"


def nothing_ran(observations: Sequence[Observation]) -> str:
    """Of a stage without a figure to rank: why its first run failed, or that all were stopped early."""
    if any(o.state == "slow" for o in observations):
        return "explored; every run of it was stopped early, slower than the best"
    message = next((o.message for o in observations if o.message), "nothing in it was small enough")
    return f"nothing ran: {message}"


def _came_of(observations: Sequence[Observation]) -> str:
    """What came of the runs of a stage that are broken off."""
    return "explored" if any(o.state == "measured" for o in observations) else nothing_ran(observations)


def reasons_against(spec: StudySpec, space: StageSpace, memory: MemoryModel) -> list[str | None]:
    """For each group of a stage's settings, why its smallest candidate will not run; None where it may."""
    size = (spec.micro_batch_list or (spec.autotuning.min_train_micro_batch_size_per_gpu,))[0]
    firsts = (next(space.settings(group)) for group in space.groups())
    return [memory.why_not(Candidate(stage=space.stage, micro_batch=size, gas=1, knobs=first)) for first in firsts]
