"""What the live view calls the best so far."""

from dataclasses import replace

from dsopt.api.event_text import best_text
from dsopt.search.history import History
from dsopt.store.stored import StoredStudy
from dsopt.study.space import Candidate
from tests.made_up import facts, history, observation, spec

LUCKY, OTHER = (Candidate(stage=1, micro_batch=size, gas=1) for size in (4, 2))
SEARCHED = history(
    observation(OTHER, 145.0, half_width=0.01, facts=facts(zero_stage=1, micro_batch=2)),
    observation(LUCKY, 150.0, half_width=0.01, facts=facts(zero_stage=1, micro_batch=4)),
)
STUDY = StoredStudy(id="1", spec=spec(), state="confirming", note=None, created_at=0.0, finished_at=None)


def again(known: History, candidate: Candidate, *values: float) -> History:
    runs = [observation(candidate, value, round=round_, half_width=0.01) for round_, value in enumerate(values, 1)]
    return replace(known, reference=[*known.reference, *runs])


def test_one_run_of_each_says_what_it_can() -> None:
    assert best_text(STUDY, SEARCHED) == "ZeRO 1 · 4 × 1: 150 samples/s (baseline 100)"


def test_what_ran_again_counts_with_all_its_runs() -> None:
    assert (
        best_text(STUDY, again(SEARCHED, LUCKY, 100.0, 100.0, 100.0)) == "ZeRO 1 · 2 × 1: 145 samples/s (baseline 100)"
    )
    assert best_text(STUDY, again(SEARCHED, LUCKY, 149.0, 151.0)).startswith("ZeRO 1 · 4 × 1: 15")
