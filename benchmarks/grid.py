"""A grid that was measured for real, as one Parquet file: a row a launch, and what they have in common beside them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dsopt.study.space import Candidate

_ABOUT: Final = b"dsopt_grid"


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What all launches of a grid have in common.

    Attributes:
        name: the grid's.
        date: day it was recorded, ISO 8601.
        versions: of the programs that ran it.
        device: what it ran on, in words.
        command: the launch command.
        baseline: the user's own configuration, with concrete values.
        max_train_batch_size: largest global batch that is allowed, or None.
        nodes, ranks: of every run.
        params, trainable_params: of the model.
        memory_bytes: what a rank may use.
    """

    name: str
    date: str
    versions: Mapping[str, str]
    device: str
    command: str
    baseline: Mapping[str, Any]
    max_train_batch_size: int | None
    nodes: int
    ranks: int
    params: int
    trainable_params: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """One launch of one candidate.

    Attributes:
        candidate: what was run.
        launch: which launch of it, from 0.
        oom: why it ran out of memory, or None.
        elsewhere: share of the machine's processors that other programs used meanwhile, from 0 to 1.
        start_seconds: wall clock from the launch to the first step, or to running out of memory.
        step_seconds: every step, raw; empty when it ran out of memory.
        forward_seconds, backward_seconds, optimizer_seconds: means over the later half of the steps.
        peak_allocated_bytes, peak_reserved_bytes, activation_bytes: of the worst rank; 0 when it ran out of memory.
        flops_per_step: of one rank; 0 where they were not counted.
        samples_per_step: of the whole job.
    """

    candidate: Candidate
    launch: int
    oom: str | None
    elsewhere: float
    start_seconds: float
    step_seconds: tuple[float, ...]
    forward_seconds: float
    backward_seconds: float
    optimizer_seconds: float
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    activation_bytes: int
    flops_per_step: float
    samples_per_step: int

    @property
    def settled_seconds(self) -> float:
        """The mean of the later half of the steps; 0 without any."""
        later = self.step_seconds[len(self.step_seconds) // 2 :]
        return float(np.mean(later)) if later else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A recorded grid."""

    about: About
    launches: tuple[Launched, ...]


_PLAIN: Final = tuple(field.name for field in fields(Launched) if field.name not in ("candidate", "step_seconds"))


def write_grid(grid: Grid, path: Path) -> None:
    """Writes a grid to a temporary name, then renames it."""
    table = pa.table(_columns(grid.launches))
    table = table.replace_schema_metadata({_ABOUT: json.dumps(asdict(grid.about))})
    temporary = path.with_suffix(".tmp")
    pq.write_table(table, temporary, compression="zstd")
    temporary.replace(path)


def read_grid(path: Path) -> Grid:
    """Reads a grid.

    Raises:
        ValueError: the file is Parquet, but no grid.
    """
    table = pq.read_table(path)
    about = (table.schema.metadata or {}).get(_ABOUT)
    if about is None:
        raise ValueError(f"{path}: no grid; expected a file that `python -m benchmarks.record` wrote")
    return Grid(about=About(**json.loads(about)), launches=tuple(_launched(row) for row in table.to_pylist()))


def _columns(launches: Sequence[Launched]) -> dict[str, Any]:
    candidates = [launched.candidate for launched in launches]
    return {
        "stage": [candidate.stage for candidate in candidates],
        "micro_batch": [candidate.micro_batch for candidate in candidates],
        "gas": [candidate.gas for candidate in candidates],
        "knobs": [json.dumps(candidate.knobs) for candidate in candidates],
        **{name: [getattr(launched, name) for launched in launches] for name in _PLAIN},
        # microseconds are less than the clock's noise, and half the file
        "step_seconds": pa.array([launched.step_seconds for launched in launches], pa.list_(pa.float32())),
    }


def _launched(row: Mapping[str, Any]) -> Launched:
    knobs = tuple((key, value) for key, value in json.loads(row["knobs"]))
    candidate = Candidate(stage=row["stage"], micro_batch=row["micro_batch"], gas=row["gas"], knobs=knobs)
    plain = {name: row[name] for name in _PLAIN}
    return Launched(candidate=candidate, step_seconds=tuple(row["step_seconds"]), **plain)
