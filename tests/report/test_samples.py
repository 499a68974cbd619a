"""Data in an order of length give the best other samples than the baseline; a script may accumulate by itself."""

import pytest

from dsopt.report.samples import samples_text, unlike_samples
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


@pytest.mark.parametrize(("fed", "is_said"), [(16.0, True), (4.0, False), (0.0, False)])
def test_a_script_that_accumulates_by_itself_is_said(fed: float, is_said: bool) -> None:
    own = facts(micro_batch=4, gas=1, rows=4, step_rows=fed, passes=4)
    told = samples_text(History(reference=[observation(None, 1.0, facts=own)], stages={}), "baseline")
    assert ("WARNING: each step was fed 4 times the samples that DeepSpeed's engine counts." in (told or "")) == is_said
