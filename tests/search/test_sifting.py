"""What the database says of a trial counts only if dsopt can have written it."""

import math

import pytest
from optuna.distributions import IntDistribution
from optuna.trial import TrialState, create_trial

from dsopt.search.history import LeftOut, Observation
from dsopt.search.sifting import sift
from dsopt.study.part import Part
from dsopt.study.space import Candidate
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
        *(("step_correlation", value) for value in (1.0, math.nan, -2.0)),
        *(("interval_percent", value) for value in (1e308, math.nan)),
        ("step_deviation_percent", 1e308),
    ],
)
def test_numbers_that_nothing_can_be_told_by_do_not(key: str, value: float) -> None:
    """They ended each worker of the study and of others, and whoever showed them."""
    found = sifted(200.0, **{key: value})
    assert isinstance(found, LeftOut)
    assert found.why == f"an attribute '{key}' that the study cannot have made"


@pytest.mark.parametrize("value", [-1.0, 0.0, 1e-320, 1e300, math.inf])
def test_a_metric_is_a_number_above_zero(value: float) -> None:
    found = sifted(value)
    assert isinstance(found, LeftOut)
    assert found.why == "a value that the study cannot have made"
