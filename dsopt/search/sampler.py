"""The sampler of studies: an `XGBoostSampler` with its own candidates and order."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial

from dsopt.errors import DsoptError
from dsopt.optuna import XGBoostSampler
from dsopt.search.forecast import Forecast
from dsopt.search.history import Observation
from dsopt.search.tuners.choice import Choice, Tuner
from dsopt.study.space import ACCUMULATION, LARGEST, MICRO_BATCH, Candidate, StageSpace


class CandidateSampler(XGBoostSampler):
    """Gives each trial the first candidate in the tuner's order.

    Args:
        candidates: what may be tried now, in the order of enumeration.
        space: the stage's space, which they are from.
        tuner: says in what order to try them.
        observations: of that stage.
        forecast: what the models predict, if they were asked.
        maximize: whether a larger metric is better.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        space: StageSpace,
        *,
        tuner: Tuner,
        observations: Sequence[Observation],
        maximize: bool,
        forecast: Forecast | None = None,
    ) -> None:
        super().__init__(seed=0)
        self._candidates = candidates
        self._space = space
        self._tuner = tuner
        self._observations = observations
        self._maximize = maximize
        self._forecast = forecast

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The distributions of the candidates' parameters; empty if there are no candidates."""
        return distributions(self._space) if self._candidates else {}

    def proposals(
        self, study: Study, trial: FrozenTrial, search_space: Mapping[str, BaseDistribution]
    ) -> Iterator[dict[str, Any]]:
        """The parameters of each candidate, in the tuner's order."""
        choice = Choice(
            candidates=self._candidates,
            observations=self._observations,
            maximize=self._maximize,
            trial=trial.number,
            forecast=self._forecast,
        )
        try:
            for candidate in self._tuner(choice):
                yield dict(candidate.params)
        except Exception as error:
            if isinstance(error, DsoptError) or getattr(self._tuner, "__module__", "").startswith("dsopt."):
                raise
            raise DsoptError(f"tuner_type: the tuner raised {type(error).__name__}: {error}. Correct it.") from error

    def nothing_to_claim(self) -> Exception:
        """What is raised when the tuner leaves nothing of the candidates that may be tried now."""
        return DsoptError(f"tuner_type: the tuner chose none of {len(self._candidates)} candidates. Correct the tuner.")


def distributions(space: StageSpace) -> dict[str, BaseDistribution]:
    """The parameters of a stage's trials as Optuna's distributions, the same for every trial of it."""
    return dict(_distributions(space))


@lru_cache(maxsize=64)
def _distributions(space: StageSpace) -> Mapping[str, BaseDistribution]:
    sizes: Mapping[str, BaseDistribution] = {
        MICRO_BATCH: IntDistribution(1, LARGEST, log=True),
        ACCUMULATION: IntDistribution(1, LARGEST, log=True),
    }
    return {**sizes, **{key: CategoricalDistribution(values) for key, values in space.knobs.items()}}
