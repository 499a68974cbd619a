"""A pruner that refuses a trial which will not fit into memory, before it costs a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray
from optuna.pruners import BasePruner
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

Array = NDArray[np.float64]

_MARGIN: Final = 0.05  # a prediction must exceed the limit by this fraction
_SURE: Final = 2.0  # and by so many standard deviations of the line's residuals


class FitModel(Protocol):
    """Anything that can say whether a trial fits."""

    def fits(self, params: Mapping[str, Any]) -> bool:
        """Whether a trial with these parameters may run."""


class MemoryPruner(BasePruner):
    """Prunes a trial that cannot fit, judging by what earlier trials needed.

    Ask it once all parameters that affect memory are suggested, and before you start anything:

        if trial.should_prune():
            raise optuna.TrialPruned

    It compares trials that differ only in the parameters that add memory (`monotone`), such as a batch size. It prunes
    a trial

    - if one that is no larger in any of these ran out of memory, that is, violated a constraint;
    - with `limit_bytes`, if one that is no larger had a peak above it;
    - with `limit_bytes`, if the line through the peaks of two or more others, which cannot fall, is clearly above it.

    It never prunes because of trials with other values of the other parameters, and learns nothing from trials that
    failed without a violated constraint.

    Args:
        monotone: names of numeric parameters of which more never needs less memory.
        limit_bytes: the available memory; None: only trials that ran out of memory count.
        peak: the user attribute in which trials record their measured peak, in bytes.
        constraint: name of the constraint that is violated when memory runs out; None: any constraint.
        model: your own model, which it asks as well.

    Raises:
        ValueError: there is neither a `monotone` parameter nor a `model`, or `limit_bytes` is not above 0.
    """

    def __init__(
        self,
        monotone: Sequence[str] = (),
        *,
        limit_bytes: float | None = None,
        peak: str = "peak_memory_bytes",
        constraint: str | None = None,
        model: FitModel | None = None,
    ) -> None:
        if not monotone and model is None:
            raise ValueError("MemoryPruner needs the names of parameters that only add memory (monotone), or a model")
        if limit_bytes is not None and limit_bytes <= 0:
            raise ValueError(f"limit_bytes is {limit_bytes}; it must be above 0")
        self._monotone = tuple(monotone)
        self._limit_bytes = limit_bytes
        self._peak = peak
        self._constraint = constraint
        self._model = model

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether the trial cannot fit, judging by its suggested parameters.

        Raises:
            ValueError: a `monotone` parameter of the trial, or a recorded peak, is not a number.
        """
        if self._model is not None and not self._model.fits(trial.params):
            return True
        asked = self._sizes(trial)
        if asked is None:
            return False
        known = self._alike(study, trial)
        smaller = [one for one in known if bool((one.sizes <= asked).all())]
        if any(one.ran_out for one in smaller):
            return True
        measured = [one for one in known if one.peak_bytes is not None]
        if self._limit_bytes is None or not measured:
            return False
        if any(one.peak_bytes is not None and one.peak_bytes > self._limit_bytes for one in smaller):
            return True
        return _is_clearly_above(measured, asked, self._limit_bytes)

    def _alike(self, study: Study, trial: FrozenTrial) -> "list[_Known]":
        """Ended trials with the same parameters, and the same values of all that are not `monotone`."""
        others = {name: value for name, value in trial.params.items() if name not in self._monotone}
        known = []
        for one in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)):
            same = one.params.keys() == trial.params.keys() and all(one.params[n] == v for n, v in others.items())
            sizes = self._sizes(one) if same else None
            if sizes is not None:
                known.append(_Known(sizes=sizes, ran_out=self._ran_out(one), peak_bytes=self._peak_of(one)))
        return known

    def _peak_of(self, trial: FrozenTrial) -> float | None:
        peak = trial.user_attrs.get(self._peak)
        if peak is None or _is_number(peak):
            return peak
        raise ValueError(f"trial {trial.number} has {peak!r} as '{self._peak}'; a peak must be a number of bytes")

    def _ran_out(self, trial: FrozenTrial) -> bool:
        if self._constraint is not None:
            return trial.constraints.get(self._constraint, 0.0) > 0
        return any(value > 0 for value in trial.constraints.values())

    def _sizes(self, trial: FrozenTrial) -> Array | None:
        """The `monotone` parameters that a trial has; None if it has none."""
        values = {name: trial.params[name] for name in self._monotone if name in trial.params}
        for name, value in values.items():
            if not _is_number(value):
                raise ValueError(f"parameter '{name}' is {value!r}; a monotone parameter must be a number")
        return np.array(list(values.values()), dtype=float) if values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What an earlier trial shows: its sizes, shape `(k,)`, whether it ran out of memory, and its peak if measured."""

    sizes: Array
    ran_out: bool
    peak_bytes: float | None


def _is_clearly_above(measured: Sequence[_Known], asked: Array, limit_bytes: float) -> bool:
    """Whether memory as a constant and a share of each size and of their product, none below 0, is over the limit."""
    from scipy.optimize import nnls

    sizes = np.array([one.sizes for one in measured])
    peaks = np.array([one.peak_bytes for one in measured], dtype=float)
    if len(np.unique(sizes, axis=0)) < 2:
        return False
    rows = _terms(np.vstack([sizes, asked]))
    largest = np.maximum(rows.max(axis=0), 1e-12)
    shares, _ = nnls(rows[:-1] / largest, peaks)
    expected = float(rows[-1] / largest @ shares)
    freedom = max(1, len(peaks) - int((shares > 0).sum()))
    left_over = float(np.sqrt(((rows[:-1] / largest @ shares - peaks) ** 2).sum() / freedom))
    return expected - _SURE * left_over > limit_bytes * (1 + _MARGIN)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _terms(sizes: Array) -> Array:
    terms = [np.ones(len(sizes)), *sizes.T]
    if sizes.shape[1] > 1:
        terms.append(sizes.prod(axis=1))
    return np.column_stack(terms)
