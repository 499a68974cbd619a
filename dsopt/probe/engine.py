"""Observes a DeepSpeed engine: finds the step boundaries, times the passes, follows memory, emits events."""

import contextlib
import functools
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dsopt.probe.clock import Mark
from dsopt.probe.device import Device, HostDevice, check_device, device_of
from dsopt.probe.flops import FlopCount
from dsopt.probe.loaders import Loaders
from dsopt.probe.memory import PeakWriter
from dsopt.probe.model import describe, samples_counted_for, shape_of, trains
from dsopt.probe.own_settings import own_settings
from dsopt.probe.pending import PendingStep
from dsopt.probe.states import held_by
from dsopt.protocol.events import Batch, Engine, EventWriter, Oom, now
from dsopt.protocol.out_of_memory import is_out_of_memory, shown
from dsopt.protocol.run_dir import DEVICE_KIND_VARIABLE


@dataclass(frozen=True, slots=True, eq=False)  # torch.compile hashes what it meets, and these have no hash
class _Call:
    """A call of a hooked method, not yet made."""

    method: Callable[..., Any]
    owner: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __call__(self) -> Any:  # noqa: ANN401
        return self.method(self.owner, *self.args, **self.kwargs)


class EngineObserver:
    """Wraps methods of DeepSpeed's engine classes, so that plain loops, Trainers and pipelines are seen alike.

    The first engine that can train is observed, and further ones in the same process are counted. Those of teachers and
    reference models, which have no optimizer, are left alone.

    Attributes:
        on_engine: what is called once, when that engine has been built.
    """

    def __init__(
        self,
        writer: EventWriter,
        *,
        memory_limit_bytes: int,
        count_flops: bool,
        loaders: Loaders | None = None,
        asked: Path | None = None,
    ) -> None:
        self.on_engine: list[Callable[[], None]] = []
        self._writer = writer
        self._memory_limit_bytes = memory_limit_bytes
        self._loaders = loaders or Loaders()
        self._asked = asked
        self.flops = FlopCount(is_on=count_flops)
        self._engine: Any = None
        self._told: Engine
        self._counted_for = 1
        self._engines = 0
        self._use(HostDevice())
        self._pending: deque[PendingStep] = deque()
        self._current: PendingStep | None = None
        self._steps = 0
        self._activation_bytes = 0
        self._saw_batch = False
        self._is_in_forward = False
        self._is_out_of_memory = False
        self._has_told_states = False

    def watch(self, engine_class: Any) -> None:  # noqa: ANN401 - deepspeed.DeepSpeedEngine
        """Hooks the class that all of DeepSpeed's training engines derive from."""
        self._wrap(engine_class, "__init__", self._around_init)
        self._wrap(engine_class, "forward", self._around_forward)
        self._wrap(engine_class, "backward", self._around_backward)
        self._wrap(engine_class, "step", self._around_step)

    def watch_pipeline(self, engine_class: Any) -> None:  # noqa: ANN401 - deepspeed.PipelineEngine
        """Hooks the pipeline engine, whose one public method does a whole optimizer step."""
        self._wrap(engine_class, "train_batch", self._around_train_batch)

    def flush(self) -> None:
        """Waits for the device and emits what is still pending; for the end of a script."""
        if self._pending:
            self._clock.wait()
            self._emit_passed()

    def _wrap(self, owner: Any, name: str, around: Callable[[Any, _Call], Any]) -> None:  # noqa: ANN401
        """Replaces a method by `around(self, call)`; `call()` runs the original with the caller's arguments."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def method(engine: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            try:
                return around(engine, _Call(original, engine, args, kwargs))
            except BaseException as error:
                self._tell_out_of_memory(error)
                raise

        setattr(owner, name, method)

    def _tell_out_of_memory(self, error: BaseException) -> None:
        """Tells at once: the script may catch the error and try a smaller size, or hang while it cleans up."""
        if not self._is_out_of_memory and is_out_of_memory(error):
            self._is_out_of_memory = True
            self._writer.emit(Oom(rank=self._writer.rank, message=shown(error), time=now()))

    def _around_init(self, engine: Any, call: _Call) -> Any:  # noqa: ANN401
        from deepspeed.accelerator import get_accelerator

        device = device_of(get_accelerator())
        check_device(device, os.environ.get(DEVICE_KIND_VARIABLE))
        self._limit(device)
        result = call()
        self._limit(device)  # communication libraries have taken their part
        if trains(engine):
            self._engines += 1
            self._engine = engine if self._engine is None else self._engine
            described = describe(self._engine, device, self._writer.rank, self._memory_limit_bytes)
            own = own_settings(self._engine, self._asked)
            self._told = replace(described, engines=self._engines, own_settings=own)
            self._writer.emit(self._told)
        if engine is self._engine:
            self._use(device)
            self._counted_for = samples_counted_for(engine, call.kwargs.get("mpu"))
            engine.module.register_forward_pre_hook(self._before_module)
            for call_back in self.on_engine:
                call_back()
        return result

    def _tell_changed_sizes(self) -> None:
        """Tells of the engine again if the script has changed its sizes since it was built (`set_train_batch_size`)."""
        micro_batch, gas = self._engine.train_micro_batch_size_per_gpu(), self._engine.gradient_accumulation_steps()
        if (micro_batch, gas) != (self._told.micro_batch, self._told.gas):
            self._writer.emit(replace(self._told, micro_batch=micro_batch, gas=gas))

    def _use(self, device: Device) -> None:
        self._clock, self._memory = device.clock(), device.memory()
        self._peaks = PeakWriter(self._writer, self._memory)

    def _limit(self, device: Device) -> None:
        if self._memory_limit_bytes:
            device.limit_memory(self._memory_limit_bytes)

    def _before_module(self, _module: Any, _args: Any) -> None:  # noqa: ANN401 - a hook of PyTorch's
        """Sees evaluations that go to the model itself, as the Trainer's do, and not through the engine."""
        if self._is_in_forward:
            return
        import torch

        if not torch.is_grad_enabled():
            self._note_evaluation()

    def _note_evaluation(self) -> None:
        step = self._begin_step()
        step.is_evaluated = step.is_evaluated or not step.passes

    def _around_forward(self, engine: Any, call: _Call) -> Any:  # noqa: ANN401
        if engine is not self._engine:
            return call()
        self._is_in_forward = True
        try:
            return self._forward(call)
        finally:
            self._is_in_forward = False

    def _forward(self, call: _Call) -> Any:  # noqa: ANN401
        import torch

        if not torch.is_grad_enabled():  # not its mode: models from files are in evaluation until a script says else
            self._note_evaluation()
            return call()
        first = self._steps == 0 and not self._activation_bytes
        rows = elements = 0
        with contextlib.suppress(Exception):  # tensors of some kinds have no sizes
            rows, elements = shape_of([*call.args, *call.kwargs.values()])
        if not self._saw_batch:
            self._saw_batch = True
            self._tell_changed_sizes()
            samples, ready = self._loaders.samples(rows), self._loaders.ready
            told = Batch(rank=self._writer.rank, rows=rows, elements=elements, samples=samples, ready=ready)
            self._writer.emit(told)
        before = self._memory.in_use() if first else 0
        start = self._begin_pass(rows, elements)
        result = self.flops.around(call, self._writer, self._engine.gradient_accumulation_steps())
        step = self._begin_step()
        step.forward.append((start, self._clock.mark()))
        self._memory.sample()
        if first:
            self._activation_bytes = max(0, self._memory.in_use() - before)
        step.losses.output(result)
        return result

    def _around_backward(self, engine: Any, call: _Call) -> Any:  # noqa: ANN401
        if engine is not self._engine:
            return call()
        step, start = self._begin_step(), self._clock.mark()
        result = call()
        step.backward.append((start, self._clock.mark()))
        step.losses.given(call.args[0] if call.args else call.kwargs.get("loss"))
        self._memory.sample()
        return result

    def _around_step(self, engine: Any, call: _Call) -> Any:  # noqa: ANN401
        self._writer.note_step()  # told later, when the device has made it
        if engine is not self._engine:
            return call()
        steps_before, skipped_before = engine.global_steps, engine.skipped_steps
        start = self._clock.mark()
        result = call()
        step = self._begin_step()
        step.optimizer.append((start, self._clock.mark()))
        if engine.global_steps > steps_before:  # whoever decided that enough is accumulated
            self._end_step(skipped=engine.skipped_steps > skipped_before)
        return result

    def _around_train_batch(self, engine: Any, call: _Call) -> Any:  # noqa: ANN401
        self._writer.note_step()
        if engine is not self._engine:
            return call()
        step, skipped_before = self._begin_step(), engine.skipped_steps
        result = call()
        step.losses.given(result)
        self._end_step(skipped=engine.skipped_steps > skipped_before)
        return result

    def _begin_step(self) -> PendingStep:
        if self._current is None:
            mark = self._clock.mark()
            self._current = PendingStep(number=self._steps, start=mark, end=mark)
        return self._current

    def _begin_pass(self, rows: int, elements: int) -> Mark:
        """The beginning of a forward pass that trains; tells passes without gradients before a step's first apart."""
        is_new, step = self._current is None, self._begin_step()
        start = step.start if is_new else self._clock.mark()
        if step.is_evaluated and not step.passes:
            step.evaluated_until = start
        step.passes += 1
        step.rows += rows
        step.elements += elements
        step.is_unseen = step.is_unseen or not rows
        return start

    def _end_step(self, *, skipped: bool) -> None:
        step = self._begin_step()
        step.skipped = skipped
        step.samples = round(self._engine.train_batch_size() / self._counted_for)
        if not skipped and not self._has_told_states:
            self._tell_states()
        step.losses.end()
        step.waiting = self._loaders.queues.waiting()
        step.end = end = self._clock.mark()
        self._pending.append(step)
        self._steps += 1
        # the next step begins where this one ended: data loading belongs to it
        self._current = PendingStep(number=self._steps, start=end, end=end)
        self._emit_passed()
        self._peaks.emit(self._activation_bytes)

    def _tell_states(self) -> None:
        """Tells what the engine holds, once its optimizer has made its states; what cannot be seen stays unsaid."""
        self._has_told_states = True
        with contextlib.suppress(Exception):
            held = held_by(self._engine, self._writer.rank)
            if held is not None:
                self._writer.emit(held)

    def _emit_passed(self) -> None:
        while self._pending and self._clock.passed(self._pending[0].end):
            step = self._pending.popleft()
            self._writer.emit(step.told(self._clock, rank=self._writer.rank))
