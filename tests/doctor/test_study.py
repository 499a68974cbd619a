"""What reading a study says, apart for its command and its configuration; and the settings that need operators."""

import json
from pathlib import Path

import pytest

from dsopt.doctor.check import Check, guarded, ok
from dsopt.doctor.diagnosis import checks
from dsopt.doctor.operators import needed_operators
from dsopt.doctor.study import Reading, check_command, check_configuration, read_study
from dsopt.errors import DsoptError
from dsopt.study.load import build_spec
from dsopt.study.spec import StudySpec


def read(tmp_path: Path, config: dict, script: str = "train.py", **keys: object) -> Reading:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "ds.json").write_text(json.dumps(config))
    command = f"deepspeed --num_gpus 2 {script} --deepspeed_config ds.json"
    return read_study(lambda: build_spec({"name": "s", "command": command, "cwd": str(tmp_path), **keys}, "test"))


def both(reading: Reading) -> tuple[list[Check], list[Check]]:
    return list(check_command(reading)), list(check_configuration(reading))


def statuses(reading: Reading) -> tuple[list[str], list[str]]:
    command, config = both(reading)
    assert {one.name for one in command} == {"command"}
    assert {one.name for one in config} == {"configuration"}
    return [one.status for one in command], [one.status for one in config]


def test_a_study_without_mistakes(tmp_path: Path) -> None:
    assert statuses(read(tmp_path, {"train_micro_batch_size_per_gpu": 2})) == (["ok"], ["ok"])


def test_every_mistake_has_a_line_where_it_belongs(tmp_path: Path) -> None:
    config = {"fp16": {"enable": True}, "zero_optimization": {"stage": 3, "mics_shard_size": 2}}
    reading = read(tmp_path, config, "gone.py", timeout_secnds=3)
    assert statuses(reading) == (["problem", "problem"], ["problem", "problem"])
    command, wrong = both(reading)
    assert "Did you mean 'timeout_seconds'?" in command[0].message
    assert "no training script 'gone.py'" in command[1].message
    assert {"Did you mean 'fp16.enabled'?" in one.message for one in wrong} == {True, False}
    assert any("mics_shard_size: DeepSpeed" in one.message and "refuses it" in one.message for one in wrong)


def test_mistakes_of_the_configuration_leave_the_command_ok(tmp_path: Path) -> None:
    assert statuses(read(tmp_path, {"fp16": {"enable": True}})) == (["ok"], ["problem"])


def test_warnings_are_told_where_they_belong(tmp_path: Path) -> None:
    reading = read(tmp_path, {"nobody_knows_this": 1, "tensorboard": {"enabled": True}})
    command, config = both(reading)
    [unknown] = [one for one in config if "nobody_knows_this" in one.message]
    assert unknown.status == "warning"
    assert "nobody_knows_this" not in " ".join(one.message for one in command)


def test_no_study_is_skipped() -> None:
    assert statuses(read_study(None)) == (["skipped"], ["skipped"])


def test_a_file_that_cannot_be_read_is_a_problem_of_the_command() -> None:
    def fail() -> None:
        raise DsoptError("study.yaml: no such file.")

    assert statuses(read_study(fail)) == (["problem"], ["skipped"])  # type: ignore[arg-type]


def test_a_check_that_fails_itself_is_a_problem_in_its_own_words() -> None:
    def check() -> object:
        yield ok("disk", "fine")
        raise ZeroDivisionError("division\nby zero")

    first, second = guarded("disk", check)  # type: ignore[arg-type]
    assert first.status == "ok"
    assert (second.name, second.status) == ("disk", "problem")
    assert second.message == "the check itself failed: ZeroDivisionError: division by zero"


def adam(**params: object) -> dict:
    return {"optimizer": {"type": "AdamW", "params": params}}


OFFLOAD = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}


@pytest.mark.parametrize(
    ("config", "device", "builders"),
    [
        ({}, "cpu", ["ShareMemCommBuilder"]),
        ({}, "gpu", []),
        (adam(), "gpu", ["FusedAdamBuilder"]),
        (adam(torch_adam=True), "gpu", []),
        (adam() | OFFLOAD, "gpu", ["CPUAdamBuilder"]),
        (adam(torch_adam=True) | OFFLOAD, "gpu", []),
        ({"optimizer": {"type": "Lion"}}, "gpu", ["FusedLionBuilder"]),
        ({"optimizer": {"type": "Adagrad"}}, "gpu", []),
        ({"optimizer": {"type": "SGD"}}, "gpu", []),
        (
            adam() | {"zero_optimization": {"offload_param": {"device": "nvme", "nvme_path": "/x"}}},
            "gpu",
            ["FusedAdamBuilder", "AsyncIOBuilder"],
        ),
    ],
)
def test_the_operators_that_a_configuration_needs(config: dict, device: str, builders: list[str]) -> None:
    assert needed_operators(config, device) == builders


def test_mistakes_come_first_and_nothing_is_compiled_for_a_study_that_has_them(tmp_path: Path) -> None:
    def wrong() -> tuple[StudySpec, list[str]]:
        raise DsoptError("study.yaml: max_attempts: 'two' is not a number.")

    found = {one.name: one for one in checks(wrong, lambda: f"sqlite:///{tmp_path}/none.db", "cpu:1")}
    assert found["command"].status == "problem"
    for name in ("python-packages", "operators", "all-reduce"):
        assert found[name].status == "skipped"
        assert (
            found[name].message == "the study or its command has mistakes: correct them first, since this takes minutes"
        )
