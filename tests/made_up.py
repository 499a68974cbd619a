"""Made-up studies, models and observations that unit tests share."""

from dsopt.search.facts import ModelFacts
from dsopt.search.history import History, Observation
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec

GIB = 2**30


def facts(**changes: object) -> ModelFacts:
    values = {
        "num_params": GIB // 16, "trainable_params": GIB // 16, "world_size": 2, "dtype": "fp16",
        "device_memory_bytes": 16 * GIB,
        "zero_stage": 0, "micro_batch": 1, "gas": 1, "peak_memory_bytes": 4 * GIB, "activation_bytes": GIB,
    }  # fmt: skip
    return ModelFacts(**{**values, **changes})


def observation(candidate: Candidate | None, value: float | None = None, **changes: object) -> Observation:
    values = {
        "trial": 0, "name": candidate.name if candidate else "baseline", "round": 0, "candidate": candidate,
        "phase": "range",
        "state": "measured" if value is not None else "infeasible", "reason": None if value is not None else "oom",
        "message": "", "value": value, "facts": None,
    }  # fmt: skip
    return Observation(**{**values, **changes})


def spec(ds_config: dict | None = None, search: dict | None = None, **autotuning: object) -> StudySpec:
    return StudySpec.model_validate(
        {
            "name": "s",
            "command": "deepspeed --num_gpus 2 t.py --deepspeed_config c.json",
            "cwd": "/",
            "ds_config": {"train_micro_batch_size_per_gpu": 1, **(ds_config or {})},
            "autotuning": autotuning,
            "search": search or {},
        }
    )


def sequential(ds_config: dict | None = None, search: dict | None = None, **autotuning: object) -> StudySpec:
    """A study that goes through the stages in order."""
    content = spec(ds_config, search, **autotuning).model_dump(exclude_unset=True)
    return StudySpec.model_validate({**content, "stage_order": "sequential"})


def history(*observations: Observation, baseline: ModelFacts | None = None, value: float = 100.0) -> History:
    """What is known of a study whose baseline was measured, and of these candidates."""
    known = baseline or facts()
    stages: dict[int, list[Observation]] = {stage: [] for stage in range(4)}
    for seen in observations:
        assert seen.candidate is not None
        stages[seen.candidate.stage].append(seen)
    return History(reference=[observation(None, value, facts=known)], stages=stages)


def confirming(study: StudySpec, **confirmation: int) -> StudySpec:
    """The same study with rounds, as the user may ask for them."""
    return StudySpec.model_validate({**study.model_dump(exclude_unset=True), "confirmation": confirmation})
