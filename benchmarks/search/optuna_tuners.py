"""Optuna's samplers over the same candidates, with runs that are started and measured as dsopt's are.

They are given what they need to do well: integer indices in place of categories, out-of-memory as a violated constraint
and not as a failure, the user's own configuration as their first trial, a limit of the micro-batch size that a person
would not know, and a candidate that they ask for again costs nothing.
"""

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import TrialState

from benchmarks.search.machine import Machine
from benchmarks.search.measuring import run_once
from benchmarks.search.records import Journal, Record
from benchmarks.search.space import Space
from dsopt.optuna import XGBoostSampler
from dsopt.study.space import Candidate, Knob

SamplerName = Literal["tpe", "gp", "random", "xgboost"]
_STARTUP_TRIALS = 4
# a sampler that asks for what it knows so often in a row is given a random candidate instead
_PATIENCE = 4
_MOST_ASKS = 10  # times the runs


@dataclass(frozen=True, slots=True, kw_only=True)
class OptunaTuner:
    """A tuner for `benchmarks.search`.

    Attributes:
        sampler: which of Optuna's.
        runs: how many launches it may spend.
        fast: whether the documented knobs are left out.
    """

    sampler: SamplerName
    runs: int
    fast: bool = True

    @property
    def name(self) -> str:
        return f"optuna {self.sampler}"

    def tune(self, machine: Machine, seed: int) -> Record:
        """Tunes a machine from nothing; the choice is the best measured.

        Args:
            machine: what to tune.
            seed: of the sampler and of the numbers of its launches.
        """
        space = Space.of(machine, fast=self.fast)
        axes = _Axes.of(space)
        journal = Journal(machine, self.name)
        known: dict[Candidate, float | None] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of samplers and arguments that Optuna calls experimental
            optuna.logging.set_verbosity(optuna.logging.ERROR)
            study = optuna.create_study(direction="maximize", sampler=_sampler(self.sampler, seed))
            study.enqueue_trial(axes.indices(space.own))
            random, repeats = np.random.default_rng(seed), 0
            for _ in range(_MOST_ASKS * self.runs):
                if len(known) == self.runs:
                    break
                trial = study.ask(axes.distributions)
                candidate = axes.candidate(trial.params)
                repeats = repeats + 1 if candidate in known else 0
                if repeats == _PATIENCE:
                    study.enqueue_trial(axes.indices(space.random(random)))
                    repeats = 0
                if candidate not in known:
                    launch = 1000 * seed + len(known)
                    known[candidate] = run_once(machine, space.config(candidate), launch, journal)
                value = known[candidate]
                if value is None:
                    trial.set_constraint("fits", 1.0)
                    study.tell(trial, state=TrialState.PRUNED)
                else:
                    trial.set_constraint("fits", -1.0)
                    study.tell(trial, value)
        ran = {candidate: value for candidate, value in known.items() if value is not None}
        return journal.close(space.config(max(ran, key=ran.__getitem__)) if ran else None)


def _sampler(name: SamplerName, seed: int) -> BaseSampler:
    if name == "tpe":
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=_STARTUP_TRIALS, multivariate=True)
    if name == "gp":
        return optuna.samplers.GPSampler(seed=seed, n_startup_trials=_STARTUP_TRIALS)
    if name == "xgboost":
        return XGBoostSampler(seed=seed)
    return optuna.samplers.RandomSampler(seed=seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axes:
    """The space as integers: stage, micro-batch size, which accumulation, and the index of each knob's value.

    A knob that does not exist at a trial's stage has an index all the same, and no effect.
    """

    space: Space
    knobs: dict[str, list[Knob]]

    @classmethod
    def of(cls, space: Space) -> "_Axes":
        knobs: dict[str, list[Knob]] = {}
        for stage in space.stages:
            for key, values in stage.knobs.items():
                known = knobs.setdefault(key, [])
                known += [value for value in values if value not in known]
        return cls(space=space, knobs=knobs)

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        lengths = {key: len(values) for key, values in self.knobs.items()}
        most = max(len(self.space.gases(size)) for size in range(1, self.space.limit + 1))
        lengths |= {"stage": len(self.space.stages), "accumulation": most}
        sizes = IntDistribution(min(self.space.smallest.values()), self.space.limit)
        return {"micro_batch": sizes, **{key: IntDistribution(0, n - 1) for key, n in lengths.items() if n > 1}}

    def candidate(self, params: dict[str, int]) -> Candidate:
        stage = self.space.stages[params["stage"]]
        size = max(params["micro_batch"], self.space.smallest[stage.stage])
        gases = self.space.gases(size)
        return Candidate(
            stage=stage.stage,
            micro_batch=size,
            gas=gases[min(params.get("accumulation", 0), len(gases) - 1)],
            knobs=tuple((key, self._value(key, params.get(key, 0), values)) for key, values in stage.knobs.items()),
        )

    def indices(self, candidate: Candidate) -> dict[str, int]:
        chosen = dict(candidate.knobs)
        indices = {key: values.index(chosen[key]) if key in chosen else 0 for key, values in self.knobs.items()}
        gases = self.space.gases(candidate.micro_batch)
        gas = gases.index(candidate.gas) if candidate.gas in gases else 0
        stage = [space.stage for space in self.space.stages].index(candidate.stage)
        all_indices = {"stage": stage, "micro_batch": candidate.micro_batch, "accumulation": gas, **indices}
        return {key: value for key, value in all_indices.items() if key in self.distributions}

    def _value(self, key: str, index: int, applying: tuple[Knob, ...]) -> Knob:
        value = self.knobs[key][index]
        return value if value in applying else applying[0]
