"""The sizes of the user's own run: from the configuration, else the mapped flag, else 1."""

import pytest

from dsopt.search.least_memory import profile_candidate
from dsopt.study.own_sizes import own_size
from dsopt.study.space import ACCUMULATION, MICRO_BATCH
from dsopt.study.spec import StudySpec

MAPPINGS = {MICRO_BATCH: "--batch", ACCUMULATION: "--gas"}


def spec(flags: str, ds_config: dict) -> StudySpec:
    return StudySpec.model_validate(
        {
            "name": "s",
            "command": f"deepspeed t.py --deepspeed_config c.json {flags}",
            "cwd": "/",
            "ds_config": ds_config,
            "autotuning": {"arg_mappings": MAPPINGS},
        }
    )


@pytest.mark.parametrize(
    ("flags", "ds_config", "expected"),
    [
        ("--batch 8 --gas 2", {MICRO_BATCH: 4, ACCUMULATION: 3}, (4, 3)),
        ("--batch 8 --gas 2", {MICRO_BATCH: [2, 4], ACCUMULATION: [3, 1]}, (2, 3)),
        ("--batch 8 --gas 2", {MICRO_BATCH: "auto", ACCUMULATION: "auto"}, (8, 2)),
        ("--batch=8 --gas=2", {}, (8, 2)),
        ("--batch many", {}, (1, 1)),
        ("", {MICRO_BATCH: "auto"}, (1, 1)),
    ],
)
def test_configuration_then_flag_then_one(flags: str, ds_config: dict, expected: tuple[int, int]) -> None:
    study = spec(flags, ds_config)
    assert (own_size(study, MICRO_BATCH), own_size(study, ACCUMULATION)) == expected


def test_the_profile_accumulates_as_the_user_does() -> None:
    assert profile_candidate(spec("--gas 2", {})).gas == 2
