"""A checkpoint that DeepSpeed does not load with the best's ZeRO stage is told before anybody trains with it."""

from dataclasses import replace

import pytest

from dsopt.report.resumed import resumed
from dsopt.report.software import several_versions, software_of
from dsopt.study.space import Candidate
from tests.made_up import facts, history, observation, spec
from tests.runs import engine


@pytest.mark.parametrize(
    ("own", "best", "is_told"),
    [(0, 1, True), (1, 0, True), (0, 3, True), (3, 2, True), (1, 2, False), (2, 1, False), (1, 1, False)],
)
def test_a_checkpoint_of_another_stage_is_told(own: int, best: int, is_told: bool) -> None:
    """The handed-back command ended with an error, and so did `dsopt run`; DeepSpeed loads 1 with 2, and no other."""
    candidate = Candidate(stage=best, micro_batch=8, gas=1)
    known = history(observation(candidate, 2.0), baseline=facts(zero_stage=own))
    assert resumed(spec(), known, candidate) == []
    going_on = replace(known, reference=[replace(known.reference[0], resumes_from="ckpts")])
    told = resumed(spec(), going_on, candidate)
    assert [f"saved with ZeRO {own}, as" in line and f"with ZeRO {best}, and" in line for line in told] == (
        [True] * is_told
    )
    assert resumed(spec(), going_on, None) == []
    assert resumed(spec({"checkpoint": {"load_universal": True}}), going_on, candidate) == []


NAMED = "goes on from what --resume_from_checkpoint names. If"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("--resume_from_checkpoint out/checkpoint-500", NAMED),
        ("--resume_from_checkpoint 'https://h/x?X-Amz-Signature=abcdef0123456789'", NAMED),
        ("--resume-from-checkpoint True", NAMED),
        ("--resume_from_checkpoint", NAMED),
        ("--resume_from_checkpoint False", None),
        ("--resume_from_checkpoint None", None),
        ("--resume_from_checkpoint ''", None),  # an empty variable
        ("--resume_from_checkpoint=", None),
        ("", None),
    ],
)
def test_the_flag_of_the_trainer_says_that_there_is_one(args: str, said: str | None) -> None:
    """Runs do not get it."""
    study, candidate = spec(), Candidate(stage=3, micro_batch=8, gas=1)
    study = study.model_copy(update={"command": f"{study.command} {args}".strip()})
    told = resumed(study, history(observation(candidate, 2.0), baseline=facts()), candidate)
    assert [said in line for line in told] == [True] * (said is not None)


def test_figures_of_several_versions_come_with_a_warning() -> None:
    """An update meanwhile made ZeRO 2 faster, and it stayed at what it had been."""
    old, new, plain = "torch 2.4.0, DeepSpeed 0.15.0", "torch 2.13.0, DeepSpeed 0.15.0", "torch 2.4.0"
    candidate = Candidate(stage=1, micro_batch=8, gas=1)
    runs = [observation(candidate, 2.0, engine=engine(software=software)) for software in (old, old, new)]
    without = observation(candidate, 2.0, engine=engine(software=plain, framework="torch"))
    failed = observation(candidate, engine=engine(software=new))
    assert several_versions(history(runs[0], runs[1], without, failed)) == []
    [warning] = several_versions(history(*runs))
    assert "several versions of a package: torch 2.4.0 (2 runs) and 2.13.0 (1 run). Factors" in warning
    [warning] = several_versions(history(without, runs[2]))  # a script without DeepSpeed does not name it
    assert "torch 2.4.0 (1 run) and 2.13.0 (1 run). Factors" in warning
    assert software_of(history(*runs)) == f"{old}; {new}"
