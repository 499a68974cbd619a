"""Floating-point operations, counted with real modules."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

from dsopt.probe.flops import FlopCount
from dsopt.protocol.event_reader import EventReader
from dsopt.protocol.events import EventWriter, Flops
from dsopt.protocol.run_dir import RunDir

ROWS = torch.ones(4, 64)
OPERATIONS = 2 * 4 * 64 * 64  # of a forward pass


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(64, 64, bias=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(rows))


class Forces(torch.nn.Module):
    """What is learnt is a gradient, as of force fields."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = Layer()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        places = rows.clone().requires_grad_()
        return torch.autograd.grad(self.energy(places).sum(), places, create_graph=True)[0]


class Lazy(torch.nn.Module):
    """Compiles when it is first called, as Transformers does with flex attention."""

    def __init__(self, backend: Callable[..., object]) -> None:
        super().__init__()
        self.inner, self.backend, self.compiled = Layer(), backend, Layer()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        if isinstance(self.compiled, Layer):
            self.compiled = torch.compile(self.inner, backend=self.backend)
        return self.compiled(rows)


def told(path: Path, forward: Callable[[], Any], *, passes: int = 3, micro_steps: int = 1) -> list[Any]:
    """The events of a run whose forward passes are counted."""
    count, run_dir = FlopCount(is_on=True), RunDir(path)
    with contextlib.closing(EventWriter(run_dir, 0)) as writer:
        for _ in range(passes):
            count.around(forward, writer, micro_steps)
    return [*EventReader(run_dir).read()]


@pytest.mark.parametrize("recomputes", [False, True])
def test_what_is_computed_again_is_no_work_done(tmp_path: Path, recomputes: bool) -> None:
    """It counted, so that activation checkpointing was called faster where it took longer."""
    model, rows = torch.nn.Linear(64, 64, bias=False), torch.ones(4, 64, requires_grad=True)

    def forward() -> torch.Tensor:
        return checkpoint(model, rows, use_reentrant=False) if recomputes else model(rows)

    assert told(tmp_path, forward, micro_steps=2) == [Flops(rank=0, flops_per_step=2 * 3 * OPERATIONS)]


@pytest.mark.parametrize("way", ["function", "module", "decorator", "lazily", "dynamo"])
def test_what_compiles_is_left_alone(tmp_path: Path, way: str) -> None:
    """Its first run was not compiled: another best was named, or too large a factor."""
    torch._dynamo.reset()
    compiled = list[str]()

    def backend(module: torch.fx.GraphModule, _: list[torch.Tensor]) -> object:
        compiled.append("graph")
        return module.forward

    model: Any = Layer()
    match way:
        case "function":
            model = torch.compile(model, backend=backend)
        case "module":
            model.compile(backend=backend)
        case "decorator":
            model = torch.compile(backend=backend)(model)
        case "lazily":
            model = Lazy(backend)
        case "dynamo":
            model = torch._dynamo.optimize(backend)(model)
    assert told(tmp_path, lambda: model(ROWS)) == []
    assert compiled == ["graph"]


def test_what_compiles_elsewhere_does_not_matter(tmp_path: Path) -> None:
    """DeepSpeed's Muon optimizer compiles its steps."""
    torch._dynamo.reset()
    torch.compile(torch.relu, backend="eager")(ROWS)
    model = Layer()
    assert told(tmp_path, lambda: model(ROWS)) == [Flops(rank=0, flops_per_step=3 * OPERATIONS)]


def _attention() -> torch.Tensor:
    return flex_attention(*(torch.ones(1, 2, 128, 32) for _ in range(3)))


def _branches() -> torch.Tensor:
    return torch.cond(ROWS.sum() > 0, torch.sin, torch.cos, (ROWS,))


def _jagged() -> torch.Tensor:
    rows = torch.nested.nested_tensor([torch.ones(3, 64), torch.ones(5, 64)], layout=torch.jagged)
    return torch.nn.Linear(64, 64)(rows)


@pytest.mark.filterwarnings("ignore")  # of what torch has not finished
@pytest.mark.parametrize(
    "forward",
    [
        pytest.param(lambda: Forces()(ROWS), id="gradients"),
        pytest.param(lambda: torch.func.vmap(torch.func.grad(lambda row: row.sin().sum()))(ROWS), id="vmap"),
        pytest.param(_attention, id="flex attention"),
        pytest.param(_branches, id="cond"),
        pytest.param(_jagged, id="jagged"),
    ],
)
def test_no_forward_pass_fails_because_it_is_counted(tmp_path: Path, forward: Callable[[], Any]) -> None:
    """The user's own configuration was said not to run, though only its counted pass had failed."""
    torch._dynamo.reset()
    told(tmp_path, forward)
