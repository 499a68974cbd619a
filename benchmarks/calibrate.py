"""Calibrates the eight published cases of the simulated cluster, and says how close they come.

What is free are traits that no data sheet gives, and the bandwidth between GPUs; each has a middle and a spread that it
is held by, so that few published figures do not bend it far. Throughputs of the tuner (data loading left out) and of
whole training steps count alike. The published run without DeepSpeed is another program, and gives the baseline's size.

    python -m benchmarks.calibrate
"""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from dsopt.simulated.catalogue import DEVICES, MODELS
from dsopt.simulated.cluster import Scenario, run, settings_of
from dsopt.simulated.document import as_document
from dsopt.simulated.memory import memory_use
from dsopt.simulated.model import Cluster, Traits

FIGURES = Path(__file__).parent / "headline.json"
TARGET = Path(__file__).parent.parent / "benchmarks" / "scenarios" / "published.json"

# the user's own: the published run without DeepSpeed as ZeRO 0, else ZeRO 1 with micro-batch 1
BASELINES = {"gpt2-xl": (1, 1), "deberta-v2-xxlarge": (1, 1)}
LAUNCHER_SECONDS = 20.0  # launchers and imports of one experiment of DeepSpeed's autotuner
EXPERIMENT_STEPS = 6
BANDWIDTH = 60e9
# The largest micro-batch size by stage, as far as the publication tells: from, to. Each stage's search begins at the
# largest of the stage before and drops the stage where that fails, so there may have been more room than was found.
LARGEST = {
    "distilbert": {},  # the largest global batch is reached first
    "bert-base": {0: (235, 237), 1: (235, 241), 2: (235, 243), 3: (238, 243)},
    "bert-large": {0: (93, 94), 1: (93, 98), 2: (94, 99), 3: (88, 93)},
    "gpt2": {0: (11, 13), 1: (15, 15), 2: (13, 14), 3: (13, 14)},
    "gpt2-medium": {0: (5, 5), 1: (6, 6), 2: (6, 6), 3: (5, 5)},
    "gpt2-large": {0: (2, 2), 1: (3, 3), 2: (3, 3), 3: (2, 2)},
    "gpt2-xl": {0: (0, 0), 1: (1, 1), 2: (1, 1), 3: (1, 1)},
    "deberta-v2-xxlarge": {0: (0, 0), 1: (11, 11), 2: (14, 14), 3: (12, 13)},
}


def main() -> None:
    """Calibrates, prints, writes."""
    cases = json.loads(FIGURES.read_text("utf-8"))["models"]
    found = [calibrated(case) for case in cases]
    TARGET.write_text(json.dumps([as_document(scenario) for scenario in found], indent=1) + "\n", "utf-8")
    for case, scenario in zip(cases, found, strict=True):
        print(f"\n{scenario.name}")
        largest = {stage: largest_micro_batch(scenario, stage) for stage in range(4)}
        print(f"  largest micro-batch sizes {largest}, published {LARGEST[scenario.name]}")
        for kind, stage, size, figure in published_throughputs(case):
            got = simulated_throughput(scenario, kind, stage, size)
            print(f"  {kind:10} z{stage} mbs{size:<4} {figure:9.2f} samples/s, {got:9.2f} ({got / figure - 1:+.1%})")


def calibrated(case: Mapping[str, Any]) -> Scenario:
    """The scenario of one published case."""
    scenario = fitted_time(fitted_memory(uncalibrated(case)), case)
    stage, size = next((stage, size) for _, stage, size, _ in published_throughputs(case))
    step = run(scenario, config(scenario, stage, size), launch=0, steps=0).true_step_seconds
    start = case["minutes"] * 60 / case["experiments"] - LAUNCHER_SECONDS - EXPERIMENT_STEPS * step
    return replace(scenario, traits=replace(scenario.traits, start_seconds=round(start, 1)))


def uncalibrated(case: Mapping[str, Any]) -> Scenario:
    """Shapes, devices and baseline of one published case, with middling traits."""
    name = case["name"]
    vanilla = case["end_to_end"]["vanilla"]
    stage, size = (0, int(vanilla[1].removeprefix("mbs"))) if vanilla else BASELINES[name]
    return Scenario(
        name=name,
        seed=list(LARGEST).index(name),
        model=replace(MODELS[name], dtype=case["dtype"]),
        cluster=Cluster(
            device=DEVICES["V100-32GB"],
            nodes=1,
            gpus_per_node=16,
            intra_bytes_per_second=BANDWIDTH,
            inter_bytes_per_second=12e9,
            host_memory_bytes=1_500_000_000_000,
        ),
        noise=0.02,
        max_train_batch_size=case["max_train_batch_size"],
        baseline={
            "train_micro_batch_size_per_gpu": size,
            "gradient_accumulation_steps": 1,
            "optimizer": {"type": "AdamW", "params": {"lr": 5e-5}},
            **({"fp16": {"enabled": True}} if case["dtype"] == "fp16" else {}),
            "zero_optimization": {"stage": stage},
        },
        traits=Traits(keeps_gradients=True, falloff=0.0, traffic=2.0),
    )


def config(scenario: Scenario, stage: int, micro_batch: int) -> dict[str, Any]:
    """The baseline with another stage and micro-batch size."""
    return {
        **scenario.baseline,
        "zero_optimization": {"stage": stage},
        "train_micro_batch_size_per_gpu": micro_batch,
    }


def largest_micro_batch(scenario: Scenario, stage: int) -> int:
    """The largest micro-batch size that a stage runs, 0 where it runs none."""
    smallest, largest = 0, 640
    while largest - smallest > 1:
        middle = (smallest + largest) // 2
        settings = settings_of(scenario, config(scenario, stage, middle), None, None)
        use = memory_use(scenario.seed, scenario.model, scenario.cluster, scenario.traits, settings)
        fits = use.oom is None
        smallest, largest = (middle, largest) if fits else (smallest, middle)
    return smallest


def published_throughputs(case: Mapping[str, Any]) -> list[tuple[str, int, int, float]]:
    """What was measured, at which stage and micro-batch size: `tuner` or `end_to_end`, samples per second."""
    rows = [("tuner", int(name[1]), size, figure) for name, (_, figure, size) in case["tuner"].items() if figure]
    for figure, setting in sorted({tuple(case["end_to_end"][key]) for key in ("hand_tuned", "autotuned")}):
        stage, size = setting.split(" ")
        rows.append(("end_to_end", int(stage[1:]), int(size.removeprefix("mbs")), figure))
    return rows


def simulated_throughput(scenario: Scenario, kind: str, stage: int, micro_batch: int) -> float:
    """The same from the simulated cluster."""
    result = run(scenario, config(scenario, stage, micro_batch), launch=0, steps=0)
    inside = result.forward_seconds + result.backward_seconds + result.optimizer_seconds
    return result.samples_per_step / (inside if kind == "tuner" else result.true_step_seconds)


def fitted_memory(scenario: Scenario) -> Scenario:
    """The traits of memory, among many drawn, that come closest to the published micro-batch sizes."""
    if not LARGEST[scenario.name]:
        return scenario
    random = np.random.default_rng(0)
    best, least, centre = scenario, math.inf, np.zeros(6)
    for attempt in range(3000):
        # first far and wide, then around the best so far, in steps of all lengths along some of the axes
        step = random.normal(0, 1, 6) * (random.random(6) < 0.4) * 10 ** random.uniform(-2, 0)
        numbers = random.normal(0, 1, 6) if attempt < 400 else centre + step
        factor, context = math.exp(0.35 * numbers[0] + 0.1), math.exp(0.35 * numbers[1] + 0.2) * 1e9
        traits = replace(
            scenario.traits,
            activation_factor=round(factor, 3),
            context_bytes=round(context, -7),
            stage_fragmentation=tuple(round(abs(0.04 * number), 3) for number in numbers[2:]),
            irreducible=0.5,
        )
        drawn = replace(scenario, traits=traits)
        far = 0.01 * float(np.sum(numbers**2))
        for stage, (low, high) in LARGEST[scenario.name].items():
            got = largest_micro_batch(drawn, stage)
            far += 20 * abs(math.log((np.clip(got, low, high) + 0.5) / (got + 0.5)))
        if far < least:
            best, least, centre = drawn, far, numbers
    return best


def fitted_time(scenario: Scenario, case: Mapping[str, Any]) -> Scenario:
    """The traits of time by least squares of logarithms, held by how they are spread."""
    fp32 = scenario.model.dtype == "fp32"
    free = {  # middle and spread of the logarithm
        "efficiency": (0.7 if fp32 else 0.3, 0.35),
        "half_tokens": (800.0, 0.7),
        "bandwidth": (BANDWIDTH, 1.0),
        "hook0": (1e-4, 1.5),
        "hook1": (3e-4, 1.5),
        "hook2": (3e-3, 1.0),
        "hook3": (1e-2, 1.0),
        "data_seconds_per_sample": (2e-4, 1.5),
        "outside_seconds": (2e-2, 1.5),
        "optimizer_seconds": (5e-3, 1.0),
    }

    def at(logs: np.ndarray) -> Scenario:
        values = dict(zip(free, (float(f"{value:.4g}") for value in np.exp(logs)), strict=True))
        hooks = tuple(values.pop(f"hook{stage}") for stage in range(4))
        cluster = replace(scenario.cluster, intra_bytes_per_second=values.pop("bandwidth"))
        return replace(scenario, cluster=cluster, traits=replace(scenario.traits, hook_seconds=hooks, **values))

    def residuals(logs: np.ndarray) -> list[float]:
        drawn = at(logs)
        misses = [
            math.log(simulated_throughput(drawn, kind, stage, size) / figure) / 0.01
            for kind, stage, size, figure in published_throughputs(case)
        ]
        return misses + [(log - math.log(m)) / s for log, (m, s) in zip(logs, free.values(), strict=True)]

    start = np.log([middle for middle, _ in free.values()])
    return at(least_squares(residuals, start, diff_step=1e-2).x)


if __name__ == "__main__":
    main()
