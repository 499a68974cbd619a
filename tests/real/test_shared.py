"""Ranks that stay when their run has been measured and take over the next one: what they measure, and how they end."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import psutil
import pytest

from dsopt.experiment.devices import DevicePool, free_ports
from dsopt.experiment.fallback import run_with_fallback
from dsopt.experiment.launch import Launch
from dsopt.experiment.leftovers import remove_shared_memory
from dsopt.experiment.outcome import Infeasible, Measured, Outcome
from dsopt.experiment.processes import processes_of
from dsopt.experiment.rundir import RunDir
from dsopt.experiment.shared import SharedRanks, SharedSetting
from dsopt.experiment.warm import WarmStarter
from dsopt.study.command import LaunchCommand
from tests.conftest import TINY_GPT
from tests.real.test_experiment import CONFIG
from tests.real.test_warm import RULES, ends, knows, launch_of

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("real")]

SETTING: SharedSetting = (0, ())

Lane: TypeAlias = tuple[WarmStarter, SharedRanks, list[str]]

# A worker of its own: it measures a run, says which processes wait for the next one, and waits.
WORKER = """
import json, sys, time
from pathlib import Path
from dsopt.experiment.guard import Guard
from dsopt.experiment.rundir import RunDir
from dsopt.experiment.shared import SharedRanks
from tests.real.test_shared import behaves, measure, pids
from tests.real.test_warm import knows
folder = Path(sys.argv[1])
warm, shared = knows("deepspeed", folder, print), SharedRanks(print)
launch = behaves(folder, "trains", warm, shared)
guard = Guard()
guard.watch(launch.run_dir.path, launch.port)
measure(launch)
servers = [server._process.pid for server in warm._servers]
RunDir(folder).write_json(folder / "told.json", servers + pids(shared))
time.sleep(600)
"""


def tiny_gpt(
    tmp_path: Path, micro_batch: int, warm: WarmStarter, shared: SharedRanks | None, *, stage: int = 0
) -> Launch:
    """A launch of the tiny GPT on two ranks with this micro-batch size."""
    run_dir = RunDir.create(tmp_path, f"mb{micro_batch}")
    config = {**CONFIG, "train_micro_batch_size_per_gpu": micro_batch, "zero_optimization": {"stage": stage}}
    run_dir.write_json(run_dir.ds_config, config)
    typed = f"OMP_NUM_THREADS=1 deepspeed --num_gpus 2 {TINY_GPT} --layers 1 --deepspeed_config {run_dir.ds_config}"
    return Launch(
        command=LaunchCommand.parse(typed, "test"), cwd=tmp_path, run_dir=run_dir,
        devices=DevicePool(kind="cpu", indices=(0, 1)), port=next(free_ports()), memory_limit_bytes=None,
        is_direct=True, warm=warm, shared=shared, setting=(stage, ()),
    )  # fmt: skip


def behaves(tmp_path: Path, how: str, warm: WarmStarter, shared: SharedRanks) -> Launch:
    """A launch of our script that goes wrong on request, under a limit of memory."""
    launch = launch_of(tmp_path, f"behaves.py {how}", warm, memory_limit_bytes=4 * 2**30)
    return replace(launch, shared=shared, setting=SETTING)


def measure(launch: Launch) -> Outcome:
    return run_with_fallback(launch, RULES, lambda: False, lambda progress: None)


def pids(shared: SharedRanks) -> list[int]:
    """The ranks that are parked."""
    return [rank.pid for rank in shared._waiting.ranks] if shared._waiting else []


@pytest.fixture
def lane(tmp_path: Path) -> Iterator[Lane]:
    """What starts the ranks of a lane, and all that it has said."""
    why: list[str] = []
    with closing(knows("deepspeed", tmp_path, why.append)) as warm, closing(SharedRanks(why.append)) as shared:
        yield warm, shared, why


@pytest.mark.parametrize("stage", [0, 3])
def test_several_micro_batch_sizes_are_measured_in_the_same_processes(tmp_path: Path, lane: Lane, stage: int) -> None:
    warm, shared, why = lane
    ranks, outcomes, launches = [], {}, []
    for micro_batch in (16, 2, 8):
        launch = tiny_gpt(tmp_path, micro_batch, warm, shared, stage=stage)
        outcome = measure(launch)
        assert isinstance(outcome, Measured), outcome
        assert (outcome.engine.micro_batch, outcome.engine.zero_stage, outcome.rows) == (
            micro_batch,
            stage,
            micro_batch,
        )
        assert shared.has_lent(launch.run_dir) is bool(launches)
        assert "Traceback" not in launch.run_dir.stderr.read_text()
        assert sorted(process.pid for process in processes_of(launch.run_dir.path)) == sorted(pids(shared)), why
        assert not launches or processes_of(launches[-1].run_dir.path) == []
        assert remove_shared_memory(launch.port) == []
        ranks.append(pids(shared))
        outcomes[micro_batch] = outcome
        launches.append(launch)
    assert ranks[0] == ranks[1] == ranks[2]
    assert len(ranks[0]) == 2
    assert why == []
    fresh = measure(tiny_gpt(tmp_path, 2, warm, None, stage=stage))
    assert isinstance(fresh, Measured)
    # the C library's heap keeps a part of what the larger run had, so peaks are too high, never too low
    for peak, alone in (
        (outcomes[2].peak_memory_bytes, fresh.peak_memory_bytes),
        (outcomes[2].peak_allocated_bytes, fresh.peak_allocated_bytes),
    ):
        assert 0.9 < peak / alone < 1.3
    shared.close()
    assert not any(psutil.pid_exists(pid) for pid in ranks[0])


def test_parked_ranks_end_when_another_setting_or_none_is_run(tmp_path: Path, lane: Lane) -> None:
    warm, shared, why = lane
    for setting in ((1, ()), None):
        assert isinstance(measure(behaves(tmp_path, "trains", warm, shared)), Measured)
        parked = pids(shared)
        assert len(parked) == 2, why
        launch = replace(behaves(tmp_path, "trains", warm, shared), setting=setting)
        assert isinstance(measure(launch), Measured)
        assert not shared.has_lent(launch.run_dir)
        assert not any(psutil.pid_exists(pid) for pid in parked)
    assert pids(shared) == []
    assert why == []


@pytest.mark.parametrize(
    ("how", "sentence", "is_lent"),
    [
        ("makes-its-group", "a run failed that could be measured with ranks of its own; its logs: ", True),
        ("keeps-its-engine", "DeepSpeed's engine is kept when its script is left", False),
    ],
)
def test_a_script_that_does_not_bear_it_loses_no_run(
    tmp_path: Path, lane: Lane, how: str, sentence: str, is_lent: bool
) -> None:
    warm, shared, why = lane
    for number in range(3):
        launch = behaves(tmp_path, how, warm, shared)
        outcome = measure(launch)
        assert isinstance(outcome, Measured), outcome
        assert shared.has_lent(launch.run_dir) is (is_lent and number == 1)
        assert len(outcome.step_seconds) >= outcome.measurement.measured_steps
        assert len(pids(shared)) == (2 if is_lent and number == 0 else 0)
    assert len(why) == 1
    assert sentence in why[0]
    assert warm.has_forked(launch.run_dir)


def test_running_out_of_memory_is_believed_of_ranks_of_its_own_alone(tmp_path: Path, lane: Lane) -> None:
    warm, shared, why = lane
    assert isinstance(measure(behaves(tmp_path, "trains", warm, shared)), Measured)
    parked = pids(shared)
    launch = behaves(tmp_path, "hogs", warm, shared)
    outcome = measure(launch)
    assert isinstance(outcome, Infeasible), outcome
    assert outcome.reason == "oom"
    assert shared.has_lent(launch.run_dir)
    assert '"event": "oom"' in (launch.run_dir.path / "shared" / "events-rank0.jsonl").read_text()
    assert not any(psutil.pid_exists(pid) for pid in parked)
    assert processes_of(launch.run_dir.path) == []
    assert why == []


def test_a_killed_worker_leaves_no_parked_ranks(tmp_path: Path) -> None:
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path)])
    assert ends((tmp_path / "told.json").exists, 120)
    told = json.loads((tmp_path / "told.json").read_text())
    assert len(told) == 4
    assert all(psutil.pid_exists(pid) for pid in told)
    worker.kill()
    worker.wait()
    assert ends(lambda: not any(psutil.pid_exists(pid) for pid in told)), told
