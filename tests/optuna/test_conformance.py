"""Optuna's own conformance tests for samplers."""

from collections.abc import Callable

import pytest
from optuna.samplers import BaseSampler
from optuna.testing.pytest_samplers import BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase

from dsopt.optuna import XGBoostSampler


class _WithModels:
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        """With its models from the second trial on, so that they are what is tested."""
        return lambda: XGBoostSampler(n_startup_trials=1, seed=0)


class TestXGBoostSampler(_WithModels, BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    """All of them but `MultiObjectiveSamplerTestCase`: a study with several objectives is refused, as those for
    samplers of one objective (`SingleOnlySamplerTestCase`) demand."""


class TestXGBoostSamplerFromTheStart(BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    """The same with trials that are spread evenly at first, as by default."""

    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: XGBoostSampler(seed=0)
