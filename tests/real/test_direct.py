"""Ranks that are started directly are started as the launcher starts them."""

import json
import sys
import time
from pathlib import Path

import pytest

from dsopt.launch.devices import DevicePool, free_ports
from dsopt.launch.observed import ObservedStarts
from dsopt.launch.process import Process
from dsopt.protocol.run_dir import RunDir
from dsopt.study.command import LaunchCommand
from tests.conftest import SCRIPTS
from tests.runs import launch

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("real")]

# of the shells and launchers in between, and the launcher's own imports
_NOT_COMPARED = {"_", "SHLVL", "PWD", "OLDPWD"}


def told(tmp_path: Path, typed: str, *, is_direct: bool, port: int) -> list[dict]:
    """What each of two ranks says it was started with."""
    run_dir = RunDir.create(tmp_path, "run")
    process = Process(
        launch(
            typed,
            cwd=tmp_path,
            run_dir=run_dir,
            devices=DevicePool(kind="cpu", indices=(2, 3)),
            port=port,
            start="direct" if is_direct else "launcher",
        )
    )
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
    process = Process(
        launch(
            f"deepspeed {options} {SCRIPTS / 'tells.py'}",
            cwd=tmp_path,
            run_dir=RunDir.create(tmp_path, "run"),
            port=next(free_ports()),
            start="direct",
        )
    )
    assert len(process._started) == 1
    process.kill()


def waiting(tmp_path: Path, typed: str, observed: ObservedStarts, port: int, *, by_launcher: bool) -> list[dict]:
    """What each of two ranks says it was started with, seen while they wait."""
    run_dir = RunDir.create(tmp_path, "run")
    run_dir.write_json(run_dir.ds_config, {})
    command = LaunchCommand.parse(typed, "test").with_config(str(run_dir.ds_config))
    limit = None if by_launcher else 2**40
    process = Process(
        launch(str(command), cwd=tmp_path, run_dir=run_dir, port=port, memory_limit_bytes=limit, start="direct"),
        observed,
    )
    assert len(process._started) == (1 if by_launcher else 2)
    answers = [run_dir.path / f"told-{rank}.json" for rank in (0, 1)]
    while not all(answer.exists() for answer in answers):
        assert process.exit_code() is None, run_dir.stderr.read_text()
        time.sleep(0.1)
    process.observe()
    process.kill()
    own = {str(run_dir.path): "RUN", f'"{port}"': '"PORT"'}
    texts = [answer.read_text() for answer in answers]
    for text, stands_for in own.items():
        texts = [told.replace(text, stands_for) for told in texts]
    return [json.loads(text) for text in texts]


@pytest.mark.parametrize(
    "options",
    [
        "torchrun --nproc-per-node=2 --max_restarts 1 {script}",
        "{python} -m torch.distributed.run --nproc_per_node 2 --standalone {script}",
        "accelerate launch --use_deepspeed --num_processes 2 --deepspeed_config_file ds.json -m tells",
    ],
)
def test_other_launchers_are_followed_once_they_were_seen(tmp_path: Path, options: str, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SCRIPTS), prepend=":")
    observed, ports = ObservedStarts(), free_ports()
    typed = f"A='b c' {options.format(script=SCRIPTS / 'tells.py', python=sys.executable)} --wait --flag= -v"
    launched = waiting(tmp_path, typed, observed, next(ports), by_launcher=True)
    directly = waiting(tmp_path, typed, observed, next(ports), by_launcher=False)
    for by_launcher, started in zip(launched, directly, strict=True):
        before, now = by_launcher.pop("environment"), started.pop("environment")
        assert now.pop("DSOPT_MEMORY_LIMIT_BYTES") == str(2**40)  # the run's own, not the one that was seen
        different = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
        assert different == {"TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE"}
        assert now["TORCHELASTIC_USE_AGENT_STORE"] == "False"
        assert now["TORCHELASTIC_ERROR_FILE"] == f"RUN/error-rank{now['RANK']}.json"
        for name in ("argv", "orig_argv", "python", "cwd", "path", "flags", "main"):
            assert started[name] == by_launcher[name]
