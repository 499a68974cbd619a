"""Where a study stands: what was tried, best first, and in what words."""

from dataclasses import replace

import pytest

from dsopt.report.answer import Answer, AnswerRow
from dsopt.report.rows import Row, best_row, bound_text, rows_of
from dsopt.report.standing import Now, Standing, standing_of
from dsopt.report.summarize import summarize
from dsopt.search.giving_up import why_nothing_runs
from dsopt.search.history import History
from dsopt.search.run_quality import RunQuality
from dsopt.study.space import Candidate
from tests.made_up import facts, history, observation, spec

SMALL, LARGE, TOO_LARGE = (Candidate(stage=1, micro_batch=size, gas=1) for size in (2, 4, 8))
TRIED = history(
    observation(SMALL, 90.0, facts=facts(zero_stage=1, micro_batch=2)),
    observation(LARGE, 150.0, half_width=0.01, facts=facts(zero_stage=1, micro_batch=4)),
    observation(TOO_LARGE, message="no room"),
)


def standing(known: History, state: str = "searching", *running: Now, **changes: object) -> Standing:
    study = spec(**changes)
    summary = summarize(study, known, [], state=state, note="by somebody", duration_seconds=None)
    return standing_of(study, known, summary, running)


def rows(known: History, best: str | None = None) -> list[Row]:
    return rows_of(spec(), known, best)


def confirmed(known: History, *values: tuple[Candidate | None, float]) -> History:
    again = [observation(candidate, value, round=1, half_width=0.01) for candidate, value in values]
    return replace(known, reference=[*known.reference, *again])


def test_what_was_tried_comes_best_first_and_what_did_not_run_last() -> None:
    found = rows(TRIED)
    assert [row.label for row in found] == [
        "ZeRO 1 · 4 × 1",
        "your configuration (ZeRO 0 · 1 × 1)",
        "ZeRO 1 · 2 × 1",
        "ZeRO 1 · 8 × 1",
    ]
    assert [row.state for row in found] == ["measured", "measured", "measured", "infeasible"]
    assert found[0].searched_percent == 1.0
    assert [row.batch for row in found] == [8, 2, 4, 16]
    assert found[1].is_own


def test_the_least_memory_profile_is_never_the_best() -> None:
    profile = replace(observation(SMALL, 999.0, facts=facts(zero_stage=1, micro_batch=2)), name="profile")
    found = rows(replace(TRIED, reference=[*TRIED.reference, profile]))
    assert found[0].name == "profile"
    best = best_row(found)
    assert best is not None and best.label == "ZeRO 1 · 4 × 1"
    assert best_row(found[:1]) is None


def test_less_is_better_for_some_metrics() -> None:
    assert [row.searched for row in rows(replace(TRIED, maximize=False))] == [90.0, 100.0, 150.0, None]


def test_figures_of_the_search_and_confirmed_ones_are_apart() -> None:
    known = confirmed(TRIED, (None, 101.0), (LARGE, 140.0))
    best, own, *others = rows(known, LARGE.name)
    assert (best.searched, best.rounds, best.is_best) == (150.0, 2, True)
    assert best.again == ["launched again, round 1: 140 samples/s ±1.0 %"]
    assert best.estimate is not None and 140.0 < best.estimate < 150.0
    assert best.estimate_interval is not None
    assert best.estimate_interval[0] < best.estimate < best.estimate_interval[1]
    assert own.is_own and own.estimate is not None
    assert all(row.estimate is None and row.rounds == 0 for row in others)


def test_a_search_that_goes_on_says_how_good_it_is_and_what_runs() -> None:
    found = standing(TRIED, "searching", Now(name=SMALL.name, round=0, node="gpu1", seconds=75.0))
    assert found.good == (
        "Best so far: ZeRO 1 · 4 × 1, 150 samples/s, 1.50 times as fast as yours (by one run). "
        "Its global batch is 8 samples, yours 2."
    )
    assert found.now == ["Running: ZeRO 1 · 2 × 1, on gpu1, for 1 min 15 s"]
    assert found.far == "4 runs; probably at most 7 runs left"
    assert (found.factor, found.batch) == (1.5, "Its global batch is 8 samples, yours 2.")
    assert [row.label for row in found.rows if row.is_best] == ["ZeRO 1 · 4 × 1"]


def test_a_study_that_nobody_works_on_says_how_to_go_on() -> None:
    assert standing(TRIED).now == ["No run is going on. Go on with: dsopt worker s"]
    assert standing(TRIED, "stopped").now == ["Stopped: by somebody. Go on with: dsopt study resume s"]
    assert standing(confirmed(TRIED, (None, 101.0), (LARGE, 140.0)), "finished").now == []
    assert standing(confirmed(TRIED, (None, 101.0), (LARGE, 140.0)), "finished").factor is None


def test_before_anything_was_measured_nothing_is_called_good() -> None:
    empty = History(reference=[], stages={stage: [] for stage in range(4)})
    assert standing(empty).good == "Nothing was measured yet."
    assert standing(history()).good == "Nothing but your own configuration was measured yet."


def test_during_the_confirmation_confirmed_figures_count() -> None:
    known = confirmed(TRIED, (None, 101.0), (LARGE, 140.0))
    assert standing(known, "confirming").good == (
        "Best so far: ZeRO 1 · 4 × 1, 144.4 samples/s, 1.48 times as fast as yours (by all its runs). "
        "Its global batch is 8 samples, yours 2."
    )


@pytest.mark.parametrize("state", ["confirming", "stopped"])
@pytest.mark.parametrize("again", [(None, 101.0), (SMALL, 91.0)])
def test_what_ran_again_is_not_the_best_for_that(state: str, again: tuple[Candidate | None, float]) -> None:
    """The user's own configuration is the first that is measured again."""
    found = standing(confirmed(TRIED, again), state)
    assert found.good.startswith("Best so far: ZeRO 1 · 4 × 1, 150 samples/s, 1.50 times as fast as yours (by one run)")
    assert [row.label for row in found.rows if row.is_best] == ["ZeRO 1 · 4 × 1"] and found.rows[0].is_best
    assert found.factor == 1.5


def test_a_gain_that_may_come_from_a_larger_batch_is_told_before_the_end() -> None:
    far = observation(Candidate(stage=1, micro_batch=10, gas=1), 900.0, facts=facts(zero_stage=1, micro_batch=10))
    assert standing(history(far)).good.endswith(" WARNING: Its global batch is 20 samples, yours 2.")
    same = observation(Candidate(stage=1, micro_batch=1, gas=1), 900.0, facts=facts(zero_stage=1, micro_batch=1))
    assert standing(history(same)).good.endswith("9.00 times as fast as yours (by one run).")


def test_imported_figures_are_never_the_studys_own() -> None:
    imported = observation(LARGE, 150.0, imported="results/z1")
    found = standing(history(imported))
    assert found.good.startswith("Best so far: ZeRO 1 · 4 × 1, 150 samples/s (imported from DeepSpeed's autotuner")
    assert [row.origin is not None for row in found.rows] == [True, False]
    here = observation(SMALL, 120.0)
    assert "ZeRO 1 · 2 × 1" in standing(history(imported, here)).good


def test_a_configuration_of_the_users_own_that_does_not_run_was_not_measured() -> None:
    known = History(reference=[observation(None)], stages={stage: [] for stage in range(4)})
    assert standing(known).good == "Nothing was measured yet."


def test_a_confirmation_that_failed_says_so_on_one_line() -> None:
    failed = observation(LARGE, round=1, state="failed", reason="crash", message="it broke")
    known = replace(TRIED, reference=[*TRIED.reference, observation(None, 101.0, round=1), failed])
    found = standing(known, "finished")
    assert found.good == "Not confirmed: 1 run failed when the best of the search were measured again."
    assert found.now == ["Measure again with: dsopt study resume s, then dsopt worker s"]


def test_the_own_configuration_may_be_the_fastest_so_far() -> None:
    assert standing(history(observation(SMALL, 90.0))).good == "Your own configuration is the fastest so far."


def test_a_run_that_was_stopped_shows_its_bound_and_no_figure() -> None:
    slow = observation(SMALL, state="slow", reason="slow", value_so_far=80.0, value_bound=85.0, half_width=0.1)
    found = next(row for row in rows(history(slow)) if row.name == SMALL.name)
    assert (found.searched, found.searched_percent, found.bound) == (None, None, 85.0)
    assert (bound_text(found, maximize=True), bound_text(found, maximize=False)) == ("< 85", "> 85")
    assert standing(history(slow)).good == "Your own configuration is the fastest so far."


def test_a_finalist_whose_confirmation_failed_says_why() -> None:
    failed = observation(LARGE, round=1, state="failed", reason="crash", message="it broke")
    known = replace(TRIED, reference=[*TRIED.reference, failed])
    assert not any(row.unconfirmed for row in rows(TRIED))  # rows of an earlier look are kept only where they stay
    found = {row.name: row.unconfirmed for row in rows(known)}
    assert found == {
        LARGE.name: "failed in round 1: it broke",
        SMALL.name: None,
        TOO_LARGE.name: None,
        "baseline": None,
    }
    assert LARGE.name not in standing(known, "confirming").good


def test_a_study_that_is_over_does_not_go_on() -> None:
    failed = observation(None, None, name="baseline", message="CUDA out of memory")
    known = replace(history(), reference=[failed])
    said, ended = "Your own configuration ran out of memory.", standing(known, "finished").advice
    assert standing(known, "stopped").advice == ended
    assert standing(known).advice[0] == f"{said} dsopt goes on with what the study allows and needs less."
    assert ended[0] == said
    assert not any("goes on" in line for line in ended)
    assert any("would help" in line for line in ended)


def test_a_study_that_ends_for_memory_says_once_what_would_help() -> None:
    failed = observation(None, None, name="baseline", message="CUDA out of memory")
    study, known = spec(), replace(history(), reference=[failed, replace(failed, name="profile")])
    note = why_nothing_runs(study, known)
    summary = summarize(study, known, [], state="stopped", note=note, duration_seconds=None)
    found = standing_of(study, known, summary, ())
    stopped, heading, *savers, how = found.now
    assert stopped.startswith("Stopped: neither your configuration nor the one with the least memory")
    assert heading == "These need less memory on a GPU, but the study does not allow them:"
    assert len(savers) > 2 and all(line.startswith("- ") for line in savers)
    assert how == "Allow one of these in a new study, or try the same again with: dsopt study resume s"
    assert not any("memory" in line for line in found.advice)


def test_nothing_is_said_of_changes_where_the_best_changes_nothing() -> None:
    kept = Answer(
        study="s", simulated=None, headline="Keep it.", certainty="", rows=(), file="f", command="c", doubts=0
    )
    changed = replace(kept, rows=(AnswerRow(what="ZeRO stage", yours="0", best="1"),))
    assert kept.next_commands[0][0] == "dsopt report s"
    assert changed.next_commands[0][0] == "dsopt diff s"


def test_a_factor_that_a_warning_doubts_says_so_itself() -> None:
    ended = confirmed(TRIED, (None, 100.0), (LARGE, 150.0))
    assert "Read the warning" not in standing(ended, "finished").good
    [first, *others] = ended.stages[1]
    short = RunQuality(name=first.name, interval_percent=1.0, drifting=False, read_ahead=65)
    doubted = replace(ended, stages={**ended.stages, 1: [replace(first, quality=short), *others]})
    assert standing(doubted, "finished").good.endswith(". Read the warning before you believe it.")
