"""Scenarios drawn at random from families: 1 to 1,024 GPUs of 24 to 141 GB, 60M to 70B parameters, dense and LoRA.

A tuner is developed on the development seeds; every published figure is on held-out ones.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from dsopt.simulated.catalogue import DEVICES, MODELS
from dsopt.simulated.chance import seed_of
from dsopt.simulated.cluster import Scenario, run
from dsopt.simulated.draw import WORKSTATION, draw_traits, make_cluster
from dsopt.simulated.model import Cluster, Model

DEVELOPMENT_SEEDS: Final = range(10_000)
HELD_OUT_SEEDS: Final = range(360_000, 1_000_000)

_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_SIZE_WEIGHTS: Final = (0.07, 0.08, 0.14, 0.22, 0.13, 0.1, 0.09, 0.06, 0.05, 0.035, 0.025)
_TRIES: Final = 10_000
_WELL_INSIDE: Final = 0.8  # of the memory, for a person who does not want to run out of it
_PATIENCE_SECONDS: Final = 60.0  # for one step


def draw(seed: int, *, noise: float) -> Scenario:
    """The scenario of a seed. Its baseline runs, with room to spare.

    Args:
        seed: any whole number; see `DEVELOPMENT_SEEDS` and `HELD_OUT_SEEDS`.
        noise: coefficient of variation of a step's time, such as 0.02.
    """
    random = np.random.default_rng(seed_of("scenario", seed))
    size = int(random.choice(_SIZES, p=np.array(_SIZE_WEIGHTS) / sum(_SIZE_WEIGHTS)))
    for _ in range(_TRIES):
        cluster = _cluster(random, size)
        model = _model(random, cluster)
        if model is None:
            continue
        traits = draw_traits(random, model, cluster)
        name = f"{model.name}-{cluster.device.name}x{cluster.ranks}-{seed}"
        scenario = Scenario(
            name=name,
            seed=seed,
            model=model,
            cluster=cluster,
            noise=noise,
            max_train_batch_size=None,
            baseline={},
            traits=traits,
        )
        baseline = _baseline(random, scenario)
        if baseline is not None:
            return replace(scenario, baseline=baseline, max_train_batch_size=_largest_batch(random, baseline, cluster))
    raise AssertionError(f"no scenario was found for seed {seed}")


def _cluster(random: np.random.Generator, size: int) -> Cluster:
    device = DEVICES[str(random.choice(sorted(DEVICES)))]
    per_node = min(size, int(random.choice([4, 8, 8, 8])))
    if size == 16 and device.name == "V100-32GB" and random.random() < 0.4:
        per_node = 16
    return make_cluster(random, device, nodes=size // per_node, gpus_per_node=per_node)


def _model(random: np.random.Generator, cluster: Cluster) -> Model | None:
    """A model that somebody would train on this cluster, or None."""
    model = MODELS[str(random.choice(sorted(MODELS)))]
    billions = model.params / 1e9
    is_lora = model.params > 1e9 and bool(random.random() < 0.3)
    most = max(8.0, billions * (16 if is_lora else 96))
    if cluster.ranks > most or (cluster.device.name in WORKSTATION and cluster.ranks > 64):
        return None
    has_bf16 = cluster.device.name != "V100-32GB"
    dtype = str(random.choice(["bf16", "bf16", "bf16", "fp16", "fp32"] if has_bf16 else ["fp16", "fp16", "fp32"]))
    if dtype == "fp32" and billions > 1.6:
        return None
    sequences = [128, 256, 512] if not model.has_logits else [512, 1024, 2048, 4096]
    sequence = int(random.choice([length for length in sequences if length <= 2 * model.sequence]))
    return replace(
        model,
        name=f"{model.name}{'-lora' if is_lora else ''}",
        trainable_params=_lora_params(random, model) if is_lora else model.params,
        sequence=sequence,
        is_flash=bool(random.random() < (0.85 if has_bf16 and model.is_gated else 0.35)),
        is_checkpointing=bool(random.random() < (0.9 if billions > 12 else 0.5 if billions > 2 else 0.12)),
        dtype=dtype,
    )


def _lora_params(random: np.random.Generator, model: Model) -> int:
    """Adapters on the four attention matrices of each layer, or on all seven matrices."""
    rank = int(random.choice([8, 16, 32, 64]))
    width = 8 * model.hidden + (3 * (model.hidden + model.intermediate) if random.random() < 0.5 else 0)
    return model.layers * rank * width


def _baseline(random: np.random.Generator, scenario: Scenario) -> dict[str, Any] | None:
    """What a sane person would run: a stage that fits, a power of two well inside the memory, few knobs."""
    habit = int(random.choice([0, 1, 2, 2, 2, 3, 3]))
    knobs = _habitual_knobs(random)
    gas = int(random.choice([1, 1, 1, 2, 4]))
    offload = {"offload_optimizer": {"device": "cpu", "pin_memory": True}} if random.random() < 0.05 else {}
    caution = int(random.choice([0, 0, 1, 1, 2, 3]))
    for stage in range(habit, 4):
        zero = {"stage": stage, **(knobs if stage >= 1 else {}), **(offload if stage >= 2 else {})}
        fitting = [size for size in (2**power for power in range(11)) if _fits(scenario, zero, size, gas)]
        if fitting:
            return _config(scenario, zero, fitting[max(0, len(fitting) - 1 - caution)], gas)
    return None


def _habitual_knobs(random: np.random.Generator) -> dict[str, Any]:
    """None; those of Hugging Face's documentation; or overlap alone."""
    choice = random.random()
    if choice < 0.45:
        return {}
    if choice < 0.75:
        return {
            "overlap_comm": True,
            "contiguous_gradients": True,
            "reduce_bucket_size": 200_000_000,
            "allgather_bucket_size": 200_000_000,
        }
    return {"overlap_comm": True}


def _fits(scenario: Scenario, zero: Mapping[str, Any], micro_batch: int, gas: int) -> bool:
    result = run(scenario, _config(scenario, zero, micro_batch, gas), launch=0, steps=0)
    capacity = scenario.cluster.device.memory_bytes
    is_safe = result.oom is None and result.peak_reserved_bytes < _WELL_INSIDE * capacity
    return is_safe and result.true_step_seconds < _PATIENCE_SECONDS


def _config(scenario: Scenario, zero: Mapping[str, Any], micro_batch: int, gas: int) -> dict[str, Any]:
    dtype = scenario.model.dtype
    return {
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": gas,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        **({dtype: {"enabled": True}} if dtype != "fp32" else {}),
        "zero_optimization": dict(zero),
    }


def _largest_batch(random: np.random.Generator, baseline: Mapping[str, Any], cluster: Cluster) -> int | None:
    """A bound on the global batch, for two in five: some times the baseline's."""
    if random.random() < 0.6:
        return None
    own = baseline["train_micro_batch_size_per_gpu"] * baseline["gradient_accumulation_steps"] * cluster.ranks
    return int(own * random.choice([1, 2, 4, 8, 16]))
