"""Optuna's own conformance tests for samplers, as far as they apply to one that chooses among enumerated candidates."""

from collections.abc import Callable

import pytest
from optuna.samplers import BaseSampler
from optuna.testing.pytest_samplers import BasicSamplerTestCase

from dsopt.search.sampler import CandidateSampler
from dsopt.search.tuners import tuner_named
from dsopt.study.space import stage_space


class TestCandidateSampler(BasicSamplerTestCase):
    """Those for any sampler. Those for relative ones sample continuous spaces, which have no candidates."""

    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: CandidateSampler(
            [],
            stage_space(0, fast=True, user_zero={}),
            tuner=tuner_named("model_based"),
            observations=[],
            maximize=True,
        )
