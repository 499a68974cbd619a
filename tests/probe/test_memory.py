"""What the probe tells of a rank's memory, with a library in place of `torch.cuda`. It is not tested on CUDA here."""

from pathlib import Path
from typing import Any

import pytest

from dsopt.experiment.seen import Seen
from dsopt.probe import memory as memory_module
from dsopt.probe.memory import DeviceMemory, PeakWriter
from dsopt.protocol.event_reader import EventReader
from dsopt.protocol.events import EventWriter, Memory
from dsopt.protocol.run_dir import RunDir

GIB = 2**30


class Library:
    """A device of which torch counts what this says."""

    def __init__(self) -> None:
        self.told: dict[str, int] = {"num_alloc_retries": 0, "num_ooms": 0}
        self.peak = GIB

    def memory_stats(self, index: int) -> dict[str, Any]:
        return {**self.told, "active.all.current": 5}

    def max_memory_allocated(self, index: int) -> int:
        return self.peak

    max_memory_reserved = max_memory_allocated

    def mem_get_info(self, index: int) -> tuple[int, int]:
        return 0, GIB

    def memory_reserved(self, index: int) -> int:
        return GIB


def test_an_allocator_that_gave_blocks_back_is_told_though_no_peak_has_grown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir, library, now = RunDir.create(tmp_path, "run"), Library(), [100.0]
    monkeypatch.setattr(memory_module.time, "monotonic", lambda: now[0])
    writer = EventWriter(run_dir, rank=0)
    peaks = PeakWriter(writer, DeviceMemory(library, 0))
    peaks.emit(1)
    library.told = {"num_alloc_retries": 3, "num_ooms": 1}
    peaks.emit(1)  # too soon to ask again
    now[0] += 1.5
    peaks.emit(1)
    now[0] += 1.5
    peaks.emit(1)  # nothing new
    writer.close()
    told = [event for event in EventReader(run_dir).read() if isinstance(event, Memory)]
    assert [(event.alloc_retries, event.ooms) for event in told] == [(0, 0), (3, 1)]
    seen = Seen()
    for event in told:
        seen.add(event)
    assert seen.memory[0].alloc_retries == 3
