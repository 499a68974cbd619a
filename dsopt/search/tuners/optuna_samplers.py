"""Optuna's own samplers over our candidates: what they suggest, and the candidates nearest to it."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import TrialState, create_trial

from dsopt.search.history import Observation
from dsopt.search.tuners.choice import Choice
from dsopt.study.space import Candidate

_STARTUP_TRIALS = 4  # these samplers begin at random; a stage has few trials to spend


def tpe(choice: Choice) -> Sequence[Candidate]:
    """As the tree-structured Parzen estimator suggests."""
    sampler = optuna.samplers.TPESampler(seed=choice.trial, n_startup_trials=_STARTUP_TRIALS, multivariate=True)
    return _suggested_first(choice, sampler)


def gp(choice: Choice) -> Sequence[Candidate]:
    """As the Gaussian process suggests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna calls it experimental
        sampler = optuna.samplers.GPSampler(seed=choice.trial, n_startup_trials=_STARTUP_TRIALS)
    return _suggested_first(choice, sampler)


# AutoSampler itself is code that OptunaHub downloads when it is used; below 250 trials of numeric parameters it is a
# Gaussian process
auto = gp


def cmaes(choice: Choice) -> Sequence[Candidate]:
    """As the covariance matrix adaptation evolution strategy suggests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = optuna.samplers.CmaEsSampler(
            seed=choice.trial, n_startup_trials=_STARTUP_TRIALS, warn_independent_sampling=False
        )
    return _suggested_first(choice, sampler)


def _suggested_first(choice: Choice, sampler: BaseSampler) -> Sequence[Candidate]:
    """The candidates in the order of their distance from what an Optuna sampler suggests next.

    The sampler is asked in a study in memory whose parameters are each dimension's values by index: with categories
    Gaussian processes and CMA-ES would fall back to other samplers. A run that did not fit is told as PRUNED with a
    violated constraint, so that it teaches where not to look.
    """
    candidates = choice.candidates
    seen = [o for o in choice.observations if o.candidate is not None and o.state != "running"]
    known = [o.candidate for o in seen if o.candidate is not None]
    axes = _axes([*candidates, *known])
    if not axes:
        return list(candidates)
    distributions: dict[str, BaseDistribution] = {
        key: IntDistribution(0, len(values) - 1) for key, values in axes.items()
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of samplers that Optuna calls experimental
        study = optuna.create_study(
            direction="maximize" if choice.maximize else "minimize",
            sampler=sampler,
            pruner=optuna.pruners.NopPruner(),
        )
        for observation, candidate in zip(seen, known, strict=True):
            study.add_trial(_trial(observation, _indices(candidate, axes), distributions))
        suggestion = study.ask(distributions).params
    wanted = np.array([suggestion[key] / max(1, len(values) - 1) for key, values in axes.items()])
    order = np.argsort([_distance(candidate, axes, wanted) for candidate in candidates], kind="stable")
    return [candidates[int(index)] for index in order]


def _axes(candidates: Sequence[Candidate]) -> dict[str, list[Any]]:
    """The dimensions along which the candidates differ, each with its values in order."""
    axes: dict[str, list[Any]] = {}
    for candidate in candidates:
        for key, value in candidate.params.items():
            values = axes.setdefault(key, [])
            if value not in values:
                values.append(value)
    return {key: sorted(values, key=_rank) for key, values in axes.items() if len(values) > 1}


def _rank(value: Any) -> tuple[int, float, str]:  # noqa: ANN401 - any knob
    numeric = isinstance(value, int | float)
    return (0 if value is None else 1 if numeric else 2, float(value) if numeric else 0.0, str(value))


def _indices(candidate: Candidate, axes: dict[str, list[Any]]) -> dict[str, int]:
    params = candidate.params
    return {key: values.index(params[key]) for key, values in axes.items() if key in params}


def _distance(candidate: Candidate, axes: dict[str, list[Any]], wanted: NDArray[np.float64]) -> float:
    indices = _indices(candidate, axes)
    place = np.array([indices.get(key, 0) / max(1, len(values) - 1) for key, values in axes.items()])
    return math.dist(place, wanted)


def _trial(
    observation: Observation, params: dict[str, int], distributions: dict[str, BaseDistribution]
) -> optuna.trial.FrozenTrial:
    chosen = {key: distributions[key] for key in params}
    if observation.value is not None:
        return create_trial(params=params, distributions=chosen, value=observation.value)
    if observation.state == "failed":
        return create_trial(params=params, distributions=chosen, state=TrialState.FAIL)
    return create_trial(params=params, distributions=chosen, state=TrialState.PRUNED, constraints={"fits": 1.0})
