"""Ranks that are started directly are started as the launcher starts them."""

import json
import time
from pathlib import Path

import pytest

from dsopt.experiment.devices import DevicePool, free_ports
from dsopt.experiment.launch import Launch, Process
from dsopt.experiment.rundir import RunDir
from dsopt.study.command import LaunchCommand
from tests.conftest import SCRIPTS

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("real")]

# of the shells and launchers in between, and the launcher's own imports
_NOT_COMPARED = {"_", "SHLVL", "PWD", "OLDPWD"}


def told(tmp_path: Path, typed: str, *, is_direct: bool, port: int) -> list[dict]:
    """What each of two ranks says it was started with."""
    run_dir = RunDir.create(tmp_path, "run")
    launch = Launch(
        command=LaunchCommand.parse(typed, "test"), cwd=tmp_path, run_dir=run_dir,
        devices=DevicePool(kind="cpu", indices=(2, 3)), port=port, memory_limit_bytes=None, is_direct=is_direct,
    )  # fmt: skip
    process = Process(launch)
    while (code := process.exit_code()) is None:
        time.sleep(0.1)
    process.kill()
    assert code == 0, run_dir.stderr.read_text()
    ranks = [json.loads((run_dir.path / f"told-{rank}.json").read_text()) for rank in (0, 1)]
    for path in run_dir.path.iterdir():
        path.unlink()
    run_dir.path.rmdir()  # so that the next one has the same name
    return ranks


@pytest.mark.parametrize(
    "options", ["--num_gpus 2", "--num_gpus=2 --no_local_rank --master_addr 127.0.0.1 --log_level error"]
)
def test_arguments_and_environment_are_those_of_the_launcher(tmp_path: Path, options: str) -> None:
    typed = f"A='b c' deepspeed {options} {SCRIPTS / 'tells.py'} --deepspeed_config 'x y.json' --flag= -v"
    port = next(free_ports())
    by_launcher = told(tmp_path, typed, is_direct=False, port=port)
    directly = told(tmp_path, typed, is_direct=True, port=port)
    for launched, started in zip(by_launcher, directly, strict=True):
        assert started["argv"] == launched["argv"]
        assert started["python"] == launched["python"]
        assert started["cwd"] == launched["cwd"]
        names = (launched["environment"].keys() | started["environment"].keys()) - _NOT_COMPARED
        different = {
            name: (launched["environment"].get(name), started["environment"].get(name))
            for name in names
            if launched["environment"].get(name) != started["environment"].get(name)
        }
        assert different == {}


@pytest.mark.parametrize("options", ["--num_gpus 2 --bind_cores_to_rank", "--num_gpus 2 --enable_each_rank_log logs"])
def test_what_only_the_launcher_can_do_is_left_to_it(tmp_path: Path, options: str) -> None:
    launch = Launch(
        command=LaunchCommand.parse(f"deepspeed {options} {SCRIPTS / 'tells.py'}", "test"), cwd=tmp_path,
        run_dir=RunDir.create(tmp_path, "run"), devices=DevicePool(kind="cpu", indices=(0, 1)), port=next(free_ports()),
        memory_limit_bytes=None, is_direct=True,
    )  # fmt: skip
    process = Process(launch)
    assert len(process._started) == 1
    process.kill()
