"""Floating-point operations, counted with real modules."""

from pathlib import Path

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from dsopt.probe.flops import FlopCount
from dsopt.protocol.event_reader import EventReader
from dsopt.protocol.events import EventWriter, Flops
from dsopt.protocol.run_dir import RunDir


@pytest.mark.parametrize("recomputes", [False, True])
def test_what_is_computed_again_is_no_work_done(tmp_path: Path, recomputes: bool) -> None:
    """It counted, so that activation checkpointing was called faster where it took longer."""
    model, rows = torch.nn.Linear(64, 64, bias=False), torch.ones(4, 64, requires_grad=True)
    count, run_dir = FlopCount(is_on=True), RunDir(tmp_path)
    writer = EventWriter(run_dir, 0)
    for _ in range(3):
        forward = (lambda: checkpoint(model, rows, use_reentrant=False)) if recomputes else (lambda: model(rows))
        count.around(forward, writer, 2).sum().backward()
    writer.close()
    assert [*EventReader(run_dir).read()] == [Flops(rank=0, flops_per_step=2 * 3 * (2 * 4 * 64 * 64))]
