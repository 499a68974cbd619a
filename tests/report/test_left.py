"""What is left of a study: said only where it is known, and wide enough that it then comes."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks.left import Moment, moments_of
from dsopt.api.pace import Pace
from dsopt.report.first_run import first_run_lines
from dsopt.report.left import time_range, what_is_left
from dsopt.search.history import History, Observation
from dsopt.search.left import RunsLeft, runs_left
from dsopt.store.stored import StoredStudy
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec
from tests.made_up import confirming, history, observation, sequential, spec


def at(micro_batch: int, **changes: object) -> Observation:
    return observation(Candidate(stage=1, micro_batch=micro_batch, gas=1), 100.0, **{"seconds": 60.0, **changes})


def confirmed(*names: str, rounds: int = 1) -> list[Observation]:
    runs = [(name, round_) for round_ in range(1, rounds + 1) for name in names]
    return [observation(None, 100.0, name=name, round=round_, seconds=60.0) for name, round_ in runs]


CLOSED = dict.fromkeys(range(4), "explored")
BASELINE = history().reference[0]


@pytest.fixture(scope="module")
def moments() -> list[Moment]:
    """Every moment of twelve simulated studies, of small and of large spaces."""

    def all_of() -> Iterator[Moment]:
        for seed in range(700, 708):
            yield from moments_of(seed, fast=True, noise=0.02)
        for seed in range(708, 712):
            yield from moments_of(seed, fast=False, noise=0.02)

    return list(all_of())


def test_what_is_said_then_comes(moments: list[Moment]) -> None:
    assert len(moments) > 40
    for which in (0, 1):
        assert sum(moment.holds[which] for moment in moments) / len(moments) >= 0.8


def test_it_is_no_guess_that_holds_always(moments: list[Moment]) -> None:
    assert sum(moment.said.most - moment.said.fewest for moment in moments) / len(moments) < 10


@pytest.mark.parametrize(
    ("known", "left"),
    [
        (History(reference=[], stages={}), None),
        (replace(history(), reference=[replace(BASELINE, state="running", value=None, facts=None)]), None),
        (history(), RunsLeft(fewest=2, most=10)),
        (history(at(2), at(4), at(8)), RunsLeft(fewest=0, most=7)),
        (history(*(at(size) for size in range(2, 14))), RunsLeft(fewest=0, most=6)),
        (replace(history(at(2)), verdicts=CLOSED), RunsLeft(fewest=0, most=3)),
        (replace(history(), verdicts=CLOSED), RunsLeft(fewest=0, most=0)),
    ],
)
def test_runs_left(known: History, left: RunsLeft | None) -> None:
    assert runs_left(spec(), known) == left


def test_a_confirmation_ends_after_its_rounds() -> None:
    study, first = confirming(spec()), at(2)
    known = replace(history(first), verdicts=CLOSED)
    begun = replace(known, reference=[BASELINE, *confirmed("baseline")])
    assert runs_left(study, begun) == RunsLeft(fewest=1, most=5)
    over = replace(known, reference=[BASELINE, *confirmed("baseline", first.name)])
    assert runs_left(study, over) == RunsLeft(fewest=0, most=4)
    last = replace(known, reference=[BASELINE, *confirmed("baseline", first.name, rounds=3)])
    assert runs_left(study, last) == RunsLeft(fewest=0, most=0)
    assert what_is_left(study, last) is None


def test_what_the_user_allows_is_a_limit() -> None:
    few = spec(tuner_num_trials=1)
    assert runs_left(few, history()) == RunsLeft(fewest=2, most=7)
    listed = {
        "train_micro_batch_size_per_gpu": [1, 2],
        "gradient_accumulation_steps": [1],
        "zero_optimization": {"stage": [1]},
    }
    assert runs_left(spec(listed), history(at(2))) == RunsLeft(fewest=0, most=4)
    assert runs_left(sequential(), history()) is None  # it depends on what comes


def test_time_is_that_of_the_runs_so_far() -> None:
    said = what_is_left(spec(), history(at(2), at(4), at(8)))
    assert said is not None and said.text() == "probably at most 7 runs, 10 min left"
    two_at_once = what_is_left(spec(), history(at(2), at(4), at(8)), pace=30.0)
    assert two_at_once is not None and two_at_once.seconds == pytest.approx((0.0, 1.4 * 7 * 60))
    untimed = what_is_left(spec(), history())
    assert untimed is not None and untimed.text() == "about 2 to 10 runs left"
    nearly = replace(history(at(2)), verdicts=CLOSED, reference=[BASELINE, *confirmed("baseline", at(2).name)])
    over = what_is_left(spec(), nearly)
    assert over is not None and over.text() == "probably at most 3 runs, 5 min left"


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (3.2, 40.1, "3 to 41 s"), (0.4, 9.0, "up to 9 s"), (60.0, 130.0, "1 to 3 min"), (900.0, 900.0, "15 min"),
        (5000.0, 12_000.0, "1.3 to 3.4 h"), (30.0, 130.0, "up to 3 min"),
    ],
)  # fmt: skip
def test_ranges_are_rounded_outwards(low: float, high: float, text: str) -> None:
    assert time_range(low, high) == text


def test_the_pace_is_that_since_somebody_watches() -> None:
    study = StoredStudy(id="1", spec=spec(), state="searching", note=None, created_at=0.0, finished_at=None)
    now = [100.0]
    pace = Pace(clock=lambda: now[0])
    assert pace.after(study, history(at(2))) is None
    now[0] = 150.0
    assert pace.after(study, history(at(2))) is None
    now[0] = 180.0
    assert pace.after(study, history(at(2), at(4))) == 80.0


def test_the_first_run_says_how_long_it_takes() -> None:
    timed = replace(history(), reference=[replace(BASELINE, seconds=41.0)])
    assert first_run_lines(spec(), timed) == [
        "About 2 to 10 runs, 1 to 10 min left, from the 41 s that the first run took."
    ]
    assert first_run_lines(spec(), replace(timed, stages={1: [at(2)]})) == []
    simulated = {**spec().model_dump(exclude_unset=True), "simulation": {"gpu": "A100-80GB", "model": "gpt2-xl"}}
    dry = StudySpec.model_validate(simulated)
    computed = replace(BASELINE, seconds=0.4, steps=20, step_seconds=2.0)
    assert first_run_lines(dry, replace(history(), reference=[computed])) == [
        "About 2 to 10 runs left, 1 to 16 min on the cluster, where the first would take 1 min 5 s."
    ]
    assert first_run_lines(spec(), History(reference=[], stages={})) == []


def test_a_first_run_without_memory_says_what_would_help() -> None:
    failed = observation(None, None, name="baseline", message="CUDA out of memory")
    said = first_run_lines(spec({"zero_optimization": {"stage": 1}}), History(reference=[failed], stages={}))
    assert said[0] == (
        "Your own configuration ran out of memory. dsopt goes on with what the study allows and needs less."
    )
    assert any(line.startswith("- ZeRO 2") for line in said)
    crashed = replace(failed, state="failed", reason="crash")
    assert first_run_lines(spec(), History(reference=[crashed], stages={})) == []
