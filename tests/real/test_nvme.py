"""Measuring a folder with DeepSpeed's own I/O."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from dsopt.errors import DsoptError
from dsopt.launch.nvme import measure_nvme
from dsopt.launch.program import path_with
from tests.conftest import TINY_GPT, Dsopt

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("real")]


def has_libaio() -> bool:
    """Whether a program can be compiled with libaio's headers."""
    compiler = shutil.which("c++")
    command = [compiler, "-include", "libaio.h", "-fsyntax-only", "-x", "c++", os.devnull]
    return compiler is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0


needs_libaio = pytest.mark.skipif(not has_libaio(), reason="libaio's headers (libaio-dev) are not installed")


@needs_libaio
def test_a_folder_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("stays")
    measurement = measure_nvme(tmp_path)
    assert measurement.aio.keys() == {
        "block_size",
        "queue_depth",
        "intra_op_parallelism",
        "single_submit",
        "overlap_events",
    }
    chosen = [speed for speed in measurement.settings if speed.aio == measurement.aio]
    assert [speed.read_bytes_per_second for speed in chosen] == [measurement.read_bytes_per_second]
    assert [speed.write_bytes_per_second for speed in chosen] == [measurement.write_bytes_per_second]
    assert len(measurement.settings) == 10
    for speed in measurement.settings:
        # slower than a memory stick, or faster than memory, would be a transfer that did not happen
        assert 1e6 < speed.read_bytes_per_second < 1e12
        assert 1e6 < speed.write_bytes_per_second < 1e12
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@needs_libaio
@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs a file system in memory")
def test_a_file_system_in_memory_is_told_from_a_disk(tmp_path: Path) -> None:
    folder = Path("/dev/shm") / f"dsopt-test-{os.getpid()}"
    folder.mkdir()
    try:
        assert not measure_nvme(folder).direct
    except DsoptError as error:
        assert "O_DIRECT" in str(error)  # what kernels before 6.6 say of tmpfs
    finally:
        folder.rmdir()  # fails when something is in it


@needs_libaio
def test_nothing_is_left_when_it_is_killed(tmp_path: Path) -> None:
    """By a signal that no program can catch, while its scratch file is open."""
    with subprocess.Popen(
        [sys.executable, "-m", "dsopt.probe.aio", str(tmp_path)],
        env={**os.environ, "PATH": path_with(os.environ, Path(sys.executable))},  # with `ninja`
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        while not opens_a_file_in(tmp_path, process.pid):
            assert process.poll() is None, "it ended before its scratch file was seen"
            time.sleep(0.01)
        assert list(tmp_path.iterdir()) == []
        process.send_signal(signal.SIGKILL)
    assert list(tmp_path.iterdir()) == []


def test_an_op_that_cannot_be_built_is_told_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a PATH without a compiler, and with a fresh cache of extensions."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "cache"))
    with pytest.raises(DsoptError, match=r"nvme_path: cannot measure .*: .*op cannot be built.*libaio-dev"):
        measure_nvme(tmp_path)


def opens_a_file_in(folder: Path, pid: int) -> bool:
    try:
        return any(str(path.readlink()).startswith(str(folder)) for path in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


@needs_libaio
def test_offload_to_a_disk_is_a_dimension_with_a_measured_aio_section(dsopt: Dsopt) -> None:
    shutil.copy(TINY_GPT, dsopt.cwd / "train.py")
    ds_config = {
        "train_micro_batch_size_per_gpu": [2],
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "torch_adam": True}},
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": ["none", "nvme"], "nvme_path": "swap"}},
    }
    (dsopt.cwd / "ds.json").write_text(json.dumps(ds_config))
    (dsopt.cwd / "swap").mkdir()
    study = {
        "name": "disk",
        "command": "OMP_NUM_THREADS=1 torchrun --nproc_per_node 2 train.py --layers 1 --deepspeed_config ds.json",
        "measurement": {"max_steps": 15, "max_seconds": 4},
        "confirmation": {"finalists": 1, "rounds": 2},
    }
    (dsopt.cwd / "disk.yaml").write_text(yaml.safe_dump(study))
    dsopt("study", "create", "disk.yaml")
    dsopt("worker", "disk", "--devices", "cpu:2")
    run = dsopt.cwd / "autotuning_results" / "z3_oonvme_gas1_tmbspg2"
    config = json.loads((run / "ds_config.json").read_text())
    assert config["aio"]["block_size"] >= 4096
    assert Path(config["zero_optimization"]["offload_optimizer"]["nvme_path"]).parent == dsopt.cwd / "swap"
    assert json.loads((run / "metrics.json").read_text())["throughput"] > 0
    assert list((dsopt.cwd / "swap").iterdir()) == []
