"""Data in an order of length give the best other samples than the baseline."""

import pytest

from dsopt.report.samples import unlike_samples
from dsopt.search.history import History
from dsopt.study.space import Candidate
from tests.made_up import facts, observation

BEST = Candidate(stage=1, micro_batch=16, gas=2)


def measured(elements: float) -> History:
    """A baseline of 4 samples with 100 elements each, and a best whose samples have so many."""
    own = facts(micro_batch=4, gas=1, step_elements=400.0)
    best = facts(micro_batch=16, gas=2, step_elements=32 * elements)
    return History(reference=[observation(None, 1.0, facts=own)], stages={1: [observation(BEST, 2.0, facts=best)]})


@pytest.mark.parametrize(
    ("elements", "said"),
    [
        (260, "had 2.6 times the elements (tokens, pixels) of one in"),
        (40, "had only 40 % of the elements"),
        (140, None),
        (75, None),
        (0, None),
    ],
)
def test_samples_of_another_length_are_said(elements: float, said: str | None) -> None:
    told = unlike_samples(measured(elements), BEST.name)
    assert (told is None) if said is None else (told is not None and said in told)
