"""What skipped steps and losses of NaN do to a figure: left out, said, or refused."""

import math

import pytest

from dsopt.experiment.health import is_sound
from dsopt.experiment.judge import Moment
from dsopt.experiment.measure import measure
from dsopt.experiment.outcome import Infeasible, Measured, from_json
from dsopt.protocol.events import Event
from dsopt.report.doubts import doubts_text
from dsopt.search.run_quality import RunQuality
from dsopt.study.spec import MeasurementBudget
from tests.runs import engine, outcome_of, rules, step

ENDED = Moment(seconds=10.0, exit_code=0)
QUICK = 0.04  # of a skipped step, of which the optimizer's part is missing


def run(pattern: str, dtype: str = "fp16") -> list[Event]:
    """An engine and a step for each letter: `.` is sound, `s` skipped, `n` has a loss of NaN, `x` is both."""
    told = [
        step(number, QUICK if kind in "sx" else 0.1, skipped=kind in "sx", nonfinite_loss=kind in "nx")
        for number, kind in enumerate(pattern)
    ]
    return [engine(dtype=dtype), *told]


@pytest.mark.parametrize(
    ("pattern", "must_be_sound", "reason"),
    [
        ("." * 20, True, None),
        ("s" * 8 + "." * 20, True, None),  # the loss scale settles: warm-up
        ("x" * 8 + "." * 20, True, None),
        ("....s" + "." * 16, True, None),  # one is never too many
        ("....ss" + "." * 30, True, None),
        ("....n" + "." * 16, True, None),
        (("...." + "s") * 8, True, "overflow"),  # a fifth, to the end of the budget
        (("...." + "s") * 8, False, None),
        ("..s" * 14, False, None),
        ("..." + "ssss." * 8, False, "overflow"),  # most of them
        ("...." + "n" * 36, True, "nonfinite_loss"),
        ("n" * 40, True, "nonfinite_loss"),
        ("n" * 40, False, None),
        ("s" * 40, True, "overflow"),
        ("s" * 40, False, "overflow"),
        ("." * 2 + "x" * 40, False, "overflow"),
    ],
)  # fmt: skip
def test_what_is_refused(pattern: str, must_be_sound: bool, reason: str | None) -> None:
    outcome = outcome_of(*run(pattern), under=rules(must_be_sound=must_be_sound))
    if reason is None:
        assert isinstance(outcome, Measured), outcome
        assert outcome.measurement.step_seconds == pytest.approx(0.1)
    else:
        assert isinstance(outcome, Infeasible)
        assert outcome.reason == reason
        assert "bf16" in outcome.message


def test_a_run_goes_on_until_its_loss_scale_has_settled() -> None:
    """Precise after a dozen steps, but a fifth of them were skipped."""
    assert outcome_of(*run("......" + "...s" * 4), under=rules()) is None
    assert isinstance(outcome_of(*run("......" + "...s" * 4 + "." * 24), under=rules()), Measured)


@pytest.mark.parametrize(
    ("pattern", "changes", "moment", "is_refused"),
    [
        ("s" * 39, {"measurement": MeasurementBudget(max_steps=300)}, None, False),  # some loss scale may be left
        ("s" * 40, {"measurement": MeasurementBudget(max_steps=300)}, None, True),
        ("s" * 10, {"measurement": MeasurementBudget(max_steps=10)}, None, True),
        ("...ss", {"window": (3, 5)}, None, False),
        ("...sss", {"window": (3, 5)}, None, True),  # nothing of the window the user set can be measured
        ("...s..", {"window": (3, 5)}, None, False),
        ("s" * 10, {}, None, False),
        ("s" * 10, {}, ENDED, True),
    ],
)  # fmt: skip
def test_when_nothing_but_skipped_steps_is_expected(
    pattern: str, changes: dict, moment: Moment | None, is_refused: bool
) -> None:
    outcome = outcome_of(*run(pattern), under=rules(**changes), moment=moment)
    assert isinstance(outcome, Infeasible) is is_refused


def test_times_of_skipped_steps_are_left_out() -> None:
    seconds = [0.5, 0.1, 0.1, QUICK, 0.1, 0.1, QUICK, 0.1]
    found = measure(seconds, 8, 0.02, (2, 6), skipped=(3, 6))
    assert found is not None
    assert found.step_seconds == pytest.approx(0.1)
    assert (found.warmup_steps, found.measured_steps, found.skipped_steps) == (2, 3, 2)
    assert measure(seconds, 8, 0.02, (2, 6), skipped=(2, 3, 4, 5)) is None
    settling = measure([QUICK] * 5 + seconds, 8, 0.02, min_warmup=3, skipped=(0, 1, 2, 3, 4))
    assert settling is not None
    assert (settling.warmup_steps, settling.skipped_steps) == (6, 0)


def test_figures_know_their_skipped_steps_and_come_back_from_json() -> None:
    outcome = outcome_of(*run("sss" + "...n" + "." * 14 + "s.."), under=rules())
    assert isinstance(outcome, Measured)
    assert (outcome.skipped, outcome.nonfinite) == ((0, 1, 2, 21), (6,))
    assert (outcome.measurement.skipped_steps, outcome.nonfinite_steps) == (1, 1)
    assert outcome.window == range(outcome.measurement.warmup_steps, 24)
    assert is_sound(outcome)
    content = outcome.to_json()
    assert (content["skipped_steps"], content["nonfinite_losses"]) == ([0, 1, 2, 21], [6])
    assert from_json(content) == outcome
    del content["skipped_steps"], content["nonfinite_losses"], content["measurement"]["skipped_steps"]
    assert from_json(content).skipped == ()


def test_the_part_of_a_pass_is_of_the_same_steps() -> None:
    told = [step(n, 0.1, forward_seconds=0.5 if n == 6 else 0.02, skipped=n == 6) for n in range(20)]
    outcome = outcome_of(engine(), *told)
    assert isinstance(outcome, Measured)
    assert math.isclose(outcome.metric("forward"), 20.0)


def test_the_summary_warns_and_says_what_helps() -> None:
    sound = RunQuality(name="a", interval_percent=1.0, drifting=False)
    skipping = RunQuality(name="baseline", interval_percent=1.0, drifting=False, skipped_percent=34.0, dtype="fp16")
    diverging = RunQuality(name="b", interval_percent=1.0, drifting=False, nonfinite_loss_percent=100.0, dtype="bf16")
    assert [q.is_doubtful for q in (sound, skipping, diverging)] == [False, True, True]
    lines = doubts_text([diverging, skipping])
    assert lines[0] == "WARNING: the loss was NaN or infinite, so the model learns nothing: b (100 % of its steps)."
    assert lines[1].startswith(
        "WARNING: the optimizer skipped steps because their gradients were not finite; dsopt leaves out their times"
    )
    assert "gradient_clipping" in lines[2]
    assert "initial_scale_power" in lines[3]
    assert len(lines) == 4
