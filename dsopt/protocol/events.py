"""The run protocol, version 1: JSON lines that each rank appends to its own file in the run directory.

`docs/run-protocol.md` describes it for authors of scripts and simulators. The training process imports it, too, so it
needs only the standard library.
"""

import contextlib
import json
import mmap
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Final, NewType, TextIO, TypeAlias, get_args

from dsopt.protocol.private import append_lines
from dsopt.protocol.run_dir import RunDir

VERSION: Final = 1
FilePath = NewType("FilePath", str)  # whatever characters it has; any other text is made plain when it is read
NODE_LOST: Final = "NodeLost"  # the type of an error that dsopt itself tells of a node's first rank
NODE_TAKEN: Final = "NodeTaken"  # the same, of a node whose devices a training has


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A DeepSpeed engine was built, with these settings in force. Unknown values are None or 0.

    `autocast`: the data type that torch computes in, whatever `dtype` holds; empty without `torch_autocast`.
    `framework`: `torch` if a plain optimizer has stepped instead. In a pipeline, parameters are those of this stage;
    where ranks share each layer, of all of them, except for `largest_layer_params`.
    `autotp`: ranks of an AutoTP group (`tensor_parallel.autotp_size`), which get the same samples.
    `engines`: how many that train the script has built by now; it is told again with each, and is always the first one.
    `software`: versions of what the rank trains with, such as `torch 2.9.0, DeepSpeed 0.18.0, CUDA 12.8`.
    """

    kind: ClassVar[str] = "engine"
    rank: int
    world_size: int
    num_params: int
    trainable_params: int
    device: str
    device_memory_bytes: int
    zero_stage: int
    micro_batch: int
    gas: int
    dtype: str
    autocast: str = ""
    largest_layer_params: int = 0
    hidden_size: int | None = None
    num_layers: int | None = None
    host_memory_bytes: int = 0
    framework: str = "deepspeed"
    pipeline_stages: int = 1
    pipeline_stage: int = 0
    autotp: int = 1
    software: str = ""
    engines: int = 1
    own_settings: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The first batch that the script fed: the size of the first dimension that all of its tensors share.

    `elements`: of all its tensors; 0 if unknown. `samples`: of the rank's share of the largest data set that a data
    loader has begun to read; 0 if unknown. `ready`: batches that its workers read ahead.
    """

    kind: ClassVar[str] = "batch"
    rank: int
    rows: int
    elements: int = 0
    samples: int = 0
    ready: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One optimizer step ended: wall clock since the previous one, and the global number of samples in it.

    `skipped`: the gradients were not finite, so the optimizer updated nothing. `nonfinite_loss`: the loss was NaN or
    infinite. `passes`: forward passes in it, `rows` and `elements` of all their batches; 0 if they were not seen.
    `evaluation_seconds`: the part before its first forward pass, if passes without gradients came first. `waiting`: for
    how many further steps input waited in queues of the script's own at its end.
    """

    kind: ClassVar[str] = "step"
    rank: int
    step: int
    seconds: float
    samples: int
    forward_seconds: float = 0.0
    backward_seconds: float = 0.0
    optimizer_seconds: float = 0.0
    skipped: bool = False
    nonfinite_loss: bool = False
    passes: int = 0
    rows: int = 0
    elements: int = 0
    evaluation_seconds: float = 0.0
    waiting: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Peak memory of this rank so far; activations are what one forward pass of a micro-batch left allocated.

    `outside_bytes` is in use on the device in addition to what torch reserved: context, communication libraries.
    `alloc_retries`: how often torch gave cached blocks back to allocate; `ooms`: how often that was not enough.
    """

    kind: ClassVar[str] = "memory"
    rank: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    activation_bytes: int = 0
    outside_bytes: int = 0
    alloc_retries: int = 0
    ooms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """Bytes that this rank holds of one parameter, on device or host: weight, gradient, optimizer and fp32 weight."""

    kind: ClassVar[str] = "states"
    rank: int
    weight_bytes: float
    gradient_bytes: float
    optimizer_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Flops:
    """Floating-point operations that this rank does in one optimizer step."""

    kind: ClassVar[str] = "flops"
    rank: int
    flops_per_step: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Oom:
    """This rank ran out of memory. `time` is seconds since the epoch."""

    kind: ClassVar[str] = "oom"
    rank: int
    message: str
    time: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """This rank's script raised. `origin` is the innermost frame's module; `time` is seconds since the epoch."""

    kind: ClassVar[str] = "error"
    rank: int
    type: str
    message: str
    origin: str = ""
    time: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """This rank's script tried to save, load or report something; dsopt prevented it, as in every experiment.

    `what` names the function, `path` where to or from, if known. `is_there`: there is a checkpoint of DeepSpeed's, from
    which a training would go on.
    """

    kind: ClassVar[str] = "withheld"
    rank: int
    what: str
    path: str = ""
    is_there: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """This rank's script has ended by itself, without an exception."""

    kind: ClassVar[str] = "end"
    rank: int
    reason: str = "script_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """This rank has made a file with a function that saves; the worker removes it after the run.

    With `is_plain`, it writes to a file that it has made by other ways: that goes if it is beside what was saved. With
    `is_early`, that was before its first step, or it has made a folder then.

    `path` is absolute, on the machine `host`; the others are the file's, so that no other one of that name, nor what
    somebody has written since, is taken for it. While it is being written, `changed` is empty. `born` says when it was
    made, where the file system tells: it may give the `inode` of a removed file to the next one. The number of its
    device is none of them: that may change with a restart. A folder that is about to be made has no `inode`.
    """

    kind: ClassVar[str] = "saved"
    rank: int
    path: FilePath
    host: str
    inode: str
    size: int
    changed: str
    born: str = ""
    is_plain: bool = False
    is_early: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """This rank is about to move something of the user's from `path` to `to`; the worker puts it back after the run.

    Both are absolute, on the machine `host`; `inode` is its own, `time` nanoseconds since the epoch. With `is_copy`, it
    stays where it is, `to` has its content, and it gets that back.
    """

    kind: ClassVar[str] = "moved"
    rank: int
    path: FilePath
    to: FilePath
    host: str
    inode: str
    time: int
    is_copy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """This rank wanted to make a folder, and it was there: it stays while this run goes on, whoever has made it.

    `path` is absolute, on the machine `host`.
    """

    kind: ClassVar[str] = "found"
    rank: int
    path: FilePath
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The script's own files that were imported when its engine was built, each with a digest of what it holds.

    A file in the working folder is named by its path from there, any other by its whole path.
    """

    kind: ClassVar[str] = "sources"
    rank: int
    files: Mapping[str, str]


Event: TypeAlias = (
    Engine | Batch | Step | Memory | States | Flops | Oom | Error | Withheld | Saved | Moved | Found | Sources | End
)
KINDS: Final[Mapping[str, type[Event]]] = {kind.kind: kind for kind in get_args(Event)}


class EventWriter:
    """Appends one rank's events. It writes each line whole and at once, so that a kill loses at most the last one."""

    def __init__(self, run_dir: RunDir, rank: int) -> None:
        self.rank = rank
        self._stepped = mmap.mmap(-1, 1)  # processes that it forks have the same one
        self._pid = os.getpid()
        self._file: TextIO = append_lines(run_dir.events(rank))

    def emit(self, event: Event) -> None:
        """Writes one event; a process that a rank has forked, and that is none, only tells what it saves and moves."""
        if os.getpid() != self._pid and not isinstance(event, Saved | Moved | Found):
            return
        if isinstance(event, Step):
            self.note_step()
        values = {field.name: getattr(event, field.name) for field in fields(event)}
        self._file.write(json.dumps({"v": VERSION, "event": event.kind, **values}) + "\n")
        if isinstance(event, Oom | Error | End | Moved):  # last words, and what must outlive a power cut
            with contextlib.suppress(OSError):
                os.fsync(self._file.fileno())

    def note_step(self) -> None:
        """Notes that the rank makes a step: what it saves from now on may be trained weights."""
        self._stepped[0] = 1

    @property
    def has_stepped(self) -> bool:
        """Whether the rank has made a step; processes that it had forked before know it, too."""
        return self._stepped[0] == 1

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def now() -> float:
    """Seconds since the epoch, the clock of `time` fields."""
    return time.time()
