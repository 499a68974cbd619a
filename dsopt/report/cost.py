"""What samples cost, and what the study itself cost, at the user's price of a GPU."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dsopt.search.facts import ModelFacts
from dsopt.search.history import BASELINE, History
from dsopt.search.sharding import world_size
from dsopt.search.standing import Comparison
from dsopt.study.space import Candidate, Setting
from dsopt.study.spec import StudySpec

_MILLION = 1e6
_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Amounts in the currency of `price_per_gpu_hour`.

    Attributes:
        study: of all launches of the study: also of those that failed, were stopped or lost, until that was noticed.
        own, best: of a million samples, with the user's configuration and with the best; None if that is not known.
    """

    study: float
    own: float | None
    best: float | None


def cost_of(
    spec: StudySpec, history: History, result: Comparison | None, launches: Sequence[tuple[str, float]]
) -> Cost | None:
    """The cost, if the user gave a price; of samples only where a throughput is the metric.

    `launches`: of each, what it ran, by name, and for how many seconds it held its devices.
    """
    facts, price = history.facts_for(spec), spec.price_per_gpu_hour
    if price is None or facts is None:
        return None
    knobs = {o.name: o.candidate.knobs for o in history.everything if o.candidate is not None}
    seconds = sum(held * _gpus(spec, facts, knobs.get(name, ())) for name, held in launches)
    own = best = None
    if result is not None and spec.autotuning.metric in ("throughput", "throughput_per_gpu"):
        chosen = next((o.candidate for o in history.measured if o.name == result.best), None)
        is_of_one = spec.autotuning.metric == "throughput_per_gpu"
        of_best, of_own = (
            1 if is_of_one else _gpus(spec, facts, setting) for setting in (_knobs(chosen, result.best), ())
        )
        best = _of_million(price, result.value, of_best)
        own = _of_million(price, result.baseline, of_own) if result.baseline else None
    return Cost(study=seconds / _HOUR * price, own=own, best=best)


def money(amount: float) -> str:
    """An amount: cents for small ones, none for large ones."""
    return f"{amount:,.2f}" if amount < 100 else f"{amount:,.0f}"


def _of_million(price: float, samples_per_second: float, gpus: int) -> float:
    return _MILLION / samples_per_second / _HOUR * gpus * price


def _gpus(spec: StudySpec, facts: ModelFacts, knobs: Setting) -> int:
    return math.prod(world_size(spec, facts, knobs))


def _knobs(candidate: Candidate | None, name: str) -> Setting:
    return () if candidate is None or name == BASELINE else candidate.knobs
