"""Puts together what the events of a run have said so far."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import mean
from typing import Final

from dsopt.experiment.batches import (
    gain_of_full_steps,
    growth,
    mean_elements,
    mean_rows,
    unlike_others,
    usual_passes,
    usual_rows,
    without_compilation,
)
from dsopt.experiment.evaluation import shows_evaluation, step_seconds
from dsopt.experiment.measure import Measurement
from dsopt.experiment.outcome import Measured
from dsopt.experiment.pipeline import whole
from dsopt.protocol.events import Batch, End, Engine, Error, Event, Flops, Memory, Oom, Sources, States, Step, Withheld

_SHORTEST_SECONDS: Final = 1e-6  # no optimizer step takes less; with less, figures would overflow


@dataclass(slots=True)
class Seen:
    """What the events have said so far.

    Attributes:
        engines: by rank, what its engine reported.
        rows, elements: size of the first dimension of the first batch, and the elements of all its tensors; 0: unknown.
        samples: of the rank's share of the data set, 0: unknown.
        ready: batches that were read ahead before the first step.
        steps: the optimizer steps that ended.
        memory: by rank, its last peaks.
        states: what rank 0 holds for one parameter, once its optimizer has stepped; None before.
        counted: by rank, its floating-point operations in one step, once they were counted.
        problems: what ranks raised, in the order in which dsopt read it.
        withheld: functions with which the script tried to load a checkpoint, and got none, each with the path.
        resumes_from: the checkpoint of DeepSpeed's that was there for it; empty: none was.
        unsaved: functions with which it tried to save or report something, and which were skipped.
        sources: digests of the script's own files, by their names.
        ended: whether the script ended by itself.
    """

    engines: dict[int, Engine] = field(default_factory=dict)
    rows: int = 0
    elements: int = 0
    samples: int = 0
    ready: int = 0
    steps: list[Step] = field(default_factory=list)
    memory: dict[int, Memory] = field(default_factory=dict)
    states: States | None = None
    counted: dict[int, float] = field(default_factory=dict)
    problems: list[Oom | Error] = field(default_factory=list)
    withheld: list[tuple[str, str]] = field(default_factory=list)
    resumes_from: str = ""
    unsaved: list[str] = field(default_factory=list)
    sources: Mapping[str, str] = field(default_factory=dict)
    ended: bool = False

    def add(self, event: Event) -> None:
        """Takes in one event. Only those of rank 0 count, except memory, problems and, in pipelines, engines."""
        if isinstance(event, Engine):
            self.engines[event.rank] = event
        elif isinstance(event, Batch) and event.rank == 0:
            self.rows, self.elements = event.rows, event.elements
            self.samples, self.ready = event.samples, event.ready
        elif isinstance(event, Step) and event.rank == 0 and event.seconds >= _SHORTEST_SECONDS and event.samples > 0:
            self.steps.append(event)
        elif isinstance(event, Memory):
            self.memory[event.rank] = event
        elif isinstance(event, States) and event.rank == 0:
            self.states = event
        elif isinstance(event, Flops):
            self.counted[event.rank] = event.flops_per_step
        elif isinstance(event, Oom | Error):
            self.problems.append(event)
        elif isinstance(event, Withheld) and ("load" in event.what or "resume" in event.what):
            self.withheld.append((event.what, event.path))
            if event.is_there:
                self.resumes_from = self.resumes_from or event.path or "its last checkpoint"
        elif isinstance(event, Withheld):
            self.unsaved.append(event.what)
        elif isinstance(event, Sources) and event.rank == 0:
            self.sources = event.files
        elif isinstance(event, End) and event.rank == 0:
            self.ended = True

    @property
    def engine(self) -> Engine | None:
        """The settings in force and the whole model, once rank 0 has an engine."""
        first = self.engines.get(0)
        return first if first is None or first.pipeline_stages <= 1 else whole(first, self.engines.values())

    @property
    def flops(self) -> float | None:
        """Floating-point operations of one rank in one step: of rank 0, or the mean of a pipeline's ranks."""
        if self.engine is None or self.engine.pipeline_stages <= 1:
            return self.counted.get(0)
        return mean(self.counted.values()) if self.counted else None

    def skipped(self) -> tuple[int, ...]:
        """Indices of the steps that the optimizer skipped."""
        return tuple(index for index, step in enumerate(self.steps) if step.skipped)

    def left_out(self) -> tuple[int, ...]:
        """Indices of the steps that a measurement leaves out: those, and steps fed with other batches than most."""
        return tuple(sorted({*self.skipped(), *unlike_others(self.steps)}))

    def passes(self) -> dict[str, tuple[float, ...]]:
        """How many seconds the forward passes, backward passes and optimizer calls of each step took."""
        return {
            "forward": tuple(step.forward_seconds for step in self.steps),
            "backward": tuple(step.backward_seconds for step in self.steps),
            "step": tuple(step.optimizer_seconds for step in self.steps),
        }

    def measured(self, measurement: Measurement, *, counts_evaluation: bool = False) -> Measured:
        """The figures of the run, with this measurement. Only for a run that has an engine.

        Args:
            measurement: what its steps support.
            counts_evaluation: whether passes without gradients are part of them.
        """
        assert self.engine is not None
        seconds = sum(step.seconds for step in self.steps)
        left_out = 0.0 if counts_evaluation else sum(step.evaluation_seconds for step in self.steps[1:])
        return Measured(
            measurement=measurement,
            step_seconds=tuple(step_seconds(self.steps, counts=counts_evaluation)),
            engine=self.engine,
            peak_memory_bytes=max((m.peak_reserved_bytes for m in self.memory.values()), default=0),
            activation_bytes=max((m.activation_bytes for m in self.memory.values()), default=0),
            flops_per_step=self.flops,
            weight_bytes=self.states.weight_bytes if self.states else None,
            gradient_bytes=self.states.gradient_bytes if self.states else None,
            optimizer_bytes=self.states.optimizer_bytes if self.states else None,
            pass_seconds=self.passes(),
            rows=0 if usual_rows(self.steps) < 0 else self.rows,
            elements=self.elements,
            passes=max(0, usual_passes(self.steps)),
            step_rows=mean_rows(self.steps),
            step_elements=mean_elements(self.steps),
            growth=growth(self.steps),
            gain_of_full_steps=self._gain_of_full_steps(measurement, counts_evaluation=counts_evaluation),
            is_evaluated=shows_evaluation(self.steps),
            evaluation_share=left_out / seconds,
            peak_allocated_bytes=max((m.peak_allocated_bytes for m in self.memory.values()), default=0),
            outside_bytes=max((m.outside_bytes for m in self.memory.values()), default=0),
            alloc_retries=max((m.alloc_retries + m.ooms for m in self.memory.values()), default=0),
            skipped=self.skipped(),
            unlike=tuple(sorted(unlike_others(self.steps) | without_compilation(self.steps).keys())),
            nonfinite=tuple(index for index, step in enumerate(self.steps) if step.nonfinite_loss),
        )

    def _gain_of_full_steps(self, measurement: Measurement, *, counts_evaluation: bool) -> float:
        """By how much the figures are better than all steps of the same time, skipped ones and a pause apart."""
        seconds, first = step_seconds(self.steps, counts=counts_evaluation), measurement.warmup_steps
        last = first + measurement.measured_steps + measurement.skipped_steps + (measurement.pause_seconds > 0)
        out = {
            *self.skipped(),
            *without_compilation(self.steps),
            *(index for index, took in enumerate(seconds) if took == measurement.pause_seconds),
        }
        kept = [index for index in range(first, min(last, len(seconds))) if index not in out]
        return gain_of_full_steps(self.steps, seconds, kept)
