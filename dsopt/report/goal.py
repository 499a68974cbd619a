"""What a study's metric asks for, in words: only more samples a second are faster."""

from dataclasses import dataclass
from statistics import fmean
from typing import Final, NamedTuple

from dsopt.protocol.text import significant
from dsopt.search.global_batch import batch_of_run
from dsopt.search.history import BASELINE, History
from dsopt.search.sharding import replicas
from dsopt.search.standing import Comparison
from dsopt.study.spec import StudySpec

SPEED: Final = "throughput"
_NOISE: Final = 0.02
_NAMES: Final = {
    SPEED: "throughput",
    "throughput_per_gpu": "throughput of a GPU",
    "FLOPS": "FLOPS of a GPU",
    "latency": "time of a step",
    "forward": "time of the forward passes",
    "backward": "time of the backward passes",
    "step": "time of the optimizer's step",
}


def metric_name(metric: str) -> str:
    """The metric as people call it."""
    return _NAMES.get(metric, metric)


def times_text(metric: str, factor: float, than: str) -> str:
    """How many times as good as something else, in the metric's terms."""
    if metric == SPEED:
        return f"{factor:.2f} times as fast as {than}"
    return f"{factor:.2f} times as good as {than} in {metric_name(metric)}"


def baseline_text(metric: str, speedup: float, interval: tuple[float, float] | None) -> str:
    """How many times as good as the baseline, and how sure that is."""
    times = f"{speedup:.2f} times the baseline" if metric == SPEED else times_text(metric, speedup, "the baseline")
    if interval is None:
        return f"{times}."
    low, high = interval
    sure = "" if low > 1 else f" The interval includes 1: it may be no {comparative(metric)} than yours."
    return f"{times} (95 % interval {low:.2f}–{high:.2f}).{sure}"


def keep_text(metric: str) -> str:
    """That nothing else is better."""
    if metric == SPEED:
        return "Keep your configuration: it is the fastest found."
    return "Keep your configuration: it is the best found."


def doubt_text(metric: str) -> str:
    """That the interval of the factor includes 1."""
    return "It may be no faster." if metric == SPEED else "It may be no better."


def comparative(metric: str) -> str:
    """What something is by the metric that is better than another."""
    return "faster" if metric == SPEED else "better"


def superlative(metric: str) -> str:
    """What the best is by the metric."""
    return "fastest" if metric == SPEED else "best"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSpeed:
    """How fast a training is where that is not the metric, in samples/s of all GPUs."""

    metric: str
    own: float
    best: float

    @property
    def is_slower(self) -> bool:
        """Whether the best of the metric trains more slowly than the user's own configuration."""
        return self.best < (1 - _NOISE) * self.own

    def warnings(self) -> list[str]:
        """What a reader has to know then."""
        if not self.is_slower:
            return []
        return [
            f"WARNING: the best trains {significant(self.best)} samples/s, your configuration {significant(self.own)}: "
            f"the same samples take {significant(self.own / self.best, 3)} times as long. It is the best in "
            f"{metric_name(self.metric)}, as 'metric: {self.metric}' asks for. For the fastest training, tune with "
            f"'metric: {SPEED}', under another --name."
        ]


def training_speed(spec: StudySpec, history: History, result: Comparison | None) -> TrainingSpeed | None:
    """The speed of the best and of the user's own, by their runs; None where it is the metric, or is not known.

    Where the metric tells the ratio, it is the result's, which knows what differs between nodes.
    """
    metric = spec.autotuning.metric
    if metric == SPEED or result is None or result.best == BASELINE or result.speedup is None:
        return None
    own, best = (_work(spec, history, name) for name in (BASELINE, result.best))
    if own is None or best is None:
        return None
    speeds = [work.samples / work.seconds for work in (own, best)]
    if metric == "latency":
        speeds[1] = speeds[0] * result.speedup * best.samples / own.samples
    elif spec.autotuning.maximize:
        speeds[1] = speeds[0] * result.speedup * best.ranks / own.ranks
    return TrainingSpeed(metric=metric, own=speeds[0], best=speeds[1])


class _Work(NamedTuple):
    """Of a step: samples, seconds, and by how many ranks."""

    samples: float
    seconds: float
    ranks: int


def _work(spec: StudySpec, history: History, name: str) -> _Work | None:
    """The mean of all runs of a configuration."""
    runs = [
        _Work(batch_of_run(spec, o.facts, knobs), o.step_seconds, replicas(spec, o.facts, knobs))
        for o in history.everything
        if o.name == name and o.state == "measured" and o.facts is not None and o.step_seconds
        for knobs in [o.candidate.knobs if o.candidate is not None else ()]
    ]
    if not runs:
        return None
    return _Work(fmean(run.samples for run in runs), fmean(run.seconds for run in runs), runs[0].ranks)
