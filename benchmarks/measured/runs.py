"""Training runs that others measured on GPUs and published, as `data/README.md` describes their columns."""

import csv
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DATA: Final = Path(__file__).with_name("data")
_STAGES: Final = {"none": 0, "ddp": 0, "fsdp_grad_op": 2, "fsdp_full": 3, **{f"zero{n}": n for n in range(4)}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One row.

    Attributes:
        group: what one study would see: model, hardware, number of GPUs, data type, script.
        params, trainable: parameters of the model, and those of them that are trained.
        layers, hidden, seq: of a transformer, and the tokens of a sample, on average if that is known; 0 if the source
            does not say.
        dtype: fp32, fp16 or bf16, in which the forward pass computes.
        held: bytes of a parameter: weight, gradient, optimizer states; None if the source says too little.
        frozen_bytes: of a weight that is not trained.
        gpu_bytes: memory of a device; 0 if the source does not say.
        gpus, nodes: of the job.
        model_parallel, pipeline: ranks that share a replica, and the stages of its pipeline.
        stage: ZeRO's, or what corresponds to it.
        offload: where optimizer states and parameters are.
        recomputes: whether layers are recomputed in the backward pass.
        micro_batch, gas: sizes.
        seconds: of an optimizer step; 0 if the source does not say.
        peak: bytes, as `memory_kind` counts them; 0 if the source does not say.
        device_used: bytes in use as the driver counts them; 0 if the source does not say.
        outcome: ok, oom, largest_that_fits or unknown.
        activations: bytes that a forward pass left, and flops: of one rank in a step; 0 if nobody looked.
        is_torch_adam: whether the optimizer is PyTorch's Adam by DeepSpeed's configuration.
    """

    group: str
    params: int
    trainable: int
    layers: int
    hidden: int
    seq: int
    dtype: str
    held: tuple[float, float, float] | None
    frozen_bytes: float
    gpu: str
    gpu_bytes: int
    gpus: int
    nodes: int
    model_parallel: int
    pipeline: int
    stage: int
    offload: tuple[str, str]
    recomputes: bool
    micro_batch: int
    gas: int
    seconds: float
    peak: int
    memory_kind: str
    device_used: int
    outcome: str
    activations: int = 0
    flops: float = 0.0
    is_torch_adam: bool = False

    @property
    def setting(self) -> tuple[object, ...]:
        """What differs between runs of a group beside their sizes."""
        return (self.stage, self.offload, self.recomputes)


def read_groups(folder: Path) -> dict[str, list[Run]]:
    """The runs of all `*.csv` of a folder that say their sizes, by source file and group, as a study would do them.

    A study begins with what is small: of each setting first one run of each size, in order, then the others.
    """
    groups: dict[str, list[Run]] = defaultdict(list)
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if row["micro_batch"] and row["params"]:
                    groups[f"{path.stem}: {row['group']}"].append(_run(row))
    return {name: in_order(runs) for name, runs in groups.items()}


def in_order(runs: Sequence[Run]) -> list[Run]:
    """Runs of a group as a study does them."""
    times: Counter[tuple[object, ...]] = Counter()
    ordered = []
    for index, run in enumerate(sorted(runs, key=lambda run: (run.micro_batch, run.gas))):
        key = (*run.setting, run.micro_batch)
        times[key] += 1
        ordered.append(((times[key], run.micro_batch, index), run))
    return [run for _, run in sorted(ordered, key=lambda pair: pair[0])]


def _run(row: dict[str, str]) -> Run:
    other = dict(part.partition("=")[::2] for part in row["other"].split(";") if part)
    params = int(float(row["params"]))
    dtype = next((name for name in ("bf16", "fp16") if name in row["dtype"]), "fp32" if row["dtype"] else "bf16")
    frozen = other.get("frozen", "")
    tensor, pipeline = _int(row["tp"], 1), _int(row["pp"], 1)
    return Run(
        group=row["group"],
        params=params,
        trainable=_int(row["trainable_params"]) or (params // 500 if frozen else params),
        layers=_int(row["layers"]),
        hidden=_int(row["hidden"]),
        seq=0 if "ep" in other or "seq_is" in other else _int(other.get("mean_tokens", "") or row["seq"]),
        dtype=dtype,
        held=_held(row),
        frozen_bytes=0.55 if "4" in frozen else 2.0,  # 4-bit weights have scales beside them
        gpu=row["gpu"],
        gpu_bytes=_int(row["gpu_bytes"]),
        gpus=_int(row["gpus"], 1),
        nodes=_int(row["nodes"], 1),
        model_parallel=tensor * pipeline * _int(other.get("sp", ""), 1),
        pipeline=pipeline,
        stage=_STAGES[row["sharding"]],
        offload=(row["offload_optimizer"] or "none", row["offload_param"] or "none"),
        recomputes=row["checkpointing"] == "full",
        micro_batch=_int(row["micro_batch"]),
        gas=_int(row["gas"], 1),
        seconds=float(row["step_seconds"] or 0),
        peak=_int(row["peak_bytes"]),
        memory_kind=row["memory_kind"],
        device_used=_int(other.get("device_used", "")),
        outcome=row["outcome"],
    )


def _held(row: dict[str, str]) -> tuple[float, float, float] | None:
    """What makes up the states of a parameter; in autocast, weights are fp32."""
    is_autocast = any(word in row["dtype"] for word in ("autocast", "amp", "fp32"))
    known = {"16": (4.0, 4.0, 8.0) if is_autocast else (2.0, 2.0, 12.0), "18": (2.0, 4.0, 12.0), "8": (2.0, 2.0, 4.0)}
    return known.get(row["state_bytes_per_param"])


def _int(text: str, otherwise: int = 0) -> int:
    return int(float(text)) if text else otherwise
