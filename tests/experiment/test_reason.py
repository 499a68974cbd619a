"""What an exception said as one line: all of it, within bounds."""

import pytest

from dsopt.experiment.outcome import Infeasible
from dsopt.experiment.reason import in_one_line
from dsopt.protocol.events import Error
from tests.runs import engine, outcome_of, rules

PYDANTIC = (
    "2 validation errors for DeepSpeedZeroConfig\nstage\n"
    "  Input should be less than or equal to 3 [type=less_than_equal, input_value=7, input_type=int]\n"
    "    For further information visit https://errors.pydantic.dev/2.12/v/less_than_equal\n"
    "overlap\n  Extra inputs are not permitted [type=extra_forbidden, input_value=True, input_type=bool]\n"
    "    For further information visit https://errors.pydantic.dev/2.12/v/extra_forbidden"
)


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("", "(no message)."),
        ("no room", "no room."),
        ("No room!\n", "No room!"),
        ("Two things:\n- one\n- two", "Two things: - one; - two."),
        ("A sentence.\n\n  Another one", "A sentence. Another one."),
        (
            PYDANTIC,
            "2 validation errors for DeepSpeedZeroConfig: stage: Input should be less than or equal to 3 "
            "[type=less_than_equal, input_value=7, input_type=int]; overlap: Extra inputs are not permitted "
            "[type=extra_forbidden, input_value=True, input_type=bool].",
        ),
    ],
)
def test_a_message_in_one_line(message: str, line: str) -> None:
    assert in_one_line(message) == line


def test_a_long_message_keeps_its_beginning_and_its_end() -> None:
    line = in_one_line("Caught an error in a worker:\n" + "  File x\n" * 200 + "ValueError: the cause")
    assert len(line) <= 601
    assert line.startswith("Caught an error in a worker: File x")
    assert line.endswith("ValueError: the cause.")
    assert " … " in line


def test_the_whole_reason_is_the_outcomes_message() -> None:
    error = Error(rank=0, type="ValidationError", message=PYDANTIC, origin="pydantic.main")
    outcome = outcome_of(error)
    assert isinstance(outcome, Infeasible)
    assert outcome.message.startswith("rank 0: ValidationError: 2 validation errors for DeepSpeedZeroConfig: stage: ")
    assert "extra_forbidden" in outcome.message


def test_no_loss_scale_that_is_left_is_an_overflow_with_remedies() -> None:
    said = "Current loss scale already at minimum - cannot decrease scale anymore. Exiting run."
    outcome = outcome_of(engine(), Error(rank=0, type="Exception", message=said), under=rules())
    assert isinstance(outcome, Infeasible)
    assert outcome.reason == "overflow"
    assert said in outcome.message
    assert "initial_scale_power" in outcome.message
