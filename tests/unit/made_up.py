"""Made-up studies, models and observations that unit tests share."""

from dsopt.search.history import ModelFacts, Observation
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
