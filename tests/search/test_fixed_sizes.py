"""Sizes that the user fixes stay fixed, whatever the order of stages: the smallest micro-batch, the accumulation."""

import pytest

from dsopt.study.space import ACCUMULATION, MICRO_BATCH, Candidate
from dsopt.study.spec import StudySpec
from tests.machines import Machine
from tests.made_up import GIB

MAPPINGS = {MICRO_BATCH: "--batch", ACCUMULATION: "--gas"}
ORDERS = pytest.mark.parametrize("order", ["joint", "sequential"])


def study(order: str, ds_config: dict, flags: str = "", **autotuning: object) -> StudySpec:
    return StudySpec.model_validate(
        {
            "name": "s",
            "command": f"deepspeed --num_gpus 2 t.py --deepspeed_config c.json {flags}",
            "cwd": "/",
            "ds_config": ds_config,
            "autotuning": {"arg_mappings": MAPPINGS, "max_train_micro_batch_size_per_gpu": 16, **autotuning},
            "stage_order": order,
        }
    )


def small_is_fast(candidate: Candidate | None) -> float:
    """Throughput that falls with the micro-batch size."""
    return 100.0 - (candidate.micro_batch if candidate else 8)


def grows(candidate: Candidate | None) -> float:
    """Throughput that grows with the samples of a step."""
    samples = candidate.micro_batch * candidate.gas if candidate else 1
    return 100.0 * samples / (samples + 20)


@ORDERS
@pytest.mark.parametrize(
    ("given", "flags", "smallest"),
    [
        ({MICRO_BATCH: 4}, "", 4),
        ({MICRO_BATCH: 4}, "--batch 8", 4),
        ({MICRO_BATCH: "auto"}, "--batch 2", 2),
        ({}, "--batch=2", 2),
        ({MICRO_BATCH: "auto"}, "", 1),
        ({}, "", 1),
        ({MICRO_BATCH: [4, 8]}, "--batch 16", 4),
    ],
)
def test_no_size_below_the_users_is_tried(order: str, given: dict, flags: str, smallest: int) -> None:
    machine = Machine(study(order, given, flags), small_is_fast, own=Candidate(stage=0, micro_batch=8, gas=1)).run()
    assert min(candidate.micro_batch for candidate in machine.offered) == smallest


@ORDERS
@pytest.mark.parametrize("largest", [6, 12])
def test_smaller_sizes_are_tried_only_where_the_users_does_not_fit(order: str, largest: int) -> None:
    """Of 16 GiB, two are left when so many samples are there."""

    def memory(candidate: Candidate) -> int:
        return 2 * GIB + candidate.micro_batch * 12 * GIB // largest

    def truth(candidate: Candidate | None) -> float | str:
        ran = candidate or Candidate(stage=1, micro_batch=8, gas=1)
        return "oom" if memory(ran) > 16 * GIB else grows(ran)

    asked = study(order, {MICRO_BATCH: 8, "zero_optimization": {"stage": 1}})
    machine = Machine(asked, truth, memory, own=Candidate(stage=1, micro_batch=8, gas=1)).run()
    measured = {o.candidate.micro_batch for o in machine.stages[1] if o.candidate and o.value}
    assert min(measured, default=0) >= 8 if largest == 12 else max(measured) < 8


@ORDERS
@pytest.mark.parametrize(
    ("given", "flags", "accumulations"),
    [
        ({ACCUMULATION: 2}, "", {2}),
        ({ACCUMULATION: 2}, "--gas 4", {2}),
        ({}, "--gas 2", {2}),
        ({ACCUMULATION: [2, 4]}, "", {2, 4}),
    ],
)
def test_an_explicit_accumulation_stays(order: str, given: dict, flags: str, accumulations: set[int]) -> None:
    asked = study(order, {MICRO_BATCH: [1, 4, 16], **given}, flags, max_train_batch_size=64)
    machine = Machine(asked, grows, own=Candidate(stage=0, micro_batch=1, gas=2)).run()
    assert {candidate.gas for candidate in machine.offered} == accumulations


@pytest.mark.parametrize("given", [{}, {ACCUMULATION: "auto"}])
def test_an_accumulation_that_nobody_fixes_may_fill_the_largest_batch(given: dict) -> None:
    asked = study("joint", {MICRO_BATCH: [1, 4], **given}, max_train_batch_size=64)
    machine = Machine(asked, grows).run()
    assert {(c.micro_batch, c.gas) for c in machine.offered} == {(1, 1), (1, 32), (4, 1), (4, 8)}


@ORDERS
def test_a_crash_is_no_reason_to_go_below_the_users_size(order: str) -> None:
    machine = Machine(study(order, {MICRO_BATCH: 4}), lambda candidate: 100.0 if candidate is None else "crash").run()
    tried = [o.candidate.micro_batch for stage in machine.stages.values() for o in stage if o.candidate]
    assert tried
    assert min(tried) >= 4
