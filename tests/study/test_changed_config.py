"""A configuration file that was edited after its study was created."""

import json
import os
from pathlib import Path

import pytest
import yaml

from dsopt.report.changed_config import changed_config
from dsopt.study.folders import results_folder
from dsopt.study.load import load_spec
from dsopt.study.spec import StudySpec

GIVEN = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {"stage": 1},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
}


@pytest.fixture
def spec(tmp_path: Path) -> StudySpec:
    return create(tmp_path, GIVEN)


def create(folder: Path, given: object, **keys: object) -> StudySpec:
    (folder / "train.py").write_text("pass\n")
    (folder / "ds.json").write_text(json.dumps(given))
    command = "deepspeed --num_gpus 2 train.py --deepspeed_config ds.json"
    (folder / "study.yaml").write_text(yaml.safe_dump({"name": "s", "command": command, **keys}))
    return load_spec(folder / "study.yaml")[0]


def edit(spec: StudySpec, text: str) -> None:
    (Path(spec.cwd) / "ds.json").write_text(text)


def test_what_differs_is_named_and_what_the_study_does(spec: StudySpec) -> None:
    assert changed_config(spec) is None
    edit(spec, json.dumps({**GIVEN, "optimizer": {"type": "AdamW", "params": {"lr": 0.5}}, "gradient_clipping": 1}))
    said = changed_config(spec)
    assert said is not None
    assert said.startswith("ds.json is not what study 's' measures: gradient_clipping, optimizer.params.lr differ.")
    edit(spec, "{}")
    assert ", optimizer.params.lr, optimizer.type and 2 more differ." not in (changed_config(spec) or "")
    assert "optimizer.params.lr, optimizer.type, stage and 1 more differ." in (changed_config(spec) or "")


@pytest.mark.parametrize(
    "text",
    [
        "// mine\n" + json.dumps(GIVEN, indent=3),
        json.dumps({**GIVEN, "autotuning": {"enabled": True, "metric": "latency"}, "fast": False}),
        json.dumps({key: value for key, value in GIVEN.items() if key != "zero_optimization"} | {"stage": 1}),
        json.dumps(GIVEN)[:-1],
        "{ no JSON",
        "[]",
    ],
)
def test_what_is_not_of_the_training_or_cannot_be_read_is_no_change(spec: StudySpec, text: str) -> None:
    edit(spec, text)
    assert changed_config(spec) is None


def test_keys_that_were_moved_when_the_study_was_created_are_no_change(tmp_path: Path) -> None:
    outside = {"train_micro_batch_size_per_gpu": 4, "stage": 2, "metric": "latency", "max_train_batch_size": 8}
    assert changed_config(create(tmp_path, outside)) is None


def test_a_file_that_is_gone_or_closed_or_was_never_asked_is_no_change(spec: StudySpec, tmp_path: Path) -> None:
    (tmp_path / "ds.json").unlink()
    assert changed_config(spec) is None
    os.mkfifo(tmp_path / "ds.json")
    assert changed_config(spec) is None
    (tmp_path / "ds.json").unlink()
    inline = create(tmp_path, {}, ds_config=GIVEN, command="deepspeed --num_gpus 2 train.py --deepspeed_config ds.json")
    (tmp_path / "ds.json").unlink()
    assert changed_config(inline) is None


def test_the_optimum_of_the_study_may_take_the_files_place(spec: StudySpec, tmp_path: Path) -> None:
    best = {**GIVEN, "train_micro_batch_size_per_gpu": 32}
    edit(spec, json.dumps(best))
    assert changed_config(spec) is not None
    results = results_folder(spec)
    (results / "ds_config_optimal.json").write_text("[")
    assert changed_config(spec) is not None
    (results / "ds_config_optimal.json").write_text(json.dumps(best))
    assert changed_config(spec) is None
