"""A script with sizes of its own: how a refusal reads, and that the search tries no other size after the first."""

from types import SimpleNamespace

import pytest

from dsopt.experiment.outcome import Infeasible
from dsopt.experiment.rules import OwnSizes
from dsopt.protocol.events import Error, Event
from dsopt.search.history import History, Observation
from dsopt.search.plan import next_step
from dsopt.search.steps import CloseStage, Explore, GiveUp
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec
from dsopt.worker.foreign import is_beyond_limits
from tests.made_up import GIB, facts, history, observation, sequential, spec
from tests.runs import batch, engine, outcome_of, rules

OWN = OwnSizes(rows=4, micro_batch=4, gas=1)
LINE = '"autotuning": {"arg_mappings": {"train_micro_batch_size_per_gpu": "%s"}}'
TRAINER = (
    "Please correct the following DeepSpeed config values that mismatch TrainingArguments values:\n"
    "- ds %s=8 vs hf %s=%s\nThe easiest method is to set these DeepSpeed config values to 'auto'."
)
WHOLE = (
    "Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * "
    "world_size 8 != 8 * 2 * 2"
)


def raised(message: str) -> Error:
    return Error(rank=0, type="ValueError", message=message, origin="deepspeed.runtime.config")


@pytest.mark.parametrize(
    ("own", "rows", "is_refused"),
    [
        (OWN, 4, True),  # the user's own rows, though 8 are asked for
        (OWN, 8, False),
        (OWN, 0, False),  # not seen
        (OwnSizes(rows=16, micro_batch=4, gas=1), 16, False),  # rows were no micro-batch in the user's own run either
        (OwnSizes(rows=1, micro_batch=1, gas=1), 1, False),  # may be a packed batch
        (None, 4, False),
    ],
)
def test_rows_of_the_users_own_run_are_refused(own: OwnSizes | None, rows: int, is_refused: bool) -> None:
    outcome = outcome_of(engine(), batch(rows), under=rules(own=own))
    assert isinstance(outcome, Infeasible) is is_refused


@pytest.mark.parametrize(
    ("events", "script_args", "reason", "words"),
    [
        (
            [engine(), batch(4)], "--seed 4 --batch-size 4 --layers 4", "fixed_batch",
            ["fed batches of 4", "says 8", "'--batch-size 4' in your command has that value", LINE % "--batch-size"],
        ),
        ([engine(), batch(4)], "--batch-size=4 --lr 4e-4", "fixed_batch", ["'--batch-size 4'", LINE % "--batch-size"]),
        ([engine(), batch(4)], "-b 4", "fixed_batch", ["'-b 4' in your command has that value", LINE % "-b"]),
        (
            [engine(), batch(4)], "--workers 4 --layers 4", "fixed_batch",
            ["'--workers 4' and '--layers 4' in your command have that value. Map the one", LINE % "--workers"],
        ),
        ([engine(), batch(4)], "--batch-size 32", "fixed_batch", ["No flag of your command has", LINE % "--FLAG"]),
        ([engine(micro_batch=4)], "--bs 4", "fixed_batch", ["built its engine with 4", "'--bs 4'", LINE % "--bs"]),
        ([engine(gas=1)], "", "fixed_accumulation", ["number of accumulation steps", "gradient_accumulation_steps"]),
        ([engine(micro_batch=5)], "", "invalid_config", ["micro-batch 5, accumulation 2, not with 1, 8, 2"]),
        ([engine(zero_stage=0, micro_batch=4)], "", "invalid_config", ["ZeRO stage 0"]),
        (
            [raised(TRAINER % ("train_micro_batch_size_per_gpu", "per_device_train_batch_size", 4))], "", "fixed_batch",
            ["the Trainer refused", "Map it", LINE % "--per_device_train_batch_size", "the batch size stays 4"],
        ),
        (
            [raised(TRAINER % ("gradient_accumulation_steps", "gradient_accumulation_steps", 1))], "",
            "fixed_accumulation", ['"gradient_accumulation_steps": "--gradient_accumulation_steps"'],
        ),
        ([raised(TRAINER % ("optimizer.params.lr", "learning_rate", 1))], "", "invalid_config", ["params.lr"]),
        ([raised(WHOLE)], "--batch_size 4", "fixed_batch", ["train_batch_size", "'--batch_size 4'"]),
    ],
)  # fmt: skip
def test_a_refusal_says_what_to_map(events: list[Event], script_args: str, reason: str, words: list[str]) -> None:
    outcome = outcome_of(*events, under=rules(own=OWN), script_args=script_args)
    assert isinstance(outcome, Infeasible)
    assert outcome.reason == reason
    for each in words:
        assert each in outcome.message


def test_a_mapped_flag_that_changes_nothing_is_not_offered_again() -> None:
    known = rules(own=OWN, arg_mappings={"train_micro_batch_size_per_gpu": "--batch-size"})
    outcome = outcome_of(engine(), batch(4), under=known, script_args="--batch-size 8 --real-size 4")
    assert isinstance(outcome, Infeasible)
    assert "(--batch-size, which is mapped to it, has no effect)" in outcome.message
    assert LINE % "--real-size" in outcome.message


@pytest.mark.parametrize(
    ("rows", "asked", "own_flag", "reason", "is_told"),
    [
        (8, 16, "8", "fixed_batch", True),
        (4, 8, "8", "fixed_batch", True),
        (6, 16, "8", "few_samples", False),
        (8, 16, "4", "few_samples", False),  # it feeds what the flag says, up to a limit
        (4, 8, "4", "fixed_batch", False),
        (8, 16, None, "few_samples", False),
    ],
)
def test_a_flag_that_may_be_divided_among_the_ranks_is_told_so(
    rows: int, asked: int, own_flag: str | None, reason: str, is_told: bool
) -> None:
    """Accelerate's split_batches: it was said to have no effect, and to be mapped, as it was."""
    mappings = {"train_micro_batch_size_per_gpu": "--batch-size"}
    asked_for = Candidate(stage=1, micro_batch=asked, gas=2)
    known = rules(own=OWN, expected=asked_for, arg_mappings=mappings, own_flag=own_flag)
    seen = engine(micro_batch=asked)
    outcome = outcome_of(seen, batch(rows), under=known, script_args=f"--batch-size {asked}")
    assert isinstance(outcome, Infeasible) and outcome.reason == reason
    told = f"it seems to divide --batch-size {asked} among 2 ranks, as with Accelerate's split_batches"
    assert (told in outcome.message) == is_told
    assert ("has no effect" in outcome.message) == (rows == OWN.rows)


def test_the_users_own_run_is_held_to_nothing() -> None:
    assert outcome_of(engine(), batch(4), under=rules(own=None, expected=None)) is None


BASELINE = facts(zero_stage=1, micro_batch=4, gas=1, peak_memory_bytes=2 * GIB)


def refused(reason: str, stage: int = 1, micro_batch: int = 8, gas: int = 1) -> Observation:
    candidate = Candidate(stage=stage, micro_batch=micro_batch, gas=gas)
    return observation(candidate, reason=reason, message="it has its own batch size.")


def everything_tried(study: StudySpec, known: History) -> list[Candidate]:
    """What a search tries from here on, each candidate a bit faster than the one before."""
    tried: list[Candidate] = []
    while True:
        step = next_step(study, known)
        if isinstance(step, Explore):
            candidate = step.candidates[0]
            tried.append(candidate)
            stages = {stage: list(seen) for stage, seen in known.stages.items()}
            stages[candidate.stage].append(
                observation(candidate, 100.0 + 5 * len(tried), phase=step.phase, trial=len(tried))
            )
            known = History(reference=known.reference, stages=stages, verdicts=known.verdicts)
        elif isinstance(step, CloseStage):
            verdicts = {**known.verdicts, step.stage: step.verdict}
            known = History(reference=known.reference, stages=known.stages, verdicts=verdicts)
        else:
            return tried


@pytest.mark.parametrize("make", [spec, sequential])
@pytest.mark.parametrize(
    ("reason", "changes", "sizes", "gases"),
    [
        ("fixed_batch", {"micro_batch": 8}, {4}, {1, 2}),
        ("fixed_accumulation", {"micro_batch": 4, "gas": 2}, {2, 4, 8}, {1}),
    ],
)
def test_after_the_first_refusal_the_size_is_kept_and_all_else_is_tried(
    make, reason: str, changes: dict, sizes: set[int], gases: set[int]
) -> None:
    buckets = {"zero_optimization": {"stage": "all", "reduce_bucket_size": [10**7, 10**8]}}
    study = make(
        {"train_micro_batch_size_per_gpu": [4, 2, 8], "gradient_accumulation_steps": [1, 2], **buckets},
        tuner_early_stopping=100, tuner_num_trials=100,
    )  # fmt: skip
    known = history(refused(reason, **changes), baseline=BASELINE)
    tried = everything_tried(study, known)
    assert {candidate.micro_batch for candidate in tried} <= sizes
    assert {candidate.gas for candidate in tried} <= gases
    assert {4} <= {candidate.micro_batch for candidate in tried}
    assert len({candidate.stage for candidate in tried}) >= 2
    assert len({candidate.knobs for candidate in tried}) >= 2


@pytest.mark.parametrize("make", [spec, sequential])
@pytest.mark.parametrize(
    ("config", "tuning"),
    [
        ({"train_micro_batch_size_per_gpu": [2, 8]}, {}),
        ({}, {"max_train_micro_batch_size_per_gpu": 2}),
        ({}, {"min_train_micro_batch_size_per_gpu": 16}),
    ],
)
def test_what_a_script_keeps_outside_of_the_limits_goes_on_after_its_worker_died(
    make, config: dict, tuning: dict
) -> None:
    """It is the study's own, and nobody has altered it."""
    study = make({**config, "zero_optimization": {"stage": "all"}}, tuner_early_stopping=100, **tuning)
    known = history(refused("fixed_batch", micro_batch=8), baseline=BASELINE)
    tried = everything_tried(study, known)
    assert {candidate.micro_batch for candidate in tried} == {4}
    stored = SimpleNamespace(spec=study)
    assert not [candidate for candidate in tried if is_beyond_limits(stored, candidate, known)]
    assert is_beyond_limits(stored, Candidate(stage=1, micro_batch=5, gas=1), known)


def test_without_a_refusal_other_sizes_are_tried() -> None:
    study = spec({"train_micro_batch_size_per_gpu": [4, 2, 8]}, tuner_early_stopping=100)
    assert {candidate.micro_batch for candidate in everything_tried(study, history(baseline=BASELINE))} > {4}


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("fixed_batch", "A smaller batch could not be tried, because the script fed 4."),
        ("machine", "A smaller batch could not be measured, because its run met a fault of the machine: no network."),
    ],
)
def test_a_refused_profile_is_no_lack_of_memory(reason: str, said: str) -> None:
    own = observation(None, reason="oom", message="rank 0: no room.")
    message = "the script fed 4." if reason == "fixed_batch" else "no network."
    profile = observation(Candidate(stage=3, micro_batch=1, gas=1), name="profile", reason=reason, message=message)
    step = next_step(spec(), History(reference=[own, profile], stages={stage: [] for stage in range(4)}))
    assert step == GiveUp(message=f"your configuration does not run: rank 0: no room. {said}")
