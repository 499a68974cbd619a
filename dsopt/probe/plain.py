"""Observes a training without DeepSpeed: steps of an optimizer of PyTorch, and forward passes between them."""

from collections import deque
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from dsopt.probe.clock import Mark
from dsopt.probe.device import Device, HostDevice, cuda_device
from dsopt.probe.loaders import Loaders
from dsopt.probe.memory import PeakWriter
from dsopt.probe.model import describe_plain, shape_of
from dsopt.probe.pending import PendingStep
from dsopt.protocol.events import Batch, EventWriter

_LATER: Final = 7  # forward passes after the first, whose rows tell what most have
# steps with another number of forward passes than the accumulation, one after the other, before that is believed; the
# first steps in fp16 often overflow, and are not done
_MOST_UNLIKE: Final = 10


class PlainObserver:
    """Finds the model (the first one that is trained) and its optimizer (the first one that steps after it).

    A step is the time from one step of the optimizer to the next, if the model did as many forward passes in it as the
    accumulation says. It skips others, as at the end of an epoch or after an overflow.

    Args:
        writer: of this rank's events.
        memory_limit_bytes: what it may use of its device; 0 without a limit.
        micro_batch, gas: as the command says them; a micro-batch size of 0 is read from the first batch.
        loaders: what the script reads ahead.

    Attributes:
        on_described: what is called once, when it has told of the model.
    """

    def __init__(
        self, writer: EventWriter, *, memory_limit_bytes: int, micro_batch: int, gas: int, loaders: Loaders
    ) -> None:
        self.on_described: list[Callable[[], None]] = []
        self._writer = writer
        self._memory_limit_bytes = memory_limit_bytes
        self._micro_batch = micro_batch
        self._gas = gas
        self._loaders = loaders
        self._use(HostDevice())
        self._seekers: list[Any] = []  # hooks of all modules, until the model is found
        self._others: list[Any] = []
        self._outermost: Any = None
        self._model: Any = None
        self._optimizer: Any = None
        self._first_rows, self._later = 0, list[tuple[int, int]]()  # rows and elements
        self._autocast = ""
        self._before = self._activation_bytes = 0
        self._start: Mark = None
        self._forwards = self._unlike = self._steps = 0
        self._is_described = self._is_evaluated = False
        self._evaluated_until: Mark = None
        self._pending: deque[PendingStep] = deque()

    def watch_modules(self, modules: ModuleType) -> None:
        """Looks for the model. Call it with `torch.nn.modules.module`."""
        self._seekers = [
            modules.register_module_forward_pre_hook(self._before_module),
            modules.register_module_forward_hook(self._after_module, with_kwargs=True),
        ]

    def watch_optimizers(self, optimizers: ModuleType) -> None:
        """Watches the steps of optimizers. Call it with `torch.optim.optimizer`."""
        self._others.append(optimizers.register_optimizer_step_post_hook(self._after_step))

    def stop(self) -> None:
        """Stops watching: another observer reports this training."""
        for handle in [*self._seekers, *self._others]:
            handle.remove()

    def flush(self) -> None:
        """Waits for the device and emits what is still pending; for the end of a script."""
        if self._pending:
            self._clock.wait()
            self._emit_passed()

    def _before_module(self, module: Any, _args: Any) -> None:  # noqa: ANN401
        import torch

        if self._outermost is None:
            parameter = next(module.parameters(), None)
            if not module.training or parameter is None or not torch.is_grad_enabled():
                return
            self._outermost = module
            if parameter.device.type == "cuda" and self._device.kind != "cuda":
                self._use(cuda_device())
                if self._memory_limit_bytes:
                    self._device.limit_memory(self._memory_limit_bytes)
            self._before = self._memory.in_use()
            self._start = self._clock.mark()
        kind = self._device.kind
        if torch.is_autocast_enabled(kind):
            self._autocast = str(torch.get_autocast_dtype(kind))

    def _after_module(self, module: Any, args: Any, kwargs: Any, _output: Any) -> None:  # noqa: ANN401
        if module is not self._outermost:
            return
        self._outermost = None
        if not any(parameter.requires_grad for parameter in module.parameters()):
            return
        self._model = module
        self._forwards = 1
        self._activation_bytes = max(0, self._memory.in_use() - self._before)
        rows, elements = shape_of([*args, *kwargs.values()])
        self._first_rows, self._micro_batch = rows, self._micro_batch or rows
        self._writer.emit(Batch(rank=self._writer.rank, rows=rows, elements=elements, ready=self._loaders.ready))
        for handle in self._seekers:
            handle.remove()
        self._others.append(module.register_forward_pre_hook(self._count_forward, with_kwargs=True))
        wrapped: Any = getattr(module, "module", None)  # as DistributedDataParallel has it; some evaluate that one
        if hasattr(wrapped, "register_forward_pre_hook"):
            self._others.append(wrapped.register_forward_pre_hook(self._note_evaluation))

    def _count_forward(self, module: Any, args: Any, kwargs: Any) -> None:  # noqa: ANN401
        import torch

        if torch.is_grad_enabled():
            self._look_at_batch([*args, *kwargs.values()])
            if self._start is None:
                self._start = self._clock.mark()
            if self._is_evaluated and not self._forwards:
                self._evaluated_until = self._clock.mark()
            self._forwards += 1
        else:
            self._note_evaluation(module, args)

    def _look_at_batch(self, given: list[Any]) -> None:
        """Tells of the batch again if most of the first ones had other rows than the very first."""
        if len(self._later) < _LATER:
            self._later.append(shape_of(given))
            rows, elements = max(self._later, key=self._later.count)
            if len(self._later) == _LATER and rows != self._first_rows:
                self._writer.emit(
                    Batch(rank=self._writer.rank, rows=rows, elements=elements, ready=self._loaders.ready)
                )

    def _note_evaluation(self, _module: Any, _args: Any) -> None:  # noqa: ANN401
        import torch

        if not torch.is_grad_enabled() and not self._forwards:
            self._is_evaluated = True

    def _after_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:  # noqa: ANN401
        self._writer.note_step()  # told later, when the device has made it, or never
        if self._model is None or optimizer is not (self._optimizer or optimizer):
            return
        self._optimizer = optimizer
        start, end, forwards = self._start, self._clock.mark(), self._forwards
        self._start, self._forwards = end, 0
        evaluated_until, self._evaluated_until, self._is_evaluated = self._evaluated_until, None, False
        self._memory.sample()
        is_whole = forwards == self._gas
        self._unlike = 0 if is_whole else self._unlike + 1
        is_other = self._unlike == _MOST_UNLIKE and self._steps <= 1  # the first one may have been whole by chance
        if is_other or (is_whole and not self._is_described):
            self._describe(forwards)
        if is_whole:
            step = PendingStep(number=self._steps, start=start, end=end, evaluated_until=evaluated_until)
            step.waiting = self._loaders.queues.waiting()
            self._pending.append(step)
            self._steps += 1
            self._emit_passed()
            self._peaks.emit(self._activation_bytes)

    def _describe(self, gas: int) -> None:
        was_described, self._is_described = self._is_described, True
        dtype = self._autocast or str(next(self._model.parameters()).dtype)
        self._writer.emit(
            describe_plain(
                self._model,
                self._device,
                self._writer.rank,
                self._memory_limit_bytes,
                world_size=_world_size(),
                micro_batch=self._micro_batch,
                gas=gas,
                dtype={"torch.bfloat16": "bf16", "torch.float16": "fp16"}.get(dtype, "fp32"),
            )
        )
        for call_back in () if was_described else self.on_described:
            call_back()

    def _emit_passed(self) -> None:
        samples = self._micro_batch * self._gas * _world_size()
        while self._pending and self._clock.passed(self._pending[0].end):
            step = self._pending.popleft()
            step.samples = samples
            self._writer.emit(step.told(self._clock, rank=self._writer.rank))

    def _use(self, device: Device) -> None:
        self._device, self._clock, self._memory = device, device.clock(), device.memory()
        self._peaks = PeakWriter(self._writer, self._memory)


def _world_size() -> int:
    import torch

    is_group = torch.distributed.is_available() and torch.distributed.is_initialized()
    return int(torch.distributed.get_world_size()) if is_group else 1
