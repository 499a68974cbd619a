"""A group of published runs as a study of dsopt: what its models would know, had it done the runs itself."""

from collections.abc import Sequence
from typing import Final

from benchmarks.measured.runs import Run
from dsopt.search.facts import ModelFacts
from dsopt.search.forecast import Forecast
from dsopt.search.history import BASELINE, History, Observation
from dsopt.study.space import ZERO, Candidate
from dsopt.study.spec import StudySpec

_DEVICES: Final = ("offload_optimizer", "offload_param")
_NO_PEAK: Final = 2**30  # of a run whose source says only its time
MILLISECONDS: Final = 1000.0  # of a second; the unit of latency
_HALF_WIDTH: Final = 0.005  # of the mean of hundreds of steps, which published figures are


def spec_of(own: Run) -> StudySpec:
    """The study whose own configuration is this run's."""
    zero = {
        "stage": own.stage,
        **{key: {"device": device} for key, device in zip(_DEVICES, own.offload, strict=True) if device != "none"},
    }
    config: dict[str, object] = {
        "train_micro_batch_size_per_gpu": own.micro_batch,
        "gradient_accumulation_steps": own.gas,
        "zero_optimization": zero,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": own.is_torch_adam}},
    }
    if own.dtype != "fp32":
        config[own.dtype] = {"enabled": True}
    words = ["deepspeed", "--num_gpus", str(own.gpus // own.nodes)]
    words += ["--num_nodes", str(own.nodes), "--hostfile", "hosts"] if own.nodes > 1 else []
    return StudySpec.model_validate(
        {
            "name": "published",
            "command": " ".join([*words, "train.py", "--deepspeed_config", "ds_config.json"]),
            "cwd": "/",
            "ds_config": config,
            "autotuning": {"metric": "latency", "mp_size": own.model_parallel},
        }
    )


def candidate_of(run: Run, own: Run) -> Candidate:
    """What a run is in that study."""
    knobs = tuple(
        (f"{ZERO}{key}.device", device)
        for key, device, theirs in zip(_DEVICES, run.offload, own.offload, strict=True)
        if device != theirs
    )
    return Candidate(stage=run.stage, micro_batch=run.micro_batch, gas=run.gas, knobs=knobs)


def facts_of(run: Run, activation_bytes: int = 0) -> ModelFacts:
    """What dsopt sees of a run, as far as its source says it.

    Frozen weights of fewer bits count for as many parameters of the model's data type as they need.
    """
    frozen = run.params - run.trainable
    peak = run.peak or _NO_PEAK
    weight, gradient, optimizer = run.held or (None, None, None)
    return ModelFacts(
        num_params=run.trainable + round(frozen * run.frozen_bytes / (4 if run.dtype == "fp32" else 2)),
        trainable_params=run.trainable,
        world_size=run.gpus,
        dtype=run.dtype,
        device_memory_bytes=run.gpu_bytes or 2**36,
        zero_stage=run.stage,
        micro_batch=run.micro_batch,
        gas=run.gas,
        peak_memory_bytes=peak,
        peak_allocated_bytes=peak,
        outside_bytes=max(0, run.device_used - run.peak) if run.memory_kind == "allocated" else 0,
        activation_bytes=activation_bytes or run.activations,
        hidden_size=run.hidden or None,
        num_layers=run.layers or None,
        device=run.gpu,
        pipeline_stages=run.pipeline,
        flops_per_step=_flops_of(run),
        weight_bytes=weight,
        gradient_bytes=gradient,
        optimizer_bytes=optimizer,
    )


def _flops_of(run: Run) -> float | None:
    """Operations of one rank in a step, as the probe would count them (Narayanan et al., 2021, section 5.1)."""
    if run.flops or not (run.layers and run.hidden and run.seq):
        return run.flops or None
    passes = 4 if run.recomputes else 3 if run.trainable == run.params else 2
    per_token = 2 * run.params + 4 * run.layers * run.hidden * run.seq
    return passes * per_token * run.seq * run.micro_batch * run.gas / run.model_parallel


def forecast_of(known: Sequence[Run], activation_bytes: int = 0) -> Forecast:
    """What the search's models say once these runs were done, the first of them as the user's own.

    Args:
        known: the runs.
        activation_bytes: what the first one's forward passes left; 0 if it is not known.
    """
    own = known[0]
    spec = spec_of(own)
    history = History(
        reference=[_observed(own, None, activation_bytes)],
        stages={
            stage: [_observed(run, candidate_of(run, own)) for run in known[1:] if run.stage == stage]
            for stage in range(4)
        },
        maximize=False,
    )
    facts = history.facts_for(spec)
    assert facts is not None, "the first run was measured"
    return Forecast(spec, facts, history)


def _observed(run: Run, candidate: Candidate | None, activation_bytes: int = 0) -> Observation:
    ran_out = run.outcome == "oom"
    return Observation(
        trial=0,
        name=BASELINE if candidate is None else candidate.name,
        round=0,
        candidate=candidate,
        phase="joint",
        state="infeasible" if ran_out else "measured",
        reason="oom" if ran_out else None,
        message="",
        value=None if ran_out or not run.seconds else MILLISECONDS * run.seconds,
        facts=None if ran_out else facts_of(run, activation_bytes),
        half_width=_HALF_WIDTH,
        order=0.0,
    )
