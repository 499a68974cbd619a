"""A study for checks, which reads no files."""

from pathlib import Path

from dsopt.study.spec import StudySpec


def study(folder: Path, **keys: object) -> StudySpec:
    """A study of two ranks on one node, in a folder; `keys` are those of a study file."""
    return StudySpec.model_validate(
        {
            "name": "s",
            "command": "deepspeed --num_gpus 2 train.py --deepspeed_config ds.json",
            "cwd": str(folder),
            "ds_config": {"train_micro_batch_size_per_gpu": 1},
            **keys,
        }
    )
