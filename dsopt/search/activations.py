"""What a forward pass leaves on a device: what runs have shown for the settings that may change it."""

from typing import Final

from dsopt.search.facts import ModelFacts
from dsopt.search.history import History, Observation
from dsopt.search.kinds import Kinds
from dsopt.search.sharding import sharding_of
from dsopt.search.tally import Tally, tallies
from dsopt.search.zero_buffers import step_copies
from dsopt.search.zero_settings import ZeroSettings
from dsopt.study.space import Setting
from dsopt.study.spec import StudySpec

_LEAST_SHARE: Final = 0.1
_NEARLY: Final = 0.97
# Sizes that are close to each other, and of several stages, show no slope. It is at least this share of what a sample
# takes on average.
_LEAST_SLOPE: Final = 0.5


def activation_lines(
    spec: StudySpec, facts: ModelFacts, history: History, kinds: Kinds
) -> dict[Setting, tuple[float, float]]:
    """Activations as a line over micro-batch sizes, first value and slope, for each kind of setting that was run.

    `()` stands for every other kind. If nothing was seen, it is what states leave of the peak of the run that the facts
    are from, and at least a tenth of it.
    """
    seen: dict[Setting, dict[int, int]] = {}
    if facts.activation_bytes:
        seen[()] = {facts.micro_batch: facts.activation_bytes}
    for found in tallies(history, _Left):
        for (setting, size), left in found.of.items():
            seen.setdefault(kinds.of(setting), {})[size] = left
    lines = {kind: _line(left) for kind, left in seen.items()}
    return {(): (0.0, _unseen(spec, facts) / facts.micro_batch), **lines}


def _unseen(spec: StudySpec, facts: ModelFacts) -> float:
    """What the forward pass of a run probably left that nobody looked at."""
    sharding = sharding_of(spec, facts, facts.zero_stage, ())
    states = sharding.device_bytes(facts)
    zero = ZeroSettings(spec, facts.hidden_size)
    stepping = states + step_copies(spec, facts, zero, sharding, ())
    peak = facts.peak_allocated_bytes or facts.peak_memory_bytes
    at_most = peak - (states - sharding.gradient_bytes(facts))
    is_of_step = stepping >= _NEARLY * peak  # then activations may be anything up to that
    return max(_LEAST_SHARE * peak, at_most / 2 if is_of_step else at_most)


class _Left(Tally):
    """What forward passes left, in bytes, by setting outside of ZeRO and micro-batch size; the last run counts."""

    def __init__(self) -> None:
        self.of: dict[tuple[Setting, int], int] = {}

    def add(self, run: Observation) -> None:
        if run.activations is not None:
            setting, size, left = run.activations
            self.of[setting, size] = left


def _line(left: dict[int, int]) -> tuple[float, float]:
    """The line of least squares, in whole numbers: the same points give the same line to the last bit."""
    count, sizes, sums = len(left), sum(left), sum(left.values())
    squares, products = sum(size * size for size in left), sum(size * held for size, held in left.items())
    rise, run = count * products - sizes * sums, count * squares - sizes * sizes
    least = _LEAST_SLOPE * sums / sizes
    if run > 0 and rise / run >= least:
        return (sums * squares - sizes * products) / run, rise / run
    if count > 1:
        return (sums - least * sizes) / count, least
    return 0.0, sums / sizes
