"""The search's models against a recorded grid: each stage and setting is a group, as in `benchmarks.measured`."""

from collections import defaultdict
from pathlib import Path

from benchmarks.grid import Grid, Launched, read_grid
from benchmarks.measured.judge import Groups
from benchmarks.measured.runs import Run, in_order
from dsopt.study.ds_config import get_path
from dsopt.study.space import ZERO


def groups_of(path: Path) -> Groups:
    """The launches of a grid, by stage and setting; of each candidate the first."""
    grid = read_grid(path)
    groups: Groups = defaultdict(list)
    for launched in grid.launches:
        if launched.launch == 0:
            setting = ", ".join(f"{key}={value}" for key, value in launched.candidate.knobs)
            groups[f"{grid.about.name}: ZeRO {launched.candidate.stage} {setting}".strip()].append(_run(grid, launched))
    return {name: in_order(runs) for name, runs in groups.items()}


def _run(grid: Grid, launched: Launched) -> Run:
    about, candidate = grid.about, launched.candidate
    knobs = dict(candidate.knobs)
    dtype = next((name for name in ("bf16", "fp16") if about.baseline.get(name, {}).get("enabled") is True), "fp32")
    return Run(
        group=about.name,
        params=about.params,
        trainable=about.trainable_params,
        layers=0,
        hidden=0,
        seq=0,
        dtype=dtype,
        held=None,
        frozen_bytes=2.0,
        gpu=about.device,
        gpu_bytes=about.memory_bytes,
        gpus=about.ranks * about.nodes,
        nodes=about.nodes,
        model_parallel=1,
        pipeline=1,
        stage=candidate.stage,
        offload=(
            str(knobs.get(f"{ZERO}offload_optimizer.device") or "none"),
            str(knobs.get(f"{ZERO}offload_param.device") or "none"),
        ),
        recomputes=any("checkpointing" in key and value is not None for key, value in knobs.items()),
        micro_batch=candidate.micro_batch,
        gas=candidate.gas,
        seconds=launched.settled_seconds,
        peak=launched.peak_allocated_bytes or launched.peak_reserved_bytes,
        memory_kind="allocated" if launched.peak_allocated_bytes else "reserved",
        device_used=0,
        outcome="oom" if launched.oom else "ok",
        activations=launched.activation_bytes,
        flops=launched.flops_per_step,
        is_torch_adam=get_path(about.baseline, "optimizer.params.torch_adam") is True,
    )
