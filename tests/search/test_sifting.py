"""What the database says of a trial counts only if dsopt can have written it."""

import math

import numpy as np
import pytest
from optuna.distributions import IntDistribution
from optuna.trial import TrialState, create_trial

from dsopt.experiment.measure import step_noise
from dsopt.search.history import LeftOut, Observation
from dsopt.search.sifting import sift
from dsopt.study.part import Part
from dsopt.study.space import Candidate
from dsopt.study.step_noise import StepNoise, pooled
from dsopt.study.trial_attributes import engine_attributes
from tests.made_up import spec
from tests.runs import engine

CANDIDATE = Candidate(stage=1, micro_batch=4, gas=1)
GOOD = {
    "measured_steps": 12,
    "peak_memory_bytes": 10,
    "activation_bytes": 1,
    "step_deviation_percent": 0.1,
    "interval_percent": 0.2,
    "step_correlation": 0.1,
}


def sifted(value: float, **attributes: object) -> Observation | LeftOut:
    trial = create_trial(
        state=TrialState.COMPLETE,
        value=value,
        params=CANDIDATE.params,
        distributions={name: IntDistribution(1, 2**20, log=True) for name in CANDIDATE.params},
        user_attrs={"candidate": CANDIDATE.name, **engine_attributes(engine()), **GOOD, **attributes},
    )
    return sift(spec(), Part("z1"), trial, CANDIDATE.name, 0)


def test_what_dsopt_writes_counts() -> None:
    assert isinstance(sifted(200.0), Observation)
    assert isinstance(sifted(200.0, micro_batch=0, framework="torch"), Observation)  # a plain run's may be unknown


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, 0) for key in ("num_params", "micro_batch", "gas", "pipeline_stages", "world_size")),
        *(("measured_steps", value) for value in (math.nan, math.inf)),
        ("step_correlation", math.nan),
        *(("interval_percent", value) for value in (1e308, math.nan)),
        *(("step_deviation_percent", value) for value in (1e308, -1.0)),
        ("measured_steps", -40),
    ],
)
def test_numbers_that_nothing_can_be_told_by_do_not(key: str, value: float) -> None:
    """They ended each worker of the study and of others, and whoever showed them."""
    found = sifted(200.0, **{key: value})
    assert isinstance(found, LeftOut)
    assert found.why == f"an attribute '{key}' that the study cannot have made"


@pytest.mark.parametrize("shape", ["noise", "drift", "shift", "alternating", "alike"])
@pytest.mark.parametrize("steps", [2, 3, 4, 6, 20, 100])
def test_whatever_steps_show_counts(shape: str, steps: int) -> None:
    """A correlation that is corrected for the bias of few steps may be above 1, or below -1."""
    number = np.arange(steps)
    for seed in range(20):
        factor = {
            "noise": 1 + 0.02 * np.random.default_rng(seed).standard_normal(steps),
            "drift": 1 + 0.3 * number / steps,
            "shift": np.where(number < steps / 2, 1.0, 1.2),
            "alternating": 1 + 0.2 * (number % 2),
            "alike": np.ones(steps),
        }[shape]
        noise = step_noise(0.1 * factor)
        written = {"step_deviation_percent": 100 * noise.deviation, "step_correlation": noise.correlation}
        found = sifted(200.0, measured_steps=steps, **written)
        assert isinstance(found, Observation), (found, written)
        assert found.noise is None or (found.noise.freedom >= 0 and found.noise.of_mean(steps) >= 0)


@pytest.mark.parametrize("correlation", [1.0, 1e30, -1e30])
def test_no_correlation_ends_a_worker(correlation: float) -> None:
    noise = StepNoise(deviation=0.1, correlation=correlation, steps=10_000)
    assert math.isfinite(noise.of_mean(10_000)) and math.isfinite(noise.freedom)
    assert math.isfinite(pooled([noise]).deviation)


@pytest.mark.parametrize("value", [-1.0, 0.0, 1e-320, 1e300, math.inf])
def test_a_metric_is_a_number_above_zero(value: float) -> None:
    found = sifted(value)
    assert isinstance(found, LeftOut)
    assert found.why == "a value that the study cannot have made"
