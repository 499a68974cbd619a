"""What lies in a study's space, and what only looks like it."""

import itertools

import pytest

from dsopt.study.inside import aio_inside, candidate_inside, may_be_tried
from dsopt.study.space import ACCUMULATION, LARGEST, MICRO_BATCH, ZERO, Candidate
from dsopt.study.spec import StudySpec

FLAG = "--gradient_checkpointing"


def spec(**keys: object) -> StudySpec:
    content = {
        "name": "s", "command": "deepspeed --num_gpus 2 train.py --deepspeed_config ds.json", "cwd": "/made/up",
        "ds_config": {"zero_optimization": {"stage": [1, 3]}}, "autotuning": {"fast": False},
        "search": {"args": {FLAG: [None, ""]}, "ds_config": {"bf16.enabled": [True, False], "clip": [1, 2.5]}},
        **keys,
    }  # fmt: skip
    return StudySpec.model_validate(content)


@pytest.mark.parametrize("hidden_size", [None, 1, 64, 768, 4095, 4096, 5120, 12288, 16384])
@pytest.mark.parametrize("stage", [1, 3])
def test_every_candidate_of_a_space_lies_in_it_whatever_the_hidden_size(stage: int, hidden_size: int | None) -> None:
    known = spec()
    settings = itertools.islice(known.space(stage, hidden_size).settings(), 0, None, 7)
    for setting in settings:
        candidate = Candidate(stage=stage, micro_batch=3, gas=2, knobs=setting)
        assert candidate_inside(known, stage, candidate.params) == candidate
        began = dict(list(candidate.params.items())[:-1])
        assert candidate_inside(known, stage, began) is None


@pytest.mark.parametrize(
    "changes",
    [
        {MICRO_BATCH: 0}, {MICRO_BATCH: LARGEST + 1}, {MICRO_BATCH: True}, {MICRO_BATCH: "2"}, {MICRO_BATCH: 2.0},
        {ACCUMULATION: None}, {FLAG: "--output_dir=/"}, {FLAG: True}, {"--evil": ""}, {"bf16.enabled": 1},
        {"bf16.enabled": "true"}, {"clip": 3}, {"clip": "1"}, {f"{ZERO}reduce_bucket_size": 10},
        {f"{ZERO}stage3_param_persistence_threshold": 77}, {f"{ZERO}stage3_prefetch_bucket_size": -1},
        {f"{ZERO}stage3_param_persistence_threshold": 10 * 2**21},
    ],
)  # fmt: skip
def test_what_the_spec_does_not_allow_does_not_lie_in_it(changes: dict[str, object]) -> None:
    known = spec()
    setting = known.space(3, 768).settings()[0]
    params = Candidate(stage=3, micro_batch=2, gas=1, knobs=setting).params
    assert candidate_inside(known, 3, params) is not None
    assert candidate_inside(known, 3, {**params, **changes}) is None
    assert candidate_inside(known, 2, params) is None, "the study does not try this stage"


@pytest.mark.parametrize(
    ("sizes", "autotuning", "inside", "outside"),
    [
        ({}, {}, [(1, 1), (LARGEST, LARGEST)], []),
        ({MICRO_BATCH: [2, 4]}, {}, [(2, 1), (4, 8), (5, 1)], [(1, 1), (3, 1), (8, 1)]),
        ({MICRO_BATCH: 2}, {}, [(1, 1), (64, 1)], []),
        ({}, {"min_train_micro_batch_size_per_gpu": 4, "max_train_micro_batch_size_per_gpu": 8},
         [(4, 1), (8, 9)], [(3, 1), (9, 1)]),
        ({}, {"max_train_batch_size": 64}, [(64, 1), (8, 8)], [(65, 1), (8, 9)]),
        ({ACCUMULATION: [1, 4]}, {}, [(2, 1), (2, 4), (2, 7)], [(2, 2)]),
        ({ACCUMULATION: 4}, {"max_train_batch_size": 64}, [(2, 4)], [(2, 2), (2, 32)]),
        ({ACCUMULATION: [4]}, {"max_train_batch_size": 64}, [(2, 4), (2, 32)], [(2, 33)]),
        ({ACCUMULATION: 4}, {"global_batch": "keep"}, [(2, 2)], []),
        ({MICRO_BATCH: 4, ACCUMULATION: [8, 1]}, {"max_train_batch_size": 16}, [(4, 8), (16, 1)], [(8, 8)]),
    ],
)  # fmt: skip
def test_batch_sizes_are_those_that_the_user_allows(
    sizes: dict, autotuning: dict, inside: list[tuple[int, int]], outside: list[tuple[int, int]]
) -> None:
    """A script may keep its own, of 5 rows and 7 passes here."""
    keys = {"global_batch": autotuning.pop("global_batch")} if "global_batch" in autotuning else {}
    known = spec(ds_config={**sizes, "zero_optimization": {"stage": 1}}, autotuning=autotuning, **keys)
    for expected, pairs in ((True, inside), (False, outside)):
        for size, gas in pairs:
            assert may_be_tried(known, Candidate(stage=1, micro_batch=size, gas=gas), (5, 7)) is expected, (size, gas)


def test_a_candidate_has_the_values_of_the_space_itself() -> None:
    known = spec()
    [setting] = itertools.islice(known.space(1).settings(), 1)
    params = Candidate(stage=1, micro_batch=2, gas=1, knobs=setting).params
    found = candidate_inside(known, 1, dict(reversed({**params, "clip": 1.0}.items())))
    assert found is not None
    assert found.knobs == setting
    assert type(dict(found.knobs)["clip"]) is int


def test_only_what_can_have_been_measured_is_an_aio_section() -> None:
    measured = {"block_size": 2**20, "queue_depth": 32, "thread_count": 4, "single_submit": False}
    assert aio_inside(measured) == measured
    for wrong in (
        None, [], {}, {"block_size": "1"}, {"queue_depth": 0}, {"single_submit": 1}, {"nvme_path": 1},
        {**measured, "x": True},
    ):  # fmt: skip
        assert aio_inside(wrong) is None
