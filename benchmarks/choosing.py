"""How long it takes to choose among 10,000 candidates with 500 finished trials: fitting all models, and ranking.

python -m benchmarks.choosing [ROUNDS]
"""

import random
import statistics
import sys
import time

from benchmarks.scenarios.families import draw
from benchmarks.search.dsopt_tuner import spec_of
from benchmarks.search.machine import Simulated
from dsopt.search.facts import ModelFacts
from dsopt.search.forecast import Forecast
from dsopt.search.history import History, Observation
from dsopt.search.tuners.model_based import ranked
from dsopt.study.space import Candidate

_KNOWN, _CANDIDATES = 500, 10_000


def main(rounds: int = 5) -> None:
    """Prints the median and the range of so many rounds, in milliseconds."""
    machine = Simulated(draw(230, noise=0.02))
    spec = spec_of(machine, fast=False)
    known = machine.facts
    facts = ModelFacts(
        num_params=known.params, trainable_params=known.trainable_params, world_size=known.ranks, dtype=known.dtype,
        device_memory_bytes=known.device_memory_bytes, zero_stage=2, micro_batch=4, gas=1,
        peak_memory_bytes=known.device_memory_bytes // 2, activation_bytes=known.device_memory_bytes // 8,
    )  # fmt: skip
    space = spec.space(2, facts.hidden_size)
    candidates = list(space.candidates(range(1, 200), (1, 2)))
    random.Random(0).shuffle(candidates)
    observations = [_measured(number, candidate, facts) for number, candidate in enumerate(candidates[:_KNOWN])]
    baseline = Observation(
        trial=0, name="baseline", round=0, candidate=None, phase="range", state="measured", reason=None, message="",
        value=100.0, facts=facts,
    )  # fmt: skip
    history = History(reference=[baseline], stages={2: observations})
    ranked(candidates[:2], Forecast(spec, facts, history))  # imports xgboost
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        ranked(candidates[_KNOWN : _KNOWN + _CANDIDATES], Forecast(spec, facts, history))
        times.append(1000 * (time.perf_counter() - began))
    count = len(candidates[_KNOWN : _KNOWN + _CANDIDATES])
    print(f"{count} candidates, {len(observations)} known: median {statistics.median(times):.0f} ms", end=" ")
    print(f"({min(times):.0f} to {max(times):.0f})")


def _measured(number: int, candidate: Candidate, facts: ModelFacts) -> Observation:
    value = 1000 * candidate.micro_batch / (candidate.micro_batch + 8) * (1 + 0.01 * (number % 7))
    return Observation(
        trial=number, name=candidate.name, round=0, candidate=candidate, phase="joint", state="measured", reason=None,
        message="", value=value, facts=facts, half_width=0.02, order=float(number),
    )  # fmt: skip


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
