"""A training process that trains nothing: `python -m dsopt.simulated` in a run directory.

It speaks the run protocol (`docs/run-protocol.md`). It reads `simulation.json`, an object of

    ds_config     DeepSpeed's configuration as the script would give it to the engine, sizes and precision filled in
    scenario      a whole scenario as JSON, or
    section       a study's `simulation` section, with `gpus` and `nodes` of the whole cluster
    run_gpus, run_nodes   what this run uses of them: GPUs of a node, and nodes; absent: all
    checkpointing whether the script was told to checkpoint activations
    launch        number of the launch
    steps         how many optimizer steps it does, at most
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from dsopt.protocol.events import Batch, End, Engine, Error, Event, EventWriter, Flops, Memory, Oom, Step, now
from dsopt.protocol.run_dir import MEMORY_LIMIT_VARIABLE, RUN_DIR_VARIABLE, from_environment
from dsopt.simulated.cluster import Run, Scenario, run, settings_of
from dsopt.simulated.described import described
from dsopt.simulated.document import from_document
from dsopt.simulated.settings import Settings

# it emits steps at this pace: the worker must see that it has enough before many more are there
_PACE_SECONDS: Final = 0.002


def main() -> int:
    """Says what a run of this configuration would say. The exit code is 1 if it runs out of memory or cannot run."""
    run_dir = from_environment()
    if run_dir is None:
        sys.exit(f"{RUN_DIR_VARIABLE} is not set: only dsopt's worker starts this program.")
    asked = json.loads(run_dir.simulation.read_text("utf-8"))
    writer = EventWriter(run_dir, rank=0)
    try:
        events = _events(asked)
    except Exception as error:  # as the probe does with a script's: one line of it reaches the summary
        traceback.print_exc()
        name = type(error).__name__
        writer.emit(Error(rank=0, type=name, message=str(error), origin=__package__ or "", time=now()))
        return 1
    for event in events:
        writer.emit(event)
        time.sleep(_PACE_SECONDS if isinstance(event, Step) else 0)
    return 1 if isinstance(events[-1], Oom) else 0


def _events(asked: Mapping[str, Any]) -> list[Event]:
    """All events of the run."""
    ds_config, scenario = asked["ds_config"], _scenario(asked)
    gpus, nodes = asked.get("run_gpus"), asked.get("run_nodes")
    ranks = gpus * nodes if gpus and nodes else None
    settings = settings_of(scenario, ds_config, ranks, nodes)
    result = run(scenario, ds_config, launch=asked["launch"], steps=asked["steps"], ranks=ranks, nodes=nodes)
    began = [_engine(scenario, settings), Batch(rank=0, rows=settings.micro_batch)]
    if result.oom is not None:
        return [*began, Oom(rank=0, message=result.oom, time=now())]
    flops = Flops(rank=0, flops_per_step=result.flops_per_step)
    return [*began, _memory(result), flops, *_steps(result), End(rank=0)]


def _scenario(asked: Mapping[str, Any]) -> Scenario:
    if "scenario" in asked:
        scenario = from_document(asked["scenario"])
    else:
        scenario = described(asked["section"], gpus=asked["gpus"], nodes=asked["nodes"])
    if asked.get("checkpointing"):
        scenario = replace(scenario, model=replace(scenario.model, is_checkpointing=True))
    limit = int(os.environ.get(MEMORY_LIMIT_VARIABLE, "0"))
    if limit:
        device = scenario.cluster.device
        device = replace(device, memory_bytes=min(limit, device.memory_bytes))
        scenario = replace(scenario, cluster=replace(scenario.cluster, device=device))
    return scenario


def _engine(scenario: Scenario, settings: Settings) -> Event:
    model = scenario.model
    return Engine(
        rank=0,
        world_size=settings.ranks,
        num_params=model.params,
        trainable_params=model.trainable_params,
        device=f"simulated {scenario.cluster.device.name}",
        device_memory_bytes=scenario.cluster.device.memory_bytes,
        zero_stage=settings.stage,
        micro_batch=settings.micro_batch,
        gas=settings.gas,
        dtype=settings.dtype,
        largest_layer_params=model.largest_layer_params,
        hidden_size=model.hidden,
        num_layers=model.layers,
        host_memory_bytes=scenario.cluster.host_memory_bytes,
    )


def _memory(result: Run) -> Event:
    return Memory(
        rank=0,
        peak_allocated_bytes=result.peak_allocated_bytes,
        peak_reserved_bytes=result.peak_reserved_bytes,
        activation_bytes=result.activation_bytes,
        outside_bytes=result.outside_bytes,
    )


def _steps(result: Run) -> list[Step]:
    return [
        Step(
            rank=0,
            step=number,
            seconds=seconds,
            samples=result.samples_per_step,
            forward_seconds=result.forward_seconds * factor,
            backward_seconds=result.backward_seconds * factor,
            optimizer_seconds=result.optimizer_seconds * factor,
        )
        for number, seconds in enumerate(result.step_seconds.tolist())
        for factor in [seconds / result.true_step_seconds]
    ]


if __name__ == "__main__":
    sys.exit(main())
