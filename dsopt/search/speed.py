"""From a tuning metric to step times: score = log(work of a step) − log(seconds); more is better for any metric."""

import numpy as np
from numpy.typing import NDArray

from dsopt.search.facts import ModelFacts
from dsopt.search.grid import Grid
from dsopt.search.sharding import replicas
from dsopt.study.spec import StudySpec


def log_work(spec: StudySpec, facts: ModelFacts, grid: Grid) -> NDArray[np.float64]:
    """Logarithm of what a step of each candidate does, in the metric's terms, shape `(n,)`.

    Samples of the whole job for `throughput`; samples of one rank for `throughput_per_gpu`, and for `FLOPS`, which is
    proportional to its operations; for the times a step is a step, so 0.
    """
    if not spec.autotuning.maximize:
        return np.zeros(len(grid.which))
    samples = np.log(grid.micro_batch * grid.gas)
    if spec.autotuning.metric == "throughput":
        ranks = np.array([replicas(spec, facts, setting) for _, setting in grid.settings], dtype=float)
        samples = samples + np.log(ranks[grid.which])
    return samples


def log_score(spec: StudySpec, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores of measured metrics, shape `(n,)`."""
    return np.log(values) if spec.autotuning.maximize else -np.log(values)


def metric_of(spec: StudySpec, score: float) -> float:
    """The metric that has this score."""
    return float(np.exp(score if spec.autotuning.maximize else -score))
