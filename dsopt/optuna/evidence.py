"""What the trials of a study show about a search space."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial, TrialState

from dsopt.optuna.encoding import Row, SearchSpace

Array = NDArray[np.float64]

_MOST: Final = 150  # trials that models learn from: the best half of them, and the latest


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of p parameters; values are in Optuna's internal representation.

    Attributes:
        scored: values of the n trials that have a figure, shape `(n, p)`.
        scores: their figures, larger is better, shape `(n,)`.
        feasible: whether each met all constraints, shape `(n,)`.
        judged: values of the m trials whose constraints are known, shape `(m, p)`; none if no trial has any.
        violations: the worst of each trial's constraints, above 0 where violated, shape `(m,)`.
        ended: values of the k trials that have ended, shape `(k, p)`.
        failed: whether each came to nothing: it failed, or was pruned before it reported anything; shape `(k,)`.
        pending: values of trials that are still running, shape `(r, p)`.
        tried: every point that was or is being tried, including trials that the models do not learn from.
        count: how many trials are informative (`_count`).
    """

    scored: Array
    scores: Array
    feasible: NDArray[np.bool_]
    judged: Array
    violations: Array
    ended: Array
    failed: NDArray[np.bool_]
    pending: Array
    tried: frozenset[Row]
    count: int


def evidence(space: SearchSpace, trials: Sequence[FrozenTrial], pending: Sequence[Row], *, maximize: bool) -> Evidence:
    """Reads trials; ignores those that lack a parameter of the space.

    A trial that was pruned after it had reported figures counts with its last one, but as no better than half of the
    completed ones: that is why it was pruned. A failure has no figure and never gets one.

    Args:
        space: the parameters.
        trials: those that have ended.
        pending: points that are being tried.
        maximize: whether a larger figure is better.
    """
    known = [(row, trial) for trial in trials if (row := space.row(trial.params)) is not None]
    tried = frozenset([*(row for row, _ in known), *pending])
    ended = len(known)
    known = _most_telling(known, maximize=maximize)
    sign, width = 1.0 if maximize else -1.0, len(space.axes)
    complete = [sign * t.value for _, t in known if t.state == TrialState.COMPLETE and t.value is not None]
    usual = float(np.median(complete)) if complete else math.inf
    scored, judged = [], []
    scales = _scales([t for _, t in known])
    for row, trial in known:
        score = _score(trial, sign, usual)
        worst = _violation(trial, scales)
        if score is not None:
            scored.append((row, score, worst is None or worst <= 0))
        if worst is not None:
            judged.append((row, worst))
    return Evidence(
        scored=_rows([row for row, _, _ in scored], width),
        scores=_finite(np.array([score for _, score, _ in scored], dtype=float)),
        feasible=np.array([ok for _, _, ok in scored], dtype=bool),
        judged=_rows([row for row, _ in judged], width),
        violations=np.array([worst for _, worst in judged], dtype=float),
        ended=_rows([row for row, _ in known], width),
        failed=np.array([_is_failure(trial) for _, trial in known], dtype=bool),
        pending=_rows(pending, width),
        tried=tried,
        count=_count(ended, len(scored), len(pending)),
    )


def _count(ended: int, scored: int, pending: int) -> int:
    """How many trials are informative: those with a figure, but at least half of all; plus as many that still run."""
    telling = max(min(scored, ended), ended // 2)
    return telling + min(telling, pending)


def _rows(rows: Sequence[Row], width: int) -> Array:
    return np.array(rows, dtype=float).reshape(-1, width)


def _most_telling(known: list[tuple[Row, FrozenTrial]], *, maximize: bool) -> list[tuple[Row, FrozenTrial]]:
    if len(known) <= _MOST:
        return known
    worst = -math.inf if maximize else math.inf
    by_value = sorted(
        known, key=lambda pair: pair[1].value if pair[1].value is not None else worst, reverse=maximize
    )  # fmt: skip
    chosen = {pair[1].number for pair in (*by_value[: _MOST // 2], *known[-_MOST // 2 :])}
    return [pair for pair in known if pair[1].number in chosen]


def _score(trial: FrozenTrial, sign: float, usual: float) -> float | None:
    if trial.state == TrialState.COMPLETE:
        return None if trial.value is None else sign * trial.value
    last = trial.last_step
    if trial.state != TrialState.PRUNED or last is None or math.isnan(trial.intermediate_values[last]):
        return None
    return min(sign * trial.intermediate_values[last], usual)


def _is_failure(trial: FrozenTrial) -> bool:
    if trial.state == TrialState.FAIL:
        return True
    return trial.state == TrialState.PRUNED and trial.last_step is None and not trial.constraints


def _scales(trials: Sequence[FrozenTrial]) -> dict[str, float]:
    """The usual size of each constraint's values, to make different constraints comparable."""
    values: dict[str, list[float]] = {}
    for trial in trials:
        for name, value in trial.constraints.items():
            values.setdefault(name, []).append(abs(value))
    return {name: float(np.median([v for v in found if v > 0] or [1.0])) for name, found in values.items()}


def _violation(trial: FrozenTrial, scales: dict[str, float]) -> float | None:
    """The worst of a trial's constraints, in their usual sizes; None if none is known.

    A completed trial without a constraint that others have counts as one that met it, as Optuna has it.
    """
    if not scales:
        return None
    if trial.state == TrialState.COMPLETE:
        known = [trial.constraints.get(name, -scale) / scale for name, scale in scales.items()]
    else:
        known = [value / scales[name] for name, value in trial.constraints.items()]
    return float(np.clip(max(known), -3.0, 3.0)) if known else None


def _finite(scores: Array) -> Array:
    """Infinite scores as just beyond the others."""
    finite = scores[np.isfinite(scores)]
    if len(finite) == len(scores):
        return scores
    if not len(finite):
        return np.sign(scores)
    reach = float(np.ptp(finite)) or 1.0
    return np.nan_to_num(scores, posinf=float(finite.max()) + reach, neginf=float(finite.min()) - reach)
