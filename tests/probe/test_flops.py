"""Floating-point operations, counted with real modules."""

from pathlib import Path

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from dsopt.probe.flops import FlopCount
from dsopt.protocol.event_reader import EventReader
from dsopt.protocol.events import EventWriter, Flops
from dsopt.protocol.run_dir import RunDir


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(64, 64, bias=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(rows))


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


@pytest.mark.parametrize("way", ["function", "module", "decorator"])
def test_a_script_that_compiles_is_left_alone(tmp_path: Path, way: str) -> None:
    """Its first run was not compiled: another best was named, or too large a factor."""
    count, run_dir, compiled, original = FlopCount(is_on=True), RunDir(tmp_path), list[str](), torch.compile
    count.watch(torch)

    def backend(module: torch.fx.GraphModule, _: list[torch.Tensor]) -> object:
        compiled.append("graph")
        return module.forward

    model: object = Layer()
    if way == "module":
        model.compile(backend=backend)  # type: ignore[attr-defined]
    else:
        model = torch.compile(backend=backend)(model) if way == "decorator" else torch.compile(model, backend=backend)
    writer = EventWriter(run_dir, 0)
    for _ in range(2):
        count.around(lambda: model(torch.ones(4, 64)), writer, 1)  # type: ignore[operator]
    writer.close()
    assert compiled == ["graph"]
    assert [*EventReader(run_dir).read()] == []
    assert torch.compile is original


def test_what_deepspeed_compiles_of_its_own_does_not_matter(tmp_path: Path) -> None:
    """Its Muon optimizer is compiled as it is imported."""
    count = FlopCount(is_on=True)
    count.watch(torch)
    exec(
        "import torch; torch.compile(lambda: None, backend='eager')",
        {"__name__": "deepspeed.runtime.zero.muon.original_muon"},
    )
    writer = EventWriter(RunDir(tmp_path), 0)
    count.around(lambda: Layer()(torch.ones(4, 64)), writer, 1)
    writer.close()
    assert [*EventReader(RunDir(tmp_path)).read()] == [Flops(rank=0, flops_per_step=3 * (2 * 4 * 64 * 64))]
