"""What samples and the study cost."""

import pytest

from dsopt.report.cost import cost_of, money
from dsopt.search.history import History
from dsopt.search.standing import Comparison
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec
from tests.made_up import facts, history, observation, spec

MORE = Candidate(stage=1, micro_batch=4, gas=1, knobs=(("num_gpus", 4),))
RESULT = Comparison(best=MORE.name, value=400.0, baseline=100.0, speedup=4.0, interval=None, runs=2)


def priced(study: StudySpec, price: float = 3.6) -> StudySpec:
    return StudySpec.model_validate({**study.model_dump(exclude_unset=True), "price_per_gpu_hour": price})


LAUNCHES = [("baseline", 100.0), (MORE.name, 50.0), (MORE.name, 7.0)]


def known() -> History:
    return history(observation(MORE, 400.0), baseline=facts())


def test_every_gpu_of_every_launch_is_paid() -> None:
    cost = cost_of(priced(spec(num_gpus=[2, 4])), known(), RESULT, LAUNCHES)
    assert cost is not None
    assert cost.study == pytest.approx((100 * 2 + 50 * 4 + 7 * 4) / 3600 * 3.6)
    assert cost.own == pytest.approx(1e6 / 100 / 3600 * 2 * 3.6)
    assert cost.best == pytest.approx(1e6 / 400 / 3600 * 4 * 3.6)


def test_without_a_price_or_a_throughput_no_samples_are_priced() -> None:
    assert cost_of(spec(), known(), RESULT, LAUNCHES) is None
    cost = cost_of(priced(spec(metric="latency")), known(), RESULT, LAUNCHES)
    assert cost is not None
    assert (cost.own, cost.best) == (None, None)


@pytest.mark.parametrize(("amount", "shown"), [(0.5, "0.50"), (99.994, "99.99"), (1234.5, "1,234")])
def test_amounts(amount: float, shown: str) -> None:
    assert money(amount) == shown
