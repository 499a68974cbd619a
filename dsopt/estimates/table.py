"""How much memory a model's states need, as DeepSpeed's tables and as data, and what fits on usual GPUs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dsopt.estimates.fit import STATES_SHARE, Fit, what_fits
from dsopt.estimates.zero_memory import (
    ModelSize,
    Offload,
    StateMemory,
    deepspeed_zero2_estimate,
    deepspeed_zero3_estimate,
    device_state_bytes,
    host_state_bytes,
    initial_host_bytes,
)

Source = Literal["zero_paper", "deepspeed"]
ACTIVATIONS = (
    "Activations come on top, with buffers and the memory of CUDA itself. They grow with micro-batch and sequence "
    "length; only a run measures them."
)
_COLUMNS = "  per CPU  |  per GPU |   Options"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """One line of a table.

    Attributes:
        stage: of ZeRO.
        offload: where optimizer states and parameters live.
        zero_init: whether the model is built under `zero.Init`; None if that makes no difference.
        memory: what it needs.
        source: whose formula it is.
    """

    stage: int
    offload: Offload
    zero_init: bool | None
    memory: StateMemory
    source: Source

    def options(self) -> str:
        """The line's last column, as DeepSpeed writes it."""
        optimizer = f"offload_optimizer={_device(self.offload.optimizer)}"
        if self.stage < 2:
            return f"stage={self.stage}" + (f", {optimizer}" if self.stage else "")
        if self.zero_init is None:
            return optimizer
        return f"offload_param={_device(self.offload.param)}, {optimizer}, zero_init={int(self.zero_init)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a model needs on some GPUs, and what fits on others.

    Attributes:
        model: its size.
        gpus_per_node, nodes: the hardware of `rows`.
        rows: by stage and offloads, in the order of the tables.
        fits: by number of GPUs and memory of each.
    """

    model: ModelSize
    gpus_per_node: int
    nodes: int
    rows: Sequence[StateRow]
    fits: Sequence[Fit]

    def to_json(self) -> dict[str, Any]:
        """The estimate as data."""
        rows = [
            {
                "zero_stage": row.stage,
                "offload_optimizer": row.offload.optimizer,
                "offload_param": row.offload.param,
                "zero_init": row.zero_init,
                **asdict(row.memory),
                "source": row.source,
            }
            for row in self.rows
        ]
        fits = [asdict(fit) | {"option": fit.option.label if fit.option else None} for fit in self.fits]
        return {
            "model": asdict(self.model),
            "gpus_per_node": self.gpus_per_node,
            "nodes": self.nodes,
            "states": rows,
            "fits": fits,
            "note": ACTIVATIONS,
        }

    def text(self) -> str:
        """The tables, what fits, and what comes on top."""
        parts = [
            self._table("ZeRO 3, by DeepSpeed's estimator", (3,)),
            self._table("ZeRO 2, by DeepSpeed's estimator", (2,)),
            self._table(f"ZeRO 0 and 1, by the ZeRO paper, {self._kind()}", (0, 1)),
            self._fits(),
            f"{ACTIVATIONS}\nGB are 2^30 bytes.",
        ]
        if self.model.dtype == "fp32" or self.model.trainable_params < self.model.num_params:
            parts.insert(2, "DeepSpeed's estimators always assume 16-bit training of every parameter.")
        return "\n\n".join(parts)

    def __str__(self) -> str:
        return self.text()

    def _table(self, title: str, stages: Sequence[int]) -> str:
        rows = [row for row in self.rows if row.stage in stages]
        return "\n".join([title, *self._header(largest_layer=3 in stages), _COLUMNS, *map(_line, rows)])

    def _header(self, *, largest_layer: bool) -> list[str]:
        """The same lines as DeepSpeed's, which truncates millions instead of rounding them."""
        layer = f", {_millions(self.model.largest_layer_params)} largest layer params" if largest_layer else ""
        return [
            "Estimated memory needed for params, optim states and gradients for a:",
            f"HW: Setup with {_count(self.nodes, 'node')}, {_count(self.gpus_per_node, 'GPU')} per node.",
            f"SW: Model with {_millions(self.model.num_params)} total params{layer}.",
        ]

    def _fits(self) -> str:
        header = ("GPUs", "each", "per CPU", "per GPU", "fastest option that fits")
        table = [header, *(_fit_cells(fit) for fit in self.fits)]
        widths = [max(len(row[column]) for row in table) for column in range(4)]
        lines = [
            " | ".join([*(cell.rjust(width) for cell, width in zip(row, widths, strict=False)), row[4]])
            for row in table
        ]
        share = f"{100 * STATES_SHARE:.0f} %"
        title = f"What fits: model states within {share} of each GPU, by the ZeRO paper, {self._kind()}, one node"
        return "\n".join([title, *lines])

    def _kind(self) -> str:
        if self.model.trainable_params == self.model.num_params:
            return self.model.dtype
        return f"{self.model.dtype}, {self.model.trainable_params:,} trainable parameters"


def estimate_memory(model: ModelSize, *, gpus_per_node: int, nodes: int) -> Estimate:
    """Estimates the memory of a model's states: DeepSpeed's estimates of ZeRO 3 and 2, the paper's of ZeRO 1 and 0."""
    return Estimate(
        model=model,
        gpus_per_node=gpus_per_node,
        nodes=nodes,
        rows=[
            *(_zero3_row(model, gpus_per_node, nodes, *moved, zero_init)
              for moved in ((True, True), (True, False), (False, False)) for zero_init in (True, False)),
            *(_zero2_row(model, gpus_per_node, nodes, offloaded) for offloaded in (True, False)),
            _paper_row(model, gpus_per_node, nodes, 1, Offload(optimizer="cpu")),
            _paper_row(model, gpus_per_node, nodes, 1, Offload()),
            _paper_row(model, gpus_per_node, nodes, 0, Offload()),
        ],
        fits=what_fits(model),
    )  # fmt: skip


def _zero3_row(
    model: ModelSize, gpus_per_node: int, nodes: int, optimizer: bool, param: bool, zero_init: bool
) -> StateRow:
    memory = deepspeed_zero3_estimate(
        model.num_params, model.largest_layer_params, gpus_per_node=gpus_per_node, nodes=nodes,
        offload_optimizer=optimizer, offload_param=param, zero_init=zero_init,
    )  # fmt: skip
    offload = Offload(optimizer="cpu" if optimizer else "none", param="cpu" if param else "none")
    return StateRow(stage=3, offload=offload, zero_init=zero_init, memory=memory, source="deepspeed")


def _zero2_row(model: ModelSize, gpus_per_node: int, nodes: int, optimizer: bool) -> StateRow:
    memory = deepspeed_zero2_estimate(
        model.num_params, gpus_per_node=gpus_per_node, nodes=nodes, offload_optimizer=optimizer
    )
    offload = Offload(optimizer="cpu" if optimizer else "none")
    return StateRow(stage=2, offload=offload, zero_init=None, memory=memory, source="deepspeed")


def _paper_row(model: ModelSize, gpus_per_node: int, nodes: int, stage: int, offload: Offload) -> StateRow:
    """A row by the paper's formulas; on the host at least what it takes to build the model, as in DeepSpeed's rows."""
    ranks = gpus_per_node * nodes
    device = device_state_bytes(
        stage, params=model.num_params, trainable=model.trainable_params, ranks=ranks, dtype=model.dtype,
        offload=offload,
    )  # fmt: skip
    host = host_state_bytes(
        stage, params=model.num_params, trainable=model.trainable_params, ranks=ranks, ranks_per_node=gpus_per_node,
        dtype=model.dtype, offload=offload,
    )  # fmt: skip
    memory = StateMemory(
        host_bytes=max(round(host), initial_host_bytes(model.num_params, gpus_per_node)), device_bytes=round(device)
    )
    return StateRow(stage=stage, offload=offload, zero_init=None, memory=memory, source="zero_paper")


def _line(row: StateRow) -> str:
    """A line of a table; GB are 2^30 bytes, as DeepSpeed prints them."""
    host, device = row.memory.host_bytes / 2**30, row.memory.device_bytes / 2**30
    return f" {host:7.2f}GB | {device:6.2f}GB | {row.options()}"


def _fit_cells(fit: Fit) -> tuple[str, str, str, str, str]:
    each, device = f"{fit.gpu_memory_bytes / 2**30:.0f}GB", f"{fit.device_bytes / 2**30:.2f}GB"
    if fit.option is None:
        return str(fit.gpus), each, "-", "-", f"none: even the smallest needs {device} per GPU"
    host = f"{fit.host_bytes / 2**30:.2f}GB" if fit.host_bytes else "-"
    return str(fit.gpus), each, host, device, fit.option.label


def _device(name: str) -> str:
    return name.ljust(4)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}"


def _millions(number: int) -> str:
    return f"{int(number / 1e6)}M"
