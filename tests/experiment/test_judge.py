"""What a run has come to, as a table: events in, outcome out."""

from dataclasses import replace

import pytest

from dsopt.experiment.judge import FEWEST_STEPS, Moment
from dsopt.experiment.outcome import Failed, Infeasible, Measured, Slow
from dsopt.protocol.events import End, Error, Event, Flops, Oom, Withheld
from dsopt.study.spec import MeasurementBudget
from tests.experiment.test_stake import staked
from tests.runs import engine, outcome_of, rules, step, steps

LATE = Moment(seconds=61.0)
OVER = Moment(seconds=50.0, training_seconds=45.0)
ENDED = Moment(seconds=10.0, exit_code=0)
KILLED = Moment(seconds=10.0, exit_code=-9, last_output="going down")
BRIEF = MeasurementBudget(max_steps=300, max_seconds=40.0)
END = End(rank=0)
NOISY = [step(number, 0.1 + 0.05 * (number * 7919 % 11)) for number in range(40)]


def error(rank: int = 0, time: float = 1.0, **changes: object) -> Error:
    return Error(**{"rank": rank, "type": "ValueError", "message": "no", "time": time, **changes})


@pytest.mark.parametrize(
    ("events", "moment", "kind", "reason", "words"),
    [
        ([], None, None, "", ""),
        ([engine(), *steps(5)], None, None, "", ""),
        ([], LATE, Failed, "timeout", "the script had not built DeepSpeed's engine when timeout_seconds (60 s)"),
        ([engine()], LATE, Failed, "timeout", "the first optimizer step had not ended"),
        ([engine(), *NOISY[:8]], LATE, Failed, "timeout", "the script had done only 8 optimizer steps"),
        ([], ENDED, Failed, "no_metrics", "the script ended without calling deepspeed.initialize"),
        ([engine(), *steps(3), END], ENDED, Failed, "no_metrics", "ended after 3 optimizer steps"),
        ([engine()], KILLED, Failed, "crash", "was ended by signal 9; the first optimizer step had not ended."),
        ([engine()], KILLED, Failed, "crash", "out-of-memory killer. Last output: going down Log: /made/up/run"),
        ([Oom(rank=1, message="no room")], None, Infeasible, "oom", "rank 1: no room. Log: "),
        ([error(time=2.0), Oom(rank=1, message="no room", time=3.0)], None, Infeasible, "oom", "rank 1: no room."),
        ([engine(), error(0, 2.0), error(1, 1.0)], None, Failed, "crash", "rank 1: ValueError: no. Log: "),
        ([error(origin="deepspeed.runtime.config")], None, Infeasible, "invalid_config", "rank 0: ValueError: no."),
        ([engine(), error(origin="deepspeed.runtime.pipe.engine")], None, Infeasible, "unsupported", "ValueError: no."),
        ([error(origin="deepspeed.runtime.engine")], None, Infeasible, "unsupported", "rank 0: ValueError: no."),
        ([error(origin="deepspeed.runtime.zero.stage3")], None, Infeasible, "unsupported", "rank 0: ValueError: no."),
        ([error(origin="pydantic.main", type="ValidationError")], None, Infeasible, "invalid_config", "rank 0: "),
        ([error(origin="pydantic_core", type="ValidationError", message="device: Input should be 'cpu' [type=enum, "
                "input_value='cuda', input_type=str]")], None, Infeasible, "invalid_config", "'cuda'"),
        ([error(origin="deepspeed.utils.groups", type="AssertionError")], None, Infeasible, "invalid_config", "no."),
        ([error(origin="deepspeed.module_inject.auto_tp")], None, Infeasible, "invalid_config", "ValueError: no."),
        ([error(origin="deepspeed.utils.nvtx")], None, Failed, "crash", "ValueError: no."),
        ([error(origin="deepspeed.runtime.config", type="RuntimeError")], None, Failed, "crash", "RuntimeError: no."),
        ([error(origin="deepspeed.ops.op_builder.builder", type="RuntimeError")], None, Failed, "crash", "RuntimeErr"),
        ([error(origin="transformers.training_args")], None, Failed, "crash", "ValueError: no."),
        ([error(origin="deepspeed.runtime.engine", message="not on your device.")], None, Failed, "crash", ""),
        ([engine(), *steps(1), error(origin="deepspeed.runtime.zero.x")], None, Failed, "crash", "ValueError: no."),
        ([engine(), error(origin="deepspeed.runtime.config")], None, Failed, "crash", "rank 0: ValueError: no."),
        ([engine(zero_stage=0, micro_batch=5)], None, Infeasible, "invalid_config", "ZeRO stage 0, micro-batch 5"),
    ],
)  # fmt: skip
def test_what_came_of_a_run_that_was_not_measured(
    events: list[Event], moment: Moment | None, kind: type | None, reason: str, words: str
) -> None:
    outcome = outcome_of(*events, moment=moment)
    if kind is None:
        assert outcome is None
        return
    assert isinstance(outcome, Failed | Infeasible)
    assert (type(outcome), outcome.reason) == (kind, reason)
    assert words in outcome.message


@pytest.mark.parametrize(
    ("events", "moment", "changes", "is_measured"),
    [
        ([engine(), *steps(14)], None, {}, False),  # too few to be sure that warm-up is over
        ([engine(), *steps(15)], None, {}, True),
        ([engine(), *NOISY[:39]], None, {}, False),
        ([engine(), *NOISY], None, {}, True),  # its steps are spent
        ([engine(), *NOISY[: 2 + FEWEST_STEPS]], OVER, {"measurement": BRIEF}, False),
        ([engine(), *NOISY[: 3 + FEWEST_STEPS]], OVER, {"measurement": BRIEF}, True),
        ([engine(), *NOISY[:7], END], ENDED, {}, False),
        ([engine(), *NOISY[:9], END], ENDED, {}, True),  # a script that ends by itself
        ([engine(), *NOISY[:5]], None, {"window": (3, 5)}, False),
        ([engine(), *NOISY[:6]], None, {"window": (3, 5)}, True),
        ([engine(), *steps(15)], None, {"needs_flops": True}, False),
        ([engine(), Flops(rank=0, flops_per_step=1.0), *steps(15)], None, {"needs_flops": True}, True),
        ([engine(), *steps(15)], None, {"needs_pass": "forward"}, False),
    ],
)  # fmt: skip
def test_when_a_run_is_measured(events: list[Event], moment: Moment | None, changes: dict, is_measured: bool) -> None:
    assert isinstance(outcome_of(*events, under=rules(**changes), moment=moment), Measured) is is_measured


def test_a_script_that_changes_its_batch_is_refused_whatever_its_steps_say() -> None:
    """Else the samples of the last step would be those of all steps."""
    ramp = [*steps(14), *(replace(step(number, 0.1), samples=16_000) for number in range(14, 30))]
    outcome = outcome_of(engine(), *ramp)
    assert isinstance(outcome, Infeasible), outcome
    assert "the script changed its batch during the run, from 32 to 16000 samples a step" in outcome.message


@pytest.mark.parametrize("seconds", [5e-324, 1e-300, 1e-7])
def test_a_step_shorter_than_any_is_none(seconds: float) -> None:
    """Figures of it would not be finite."""
    outcome = outcome_of(engine(), replace(step(0, seconds), samples=2**62), *steps(40))
    assert isinstance(outcome, Measured), outcome
    assert outcome.measurement.samples_per_second < 1e6


def test_a_run_that_cannot_win_is_slow() -> None:
    noisy = [engine(), *NOISY[:30]]
    dear = Moment(seconds=0.0, spent_seconds=1000.0)  # after such a start, more steps are worth their time
    assert outcome_of(*noisy, under=rules(stake=staked("throughput", 100.0)), moment=dear) is None
    assert isinstance(outcome_of(*noisy, under=rules(stake=staked("throughput", 1000.0)), moment=dear), Slow)


def test_a_run_ends_where_more_steps_are_not_worth_their_time() -> None:
    cheap = Moment(seconds=0.0, spent_seconds=0.1)
    outcome = outcome_of(engine(), *NOISY[:20], under=rules(stake=staked("throughput", 1000.0)), moment=cheap)
    assert isinstance(outcome, Measured)
    assert outcome.ended == "more steps were not worth their time"


def test_the_flag_that_names_its_checkpoints_is_said() -> None:
    raised = Error(rank=0, type="TypeError", message="'NoneType' object is not subscriptable", time=1.0)
    withheld = Withheld(rank=0, what="DeepSpeedEngine.load_checkpoint", path="ckpt/step_3")
    outcome = outcome_of(engine(), withheld, raised, script_args="--steps 9 --save-dir=ckpt")
    assert isinstance(outcome, Failed)
    assert "--save-dir names their folder: give each run its own with --isolate=--save-dir. Or let the script" in (
        outcome.message
    )


@pytest.mark.parametrize(
    ("kind", "message", "flag"),
    [
        ("FileExistsError", "[Errno 17] File exists: 'out/exp1'", "--out"),
        ("FileExistsError", "[Errno 17] File exists: 'elsewhere'", "FLAG"),
        ("ValueError", "Output directory (out) already exists and is not empty.", "FLAG"),
        ("ValueError", "the key exists twice", None),
    ],
)
def test_a_script_that_refuses_an_earlier_runs_folder_is_told_the_flag(
    kind: str, message: str, flag: str | None
) -> None:
    raised = Error(rank=0, type=kind, message=message, time=1.0)
    outcome = outcome_of(engine(), raised, script_args="--out=out")
    assert isinstance(outcome, Failed)
    assert (f"Give each run its own folder with --isolate={flag}." in outcome.message) == (flag is not None)


@pytest.mark.parametrize(
    ("what", "is_said"), [("DeepSpeedEngine.load_checkpoint", True), ("DeepSpeedEngine.save_checkpoint", False)]
)
def test_a_script_that_needs_a_checkpoint_is_told_that_an_experiment_has_none(what: str, is_said: bool) -> None:
    raised = Error(rank=0, type="TypeError", message="'NoneType' object is not subscriptable", time=1.0)
    outcome = outcome_of(engine(), Withheld(rank=0, what=what, path="ckpt"), raised)
    assert isinstance(outcome, Failed)
    assert (f"An experiment starts without checkpoints: {what} found none." in outcome.message) == is_said
    assert (f"An experiment saves nothing: {what} was skipped." in outcome.message) != is_said


@pytest.mark.parametrize(
    ("events", "raised", "counts"),
    [
        ([*steps(9), Withheld(rank=0, what="Trainer.save_model", path="out")], {}, True),
        ([*steps(6), Withheld(rank=0, what="Trainer.save_model", path="out")], {}, False),  # too few to be measured
        ([*steps(9), Withheld(rank=0, what="Accelerator.init_trackers", path="")], {}, False),
        ([*steps(9), Withheld(rank=0, what="Accelerator.save_state", path="")], {"origin": "torch.nn.modules"}, False),
        ([*steps(9), Withheld(rank=0, what="Accelerator.save_state", path="")], {"type": "ConnectionError"}, False),
    ],
)
def test_what_was_measured_before_a_script_misses_its_skipped_save_counts(
    events: list[Event], raised: dict[str, str], counts: bool
) -> None:
    error = Error(**{"rank": 0, "type": "FileNotFoundError", "message": "out/model.bin", "time": 9.0} | raised)  # type: ignore[arg-type]
    outcome = outcome_of(engine(), *events, error)
    assert isinstance(outcome, Measured) == counts
    assert not isinstance(outcome, Measured) or "missed a checkpoint" in (outcome.ended or "")


def test_a_script_that_ends_itself_has_said_why_in_its_log() -> None:
    said = Moment(seconds=5.0, last_output="t.py: error: unrecognized arguments: --epochs")
    outcome = outcome_of(error(type="SystemExit", message="exit code 2"), moment=said)
    assert isinstance(outcome, Failed)
    assert "SystemExit: exit code 2. Last output: t.py: error: unrecognized arguments: --epochs" in outcome.message


def test_a_setting_that_the_script_sets_itself_is_not_taken_for_the_candidates() -> None:
    varied = rules(varied=frozenset({"zero_optimization.overlap_comm", "zero_optimization.reduce_scatter"}))
    assert isinstance(outcome_of(engine(own_settings='{"steps_per_print": 9}'), *steps(40), under=varied), Measured)
    outcome = outcome_of(engine(own_settings='{"zero_optimization.overlap_comm": false}'), under=varied)
    assert isinstance(outcome, Infeasible) and outcome.reason == "fixed_setting"
    assert "the script set zero_optimization.overlap_comm itself, to false" in outcome.message
