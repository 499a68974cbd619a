"""What runs in the training environment: imports, a compiler, a real all-reduce. And whole diagnoses."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import dsopt as api
from dsopt.doctor.operators import check_operators
from dsopt.doctor.packages import check_packages
from dsopt.doctor.ranks import check_all_reduce
from dsopt.launch.devices import DevicePool
from dsopt.launch.training import Training, training_of
from tests.api.dry import dry_run
from tests.conftest import Dsopt
from tests.doctor.made import study
from tests.made_up import spec as made_up_spec
from tests.studies import write_study

CPU = DevicePool(kind="cpu", indices=(0, 1))
GPU = DevicePool(kind="gpu", indices=(0,))


def with_variables(**variables: str) -> Training:
    training = training_of(None)
    return replace(training, environment={**training.environment, **variables})


def test_the_python_of_the_launcher_is_found(tmp_path: Path) -> None:
    for folder, first in (("mine", f"#!{sys.executable}"), ("odd", "#!/bin/sh")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "deepspeed").write_text(f"{first}\n")
        (tmp_path / folder / "deepspeed").chmod(0o755)
    found = training_of(study(tmp_path, command="A=1 mine/deepspeed train.py --deepspeed_config ds.json"))
    assert found.python == Path(sys.executable)
    assert found.environment["A"] == "1"
    with pytest.raises(api.DsoptError, match="its first line names none"):
        training_of(study(tmp_path, command="odd/deepspeed train.py --deepspeed_config ds.json"))


@pytest.mark.real
@pytest.mark.xdist_group("real")
def test_packages_can_be_imported_and_those_that_cannot_are_named(tmp_path: Path) -> None:
    assert [one.status for one in check_packages(training_of(None), None, CPU)] == ["ok"]
    (tmp_path / "deepspeed.py").write_text("raise RuntimeError('built for another torch')\n")
    broken = with_variables(PYTHONPATH=f"{tmp_path}:{Path(api.__file__).parents[1]}")
    wrong, versions = check_packages(broken, None, GPU)
    assert (wrong.status, versions.status) == ("problem", "ok")
    assert "cannot import deepspeed: RuntimeError: built for another torch" in wrong.message
    assert wrong.fix.endswith("-m pip install deepspeed")


@pytest.mark.real
@pytest.mark.xdist_group("real")
def test_what_the_training_reports_to_must_be_there_although_experiments_do_without(tmp_path: Path) -> None:
    (tmp_path / "comet_ml.py").write_text("raise ImportError('no comet here')\n")
    known = made_up_spec({"comet": {"enabled": True}, "wandb": {"enabled": False}})
    missing, versions = check_packages(
        with_variables(PYTHONPATH=f"{tmp_path}:{Path(api.__file__).parents[1]}"), known, CPU
    )
    assert (missing.status, versions.status) == ("warning", "ok")
    assert "cannot import comet_ml, which your configuration reports to: ImportError: no comet here" in missing.message


@pytest.mark.real
@pytest.mark.xdist_group("real")
def test_a_torch_that_cannot_use_the_gpus_is_a_problem() -> None:
    import torch

    if torch.version.cuda is not None:
        pytest.skip("this torch has CUDA")
    wrong, _ = check_packages(training_of(None), None, GPU)
    assert "is built without CUDA" in wrong.message


def test_an_environment_without_dsopt_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "dsopt").mkdir()
    (tmp_path / "dsopt" / "__init__.py").write_text("")
    [found] = check_packages(with_variables(PYTHONPATH=str(tmp_path)), None, CPU)
    assert found.status == "problem"
    assert "dsopt is not installed in the environment that the command trains in" in found.message


@pytest.mark.real
@pytest.mark.xdist_group("real")
def test_two_ranks_add_their_numbers_and_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [found] = check_all_reduce(training_of(None), CPU)
    assert found.status == "ok", found.message
    assert re.fullmatch(r"two ranks over gloo: \S+ TFLOP/s, copies \S+ GB/s, all-reduce \S+ GB/s", found.message)
    assert list(tmp_path.iterdir()) == []


def test_ranks_that_do_not_find_each_other_are_ended() -> None:
    [found] = check_all_reduce(training_of(None), CPU, seconds=0.2)
    assert found.status == "problem"
    assert "did not find each other in 0.2 seconds" in found.message
    assert "GLOO_SOCKET_IFNAME" in found.fix


@pytest.mark.real
@pytest.mark.xdist_group("real")
def test_ranks_that_cannot_talk_say_why() -> None:
    [found] = check_all_reduce(with_variables(GLOO_SOCKET_IFNAME="nothere0"), CPU)
    assert found.status == "problem"
    assert "nothere0" in found.message


def test_one_gpu_has_nobody_to_talk_to() -> None:
    assert [one.status for one in check_all_reduce(training_of(None), GPU)] == ["skipped"]


@pytest.mark.real
@pytest.mark.xdist_group("real")
def test_an_operator_that_can_be_used_is_ok(tmp_path: Path) -> None:
    [found] = check_operators(training_of(None), study(tmp_path), CPU)
    assert found.status == "ok", found.message
    assert found.message.startswith("deepspeed_shm_comm ")


@pytest.mark.real
@pytest.mark.xdist_group("real")
def test_a_compiler_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "empty"))
    [wrong] = check_operators(with_variables(CXX="/bin/false"), study(tmp_path), CPU)
    assert wrong.status == "problem"
    assert "ShareMemComm cannot be built" in wrong.message
    assert "CXX" in wrong.fix
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_is_diagnosed_and_nothing_is_left(tmp_path: Path, sqlite_url: str) -> None:
    (tmp_path / "dry.yaml").write_text(yaml.safe_dump(dry_run(tmp_path)))
    files = sorted(tmp_path.rglob("*"))
    found = api.diagnose(tmp_path / "dry.yaml", storage=sqlite_url, devices="cpu:1")
    assert sorted(tmp_path.rglob("*")) == files
    assert [one for one in found if one.status == "problem"] == []
    skipped = {one.name for one in found if one.status == "skipped"}
    assert {"python-packages", "operators", "all-reduce", "host-file"} <= skipped
    with pytest.raises(TypeError, match="not both"):
        api.diagnose("a.yaml", command=["deepspeed"])


def test_the_command_exits_with_1_if_there_is_a_problem(dsopt: Dsopt) -> None:
    (dsopt.cwd / "dry.yaml").write_text(yaml.safe_dump(dry_run(dsopt.cwd)))
    lines = dsopt("doctor", "dry.yaml", "--devices", "cpu:1").splitlines()
    assert lines[-1].startswith("0 problems and ")
    assert any(line.startswith("ok       gpus             runs use the CPU: 1 CPU slot") for line in lines)
    assert "\x1b" not in "".join(lines)
    wrong = dsopt("doctor", "dry.yaml", "--devices", "99", code=1)
    assert "problem  gpus             --devices: '99': no GPU 99 here." in wrong
    assert wrong.splitlines()[-1].startswith("1 problem and ")


def test_json_has_every_check_once_said(dsopt: Dsopt) -> None:
    (dsopt.cwd / "dry.yaml").write_text(yaml.safe_dump(dry_run(dsopt.cwd)))
    found = dsopt.json("doctor", "dry.yaml", "--devices", "cpu:1")
    assert {tuple(one) for one in found} == {("name", "status", "message", "fix")}
    names = {
        "command", "configuration", "arguments", "storage", "clock", "gpus", "node", "disk", "build-locks",
        "locked-memory", "open-files", "address-space", "host-file", "moved-files", "python-packages", "operators",
        "all-reduce",
    }  # fmt: skip
    assert {one["name"] for one in found} == names


def test_wrong_usage(dsopt: Dsopt) -> None:
    assert "Put -- in front of a command" in dsopt("doctor", "deepspeed", "--num_gpus", "2", "t.py", code=2)
    assert "'b.yaml' is one word too many" in dsopt("doctor", "a.yaml", "b.yaml", code=2)
    told = dsopt("doctor", "my-study", "--devices", "99", code=1)
    assert told.startswith("problem  command          my-study: no such file. Expected the study file")
    write_study(dsopt.cwd, name="a b")
    told = dsopt("doctor", "study.yaml", "--devices", "99", code=1)
    assert told.startswith("problem  command          study.yaml: name:")
