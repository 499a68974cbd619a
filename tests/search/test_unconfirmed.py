"""How a study ends when its confirmation fails: the next finalist is tried, and no one is told what nobody measured."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from dsopt.report.readable import readable
from dsopt.report.summarize import summarize
from dsopt.report.summary import Summary
from dsopt.search.disturbed import DISTURBED
from dsopt.search.finalists import finalists
from dsopt.search.history import History, Observation
from dsopt.search.standing import compare
from dsopt.search.unconfirmed import failed_best, failed_finalists, unconfirmed
from dsopt.search.verdicts import ONLY_OWN, nothing_ran
from dsopt.study.space import Candidate
from dsopt.study.spec import Confirmation, StudySpec
from tests.machines import Machine, saturating
from tests.made_up import facts, history, observation, sequential, spec

RUNS = Collection[tuple[str, int]]


class Faulty(Machine):
    """A machine on which some runs of the confirmation fail, by name and round; round 0 stands for any."""

    def __init__(self, failing: RUNS, **confirmation: int) -> None:
        study = sequential({"zero_optimization": {"stage": [0, 1]}}, num_tuning_micro_batch_sizes=3)
        content = study.model_dump(exclude_unset=True)
        super().__init__(
            type(study).model_validate({**content, "confirmation": {"finalists": 1, "rounds": 2, **confirmation}}),
            saturating(1),
        )
        self.failing = failing

    def observe(self, name: str, round_: int, candidate: Candidate | None, phase: str) -> Observation:
        if round_ and {(name, round_), (name, 0), ("any", 0)} & set(self.failing):
            failed = observation(candidate, None, name=name, round=round_, state="failed", reason="crash")
            return replace(failed, message="no disk.")
        return super().observe(name, round_, candidate, phase)

    def confirmed(self) -> list[tuple[str, int, str]]:
        return [(o.name, o.round, o.state) for o in self.reference if o.round]

    def summary(self) -> Summary:
        return summarize(self.spec, self.history, [], state="finished", note=None, duration_seconds=None)


def shown(machine: Machine, name: str) -> str:
    """What people read for a candidate."""
    return next(readable(o.candidate) for o in machine.history.observations if o.name == name and o.candidate)


def ranked(machine: Machine) -> list[str]:
    """The names of what the search measured, the likeliest to be the best first."""
    found = History(
        reference=[o for o in machine.reference if not o.round], stages=machine.stages, verdicts=machine.verdicts
    )
    return [o.name for o in finalists(machine.spec, found, Confirmation(finalists=9))]


def test_the_next_finalist_takes_the_place_of_one_that_fails() -> None:
    best, second, *_ = ranked(Faulty([]).run())
    machine = Faulty([(best, 1)]).run()
    assert machine.confirmed()[:3] == [("baseline", 1, "measured"), (best, 1, "failed"), (second, 1, "measured")]
    result = compare(machine.spec, machine.history)
    assert result is not None
    assert (result.best, result.speedup is not None) == (second, True)
    text = machine.summary().text()
    assert machine.summary().sentence().startswith(f"{shown(machine, second)}: ")
    assert f"Left out: {shown(machine, best)} failed when dsopt measured it again (round 1): no disk." in text
    assert f"by which your configuration has {result.baseline:.4g} samples/s" in text


def test_a_finalist_that_fails_in_a_later_round_is_no_result_either() -> None:
    best, second, *_ = ranked(Faulty([]).run())
    machine = Faulty([(best, 2)], finalists=2)
    machine.told = {"half_width": 0.2}  # too noisy for one round
    machine.run()
    result = compare(machine.spec, machine.history)
    assert result is not None
    assert result.best == second
    assert best not in [o.name for o in finalists(machine.spec, machine.history, Confirmation())]


def test_a_baseline_that_fails_once_is_measured_in_the_next_round_beside_the_others() -> None:
    machine = Faulty([("baseline", 1)]).run()
    best = ranked(machine)[0]
    assert [(name, state) for name, round_, state in machine.confirmed() if round_ == 2] == [
        (best, "measured"), ("baseline", "measured"),
    ]  # fmt: skip
    assert compare(machine.spec, machine.history) is not None


def test_a_baseline_that_fails_once_is_measured_again_where_there_are_no_rounds_either() -> None:
    """It ran again, and well, and yet nothing was said to be confirmed."""
    machine = Faulty([("baseline", 1)])
    machine.spec = StudySpec.model_validate({**machine.spec.model_dump(exclude_unset=True), "confirmation": None})
    machine.run()
    assert [(round_, state) for name, round_, state in machine.confirmed() if name == "baseline"][:2] == [
        (1, "failed"), (2, "measured"),
    ]  # fmt: skip
    assert unconfirmed(machine.history) is None
    assert machine.summary().comparison is not None


@pytest.mark.parametrize(
    ("failing", "runs"),
    [
        ([("baseline", 0)], 2),
        ([("any", 0)], 4),  # of the baseline, and of three finalists, after which no other is tried
    ],
)
def test_without_a_baseline_or_a_finalist_nothing_is_confirmed(failing: RUNS, runs: int) -> None:
    machine = Faulty(failing).run()
    assert sum(state == "failed" for _, _, state in machine.confirmed()) == runs
    assert compare(machine.spec, machine.history) is None
    found = unconfirmed(machine.history)
    best = max(machine.history.measured, key=machine.history.score)
    baseline = machine.history.find("baseline")
    assert found is not None
    assert baseline is not None
    assert (found.best, found.value, found.baseline) == (best.name, best.value, baseline.value)
    summary = machine.summary()
    assert summary.comparison is None
    text = summary.text()
    assert f"Not confirmed. In the search {shown(machine, best.name)} had {best.value:.4g} samples/s" in text
    assert f"your own configuration had {baseline.value:.6g}" in text
    assert "your configuration (round 1): no disk." in text
    assert "dsopt study resume s" in text
    assert "keep it" not in text


@pytest.mark.parametrize("fails", [1, 2])
def test_of_two_that_are_alike_one_may_fail_when_it_runs_again(fails: int) -> None:
    """What did not fail is the result, if it has run twice; the baseline need not run again."""
    machine = Faulty([(f"z{fails}_gas1_tmbspg1", 0)])
    sizes = {"train_micro_batch_size_per_gpu": [1], "gradient_accumulation_steps": 1}
    machine.spec = spec({"zero_optimization": {"stage": [0, 1, 2]}, **sizes})
    machine.truth = lambda candidate: 100 * {1: 1.2, 2: 1.195}.get(candidate.stage, 0.9) if candidate else 100
    machine.told = {"half_width": 0.03}
    machine.stages = {stage: [] for stage in range(3)}
    machine.run()
    assert (f"z{fails}_gas1_tmbspg1", 1, "failed") in machine.confirmed()
    found = compare(machine.spec, machine.history)
    assert found is not None
    assert found.best == f"z{3 - fails}_gas1_tmbspg1"
    assert f"ZeRO {fails} · 1 × 1 failed when dsopt measured it again" in machine.summary().text()


def test_a_study_whose_own_configuration_does_not_run_needs_no_baseline_to_be_confirmed() -> None:
    machine = Faulty([])
    truth = saturating(1)
    machine.truth = lambda candidate: "oom" if candidate is None else truth(candidate)
    machine.run()
    assert "No speed-up can be given, because your configuration does not run." in machine.summary().sentence()


@pytest.mark.parametrize(
    ("others", "sentence"),
    [
        ([(8, 50.0)], "Your own configuration is the fastest found: keep it."),
        ([(8, None)], "Only your own configuration was measured: nothing else is likely to fit, or worth a run."),
        (
            [(1, 100.0)],
            "Only your own configuration was measured: nothing else is likely to fit, or worth a run.",
        ),  # its own under another name
    ],
)
def test_ones_own_is_called_the_fastest_only_beside_others(
    others: list[tuple[int, float | None]], sentence: str
) -> None:
    tried = [observation(Candidate(stage=0, micro_batch=size, gas=1), value) for size, value in others]
    before = history(*tried, baseline=facts(), value=100.0)
    rounds = [observation(None, 100.0, round=1)] + [
        observation(o.candidate, o.value, round=1) for o in tried if o.value == 50.0
    ]
    known = History(reference=[*before.reference, *rounds], stages=before.stages)
    summary = summarize(spec(), known, [], state="finished", note=None, duration_seconds=None)
    assert summary.sentence() == sentence


def test_crashes_are_no_reason_to_call_ones_own_the_best() -> None:
    crashed = observation(Candidate(stage=0, micro_batch=8, gas=1), state="failed", reason="crash", message="no disk.")
    known = history(crashed, baseline=facts(), value=100.0)
    sentence = summarize(spec(), known, [], state="finished", note=None, duration_seconds=None).sentence()
    assert sentence.endswith("dsopt cannot judge the others: 1 run failed. The first, ZeRO 0 · 8 × 1: no disk.")


@pytest.mark.parametrize("reason", ["invalid_config", "few_samples"])
def test_nor_are_runs_that_trained_otherwise_than_they_were_told_to(reason: str) -> None:
    """It said "nothing else is likely to fit, or worth a run" where the script never reads what dsopt gives it."""
    message = "the script trains with ZeRO stage 1, micro-batch 4, accumulation 1, not with 2, 4, 1 as configured. Do."
    at = Candidate(stage=2, micro_batch=4, gas=1)
    told = history(observation(at, state="infeasible", reason=reason, message=message), baseline=facts())
    assert nothing_ran(told.stages[2]) == f"nothing ran: {message[:-1]}"
    sentence = summarize(spec(), told, [], state="finished", note=None, duration_seconds=None).sentence()
    assert sentence.endswith(f"dsopt cannot judge the others: 1 run failed. The first, ZeRO 2 · 4 × 1: {message}")


def test_where_nothing_is_left_to_try_that_is_why() -> None:
    """The script sets by itself what would have been tuned."""
    told = replace(history(baseline=facts()), verdicts=dict.fromkeys(range(4), ONLY_OWN))
    sentence = summarize(spec(), told, [], state="finished", note=None, duration_seconds=None).sentence()
    assert sentence.startswith("Your own configuration is the only candidate of this study, so nothing was compared")


@pytest.mark.parametrize(("value", "counts"), [(60.0, False), (130.0, True)])
def test_what_ran_again_for_a_doubt_and_failed_says_nothing_of_the_best(value: float, counts: bool) -> None:
    """Three such failures, all of candidates that were far slower, and the study had no answer."""
    doubted, best = Candidate(stage=1, micro_batch=4, gas=1), Candidate(stage=2, micro_batch=4, gas=1)
    before = history(observation(doubted, value), observation(best, 120.0), baseline=facts())
    failed = observation(doubted, name=doubted.name, round=1, state="failed", reason="crash", why=DISTURBED)
    own = observation(None, 100.0, round=1)
    known = replace(before, reference=[*before.reference, failed, own])
    assert failed_finalists(known) == [doubted.name]
    assert failed_best(known) == ([doubted.name] if counts else [])
    assert (unconfirmed(known) is not None) == counts
