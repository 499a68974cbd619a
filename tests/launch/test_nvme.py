"""What measuring a folder for offload says of folders and programs that cannot do it."""

import errno
import time
from pathlib import Path

import pytest

from dsopt.errors import DsoptError, Interrupted
from dsopt.launch import nvme
from dsopt.launch.nvme import AioSpeed, NvmeMeasurement, measure_nvme
from dsopt.launch.passing import PassingError, refusal
from dsopt.launch.processes import processes_of

AIO = {"block_size": 1048576, "queue_depth": 32, "intra_op_parallelism": 2, "single_submit": False}
ANSWER = """
{"aio": %s, "read_bytes_per_second": 2e9, "write_bytes_per_second": 1e9, "direct": true,
 "settings": [{"aio": %s, "read_bytes_per_second": 2e9, "write_bytes_per_second": 1e9, "read_seconds": [0.1]}]}
"""


def program(tmp_path: Path, script: str) -> str:
    """A program that stands in for Python and does what the shell script says."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_what_the_program_prints_is_the_measurement(tmp_path: Path) -> None:
    section = str(AIO).replace("'", '"').replace("False", "false")
    python = program(tmp_path, f"cat <<END\n{ANSWER % (section, section)}\nEND")
    speed = AioSpeed(aio=AIO, read_bytes_per_second=2e9, write_bytes_per_second=1e9)
    assert measure_nvme(tmp_path, python) == NvmeMeasurement(
        aio=AIO, read_bytes_per_second=2e9, write_bytes_per_second=1e9, direct=True, settings=(speed,)
    )


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DsoptError, match=r"nvme_path: '.*missing' is not a folder. Create it"):
        measure_nvme(tmp_path / "missing")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DsoptError, match=r"'.*file' is not a folder"):
        measure_nvme(tmp_path / "file")


def test_a_folder_that_nobody_can_write() -> None:
    with pytest.raises(DsoptError, match=r"nvme_path: cannot write to '/proc' \(.*\)\. Change its permissions"):
        measure_nvme(Path("/proc"))


def test_a_disk_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvme, "_MEGABYTES", 2**40)
    with pytest.raises(PassingError, match=r"MiB of free space. Measuring needs 1099511627776 MiB"):
        measure_nvme(tmp_path)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo noise >&2; echo 'it cannot be built' >&2; exit 1", "cannot measure .*: it cannot be built$"),
        ("exit 3", "cannot measure .*: it ended with exit code 3 and wrote nothing$"),
        ("kill -9 $$", "cannot measure .*: it ended with exit code -9 and wrote nothing$"),
        ("echo hello", "did not print a measurement"),
        ("echo '{\"aio\": {}}'", "did not print a measurement"),
    ],
)
def test_a_program_that_fails_is_quoted(tmp_path: Path, script: str, message: str) -> None:
    with pytest.raises(DsoptError, match=message) as raised:
        measure_nvme(tmp_path, program(tmp_path, script))
    assert isinstance(raised.value, PassingError) == ("kill" in script)  # nothing else may go well at another time


def test_a_python_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DsoptError, match=r"cannot start .* to measure the disk: No such file"):
        measure_nvme(tmp_path, str(tmp_path / "python"))


def test_a_program_that_hangs_is_ended_with_what_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvme, "_TIMEOUT_SECONDS", 1.0)
    python = program(tmp_path, f"sleep 600 & echo $! > {tmp_path / 'child'}; wait")
    with pytest.raises(DsoptError, match=r"took more than 1 s"):
        measure_nvme(tmp_path, python)
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 10
    while Path(f"/proc/{child}").exists() and "\nState:\tZ" not in Path(f"/proc/{child}/status").read_text():
        assert time.monotonic() < deadline, "the program's child still runs"
        time.sleep(0.05)


def test_measuring_ends_when_it_is_asked_to_and_is_a_part_of_the_run(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    python = program(tmp_path, f"sleep 600 & echo $! > {tmp_path / 'child'}; wait")

    begun: list[bool] = []  # somebody who asks a worker to stop does not take it back

    def has_begun() -> bool:
        if processes_of(run_dir) and (tmp_path / "child").exists():
            begun.append(True)
        return bool(begun)

    with pytest.raises(Interrupted):
        measure_nvme(tmp_path, python, run_dir=run_dir, should_end=has_begun)
    assert not processes_of(run_dir)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EAGAIN])
def test_what_the_system_refuses_now_may_go_well_later(number: int) -> None:
    assert isinstance(refusal("no", OSError(number, "no")), PassingError)
    assert not isinstance(refusal("no", OSError(errno.ENOTDIR, "no")), PassingError)
    assert not isinstance(refusal("no", ValueError("no")), PassingError)
