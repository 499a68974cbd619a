"""An optimizer step whose marks may not have passed on the device yet."""

from dataclasses import dataclass, field

from dsopt.probe.clock import Clock, Mark
from dsopt.probe.losses import Losses
from dsopt.protocol.events import Step


@dataclass(slots=True, kw_only=True)
class PendingStep:
    """A step, with what its event will tell."""

    number: int
    start: Mark
    end: Mark
    forward: list[tuple[Mark, Mark]] = field(default_factory=list)
    backward: list[tuple[Mark, Mark]] = field(default_factory=list)
    optimizer: list[tuple[Mark, Mark]] = field(default_factory=list)
    losses: Losses = field(default_factory=Losses)
    samples: int = 0
    skipped: bool = False
    passes: int = 0
    rows: int = 0
    elements: int = 0
    waiting: int = 0
    is_evaluated: bool = False
    evaluated_until: Mark | None = None
    is_unseen: bool = False

    def told(self, clock: Clock, *, rank: int) -> Step:
        """Its event. Only once its marks have passed."""

        def total(spans: list[tuple[Mark, Mark]]) -> float:
            return sum(clock.seconds(start, end) for start, end in spans)

        until = self.evaluated_until
        return Step(
            rank=rank,
            step=self.number,
            seconds=clock.seconds(self.start, self.end),
            samples=self.samples,
            forward_seconds=total(self.forward),
            backward_seconds=total(self.backward),
            optimizer_seconds=total(self.optimizer),
            skipped=self.skipped,
            nonfinite_loss=not self.losses.are_finite(),
            passes=self.passes,
            rows=0 if self.is_unseen else self.rows,
            elements=self.elements,
            evaluation_seconds=0.0 if until is None else clock.seconds(self.start, until),
            waiting=self.waiting,
        )
