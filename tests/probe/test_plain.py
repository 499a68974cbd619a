"""The observer of a training without DeepSpeed, on small real PyTorch trainings in this process."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from dsopt.probe.imports import after_import
from dsopt.probe.loaders import Loaders
from dsopt.probe.plain import PlainObserver
from dsopt.protocol.event_reader import EventReader
from dsopt.protocol.events import Batch, Engine, Event, EventWriter, Memory, Step
from dsopt.protocol.run_dir import RunDir

Observe = Callable[..., PlainObserver]


@pytest.fixture
def observe(tmp_path: Path) -> Iterator[Observe]:
    """Makes the observer, with the sizes that the command says; it sees nothing any more after the test."""
    writer = EventWriter(RunDir(tmp_path), 0)
    made = []

    def make(micro_batch: int = 0, gas: int = 1) -> PlainObserver:
        observer = PlainObserver(writer, memory_limit_bytes=0, micro_batch=micro_batch, gas=gas, loaders=Loaders())
        after_import("torch.nn.modules.module", observer.watch_modules)
        after_import("torch.optim.optimizer", observer.watch_optimizers)
        made.append(observer)
        return observer

    yield make
    for observer in made:
        observer.stop()
    writer._file.close()


def seen(tmp_path: Path, kind: type[Event]) -> list:
    return [event for event in EventReader(RunDir(tmp_path)).read() if isinstance(event, kind)]


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))


def train(trained: nn.Module, steps: int, *, rows: int = 4, gas: int = 1, skipped: int = 0) -> None:
    """So many steps of an optimizer; the first `skipped` are not done, as after an overflow."""
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.01)
    for step in range(steps):
        train_step(trained, optimizer, rows=rows, gas=gas, is_done=step >= skipped)


def train_step(
    trained: nn.Module, optimizer: torch.optim.Optimizer, *, rows: int = 4, gas: int = 1, is_done: bool = True
) -> None:
    for _ in range(gas):
        trained(torch.ones(rows, 8)).sum().backward()
    if is_done:
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize(("micro_batch", "gas", "rows"), [(0, 1, 4), (4, 1, 4), (0, 3, 2)])
def test_steps_are_those_of_the_optimizer(
    tmp_path: Path, observe: Observe, micro_batch: int, gas: int, rows: int
) -> None:
    observer = observe(micro_batch, gas)
    train(model(), 5, rows=rows, gas=gas)
    observer.flush()
    [engine] = seen(tmp_path, Engine)
    assert (engine.framework, engine.zero_stage, engine.world_size, engine.dtype) == ("torch", 0, 1, "fp32")
    assert engine.software.startswith(f"torch {torch.__version__}")
    assert (engine.micro_batch, engine.gas, engine.num_params) == (rows, gas, 8 * 16 + 16 + 16 + 1)
    assert [batch.rows for batch in seen(tmp_path, Batch)] == [rows]
    steps = seen(tmp_path, Step)
    assert [(step.step, step.samples) for step in steps] == [(n, rows * gas) for n in range(5)]
    assert all(step.seconds > 0 for step in steps)
    assert seen(tmp_path, Memory)[-1].peak_reserved_bytes > 0


def test_a_step_is_known_before_the_device_has_made_it(
    tmp_path: Path, observe: Observe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the script saves at once after it are weights, although nobody can time it yet."""
    monkeypatch.setattr("dsopt.probe.clock.HostClock.passed", lambda *_: False)
    observer = observe()
    train(model(), 1)
    assert observer._writer.has_stepped
    assert not seen(tmp_path, Step)


def test_a_first_step_that_was_whole_by_chance_hides_no_other_accumulation(tmp_path: Path, observe: Observe) -> None:
    """As of a generator that is trained against another network, with passes in the steps of both."""
    observe()
    trained = model()
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.01)
    for step in range(15):
        train_step(trained, optimizer, gas=1 if step == 0 else 2)
    assert [engine.gas for engine in seen(tmp_path, Engine)] == [1, 2]


def test_a_first_batch_of_another_size_is_told_apart(tmp_path: Path, observe: Observe) -> None:
    observe()
    trained = model()
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.01)
    for rows in (64, 4, 4, 2, 4, 4, 4, 2, 4, 4):
        train_step(trained, optimizer, rows=rows)
    assert [batch.rows for batch in seen(tmp_path, Batch)] == [64, 4]


def test_steps_that_were_not_done_are_not_told(tmp_path: Path, observe: Observe) -> None:
    """Two that overflowed and the one after them are one long step, of other samples."""
    observe()
    train(model(), 6, skipped=2)
    assert [step.step for step in seen(tmp_path, Step)] == [0, 1, 2]
    assert seen(tmp_path, Engine)[0].gas == 1


def test_another_accumulation_is_told_once_it_is_no_chance(tmp_path: Path, observe: Observe) -> None:
    """For the worker, which refuses the run; no step of it is told."""
    observe(gas=1)
    trained = model()
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.01)
    for _ in range(9):
        train_step(trained, optimizer, gas=2)
    assert seen(tmp_path, Engine) == []
    train_step(trained, optimizer, gas=2)
    assert [engine.gas for engine in seen(tmp_path, Engine)] == [2]
    assert seen(tmp_path, Step) == []


def test_mixed_precision_is_seen(tmp_path: Path, observe: Observe) -> None:
    observe()

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.inner(x)

    train(Mixed(), 2)
    assert seen(tmp_path, Engine)[0].dtype == "bf16"


def test_what_is_not_trained_is_no_model(tmp_path: Path, observe: Observe) -> None:
    """A loss without parameters, a frozen teacher, one that is evaluated: none of them is the model."""
    observe()
    nn.MSELoss()(torch.zeros(3, 8), torch.zeros(3, 8))
    frozen = model().requires_grad_(False)
    frozen(torch.ones(7, 8))
    evaluated = model().eval()
    evaluated(torch.ones(9, 8))
    with torch.no_grad():
        model()(torch.ones(11, 8))
    train(model(), 3)
    assert [batch.rows for batch in seen(tmp_path, Batch)] == [4]
    assert len(seen(tmp_path, Step)) == 3


def test_a_second_training_and_evaluations_are_left_alone(tmp_path: Path, observe: Observe) -> None:
    observe()
    trained = model()
    train(trained, 3)
    train(model(), 2)  # with an optimizer of its own
    trained.eval()(torch.ones(2, 8))
    assert len(seen(tmp_path, Step)) == 3


class Wrapped(nn.Module):
    """As DistributedDataParallel holds a model."""

    def __init__(self) -> None:
        super().__init__()
        self.module = model()

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.module(batch)


@pytest.mark.parametrize("inner", [False, True])
def test_passes_without_gradients_before_a_step_are_told(tmp_path: Path, observe: Observe, inner: bool) -> None:
    observe()
    trained = Wrapped()
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.01)
    for step in range(6):
        if step == 4:
            with torch.no_grad():
                (trained.module if inner else trained)(torch.ones(4, 8))
        train_step(trained, optimizer)
    told = [step.evaluation_seconds > 0 for step in seen(tmp_path, Step)]
    assert told == [False] * 4 + [True, False]


def test_nothing_is_seen_after_it_is_stopped(tmp_path: Path, observe: Observe) -> None:
    observer = observe()
    trained = model()
    train(trained, 2)
    observer.stop()
    train(trained, 2)
    assert len(seen(tmp_path, Step)) == 2
