"""Why a stage is closed: words that follow from its own runs."""

import pytest

from dsopt.search.history import Observation
from dsopt.search.verdicts import patience_spent
from dsopt.study.space import Candidate
from tests.made_up import observation, spec


def at(micro_batch: int, value: float | None, **changes: object) -> Observation:
    return observation(Candidate(stage=3, micro_batch=micro_batch, gas=1), value, **changes)


@pytest.mark.parametrize(
    ("runs", "patience", "said"),
    [
        (
            [at(1, 9.0)],
            5,
            "explored, with 1 run here; the last 5 runs, counted over all stages, brought nothing better",
        ),
        (
            [at(1, 9.0), at(2, 9.0)],
            1,
            "explored, with 2 runs here; the last run, at any stage, brought nothing better",
        ),
        (
            [at(1, 9.0, taken_over="before")],
            5,
            "explored, with no run here; the last 5 runs, counted over all stages, brought nothing better",
        ),
        ([], 5, "not tried: the last 5 runs at other stages brought nothing better"),
    ],
)
def test_patience_is_counted_over_all_stages_and_says_so(runs: list, patience: int, said: str) -> None:
    assert patience_spent(spec(tuner_early_stopping=patience), runs) == said
