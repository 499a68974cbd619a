"""A host whose memory was full: how dsopt knows it, and what comes of the run."""

from pathlib import Path

import pytest

from dsopt.experiment import host_memory
from dsopt.experiment.failures import problem
from dsopt.experiment.host_memory import count_kills
from dsopt.experiment.judge import Moment
from dsopt.experiment.outcome import Failed, Infeasible
from dsopt.experiment.seen import Seen
from dsopt.launch.devices import DevicePool
from dsopt.protocol.events import Error, Event, Oom
from tests.runs import engine, launch, outcome_of, rules, steps

OWN_FAULT = Error(rank=0, type="ValueError", message="no such file", origin="train", time=1.0)
ERROR = Error(rank=1, type="DistBackendError", message="the peer is gone", origin="torch.distributed", time=1.0)


@pytest.mark.parametrize(
    ("groups", "files", "count"),
    [
        ("0::/job/step", {"job/step/memory.events": "oom 3\noom_kill 2\noom_group_kill 0\n"}, 2),
        ("0::/job/step", {"job/memory.events": "oom_kill 4\n", "job/step/memory.events": "oom_kill 0\n"}, 0),
        ("0::/job/step", {"job/memory.events": "oom_kill 4\n"}, 4),
        ("4:memory:/job", {"memory/job/memory.oom_control": "under_oom 0\noom_kill 5\n"}, 5),
        ("0::/", {}, 7),
        ("0::/", {"memory.events": "low 0\n"}, 7),
    ],
)
def test_kills_are_counted_by_the_group_else_by_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str, files: dict[str, str], count: int
) -> None:
    listing, root = tmp_path / "cgroup", tmp_path / "fs"
    listing.write_text(groups + "\n")
    (tmp_path / "vmstat").write_text("nr_free_pages 9\noom_kill 7\n")
    monkeypatch.setattr(host_memory, "_WHOLE_MACHINE", tmp_path / "vmstat")
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    assert count_kills(listing, root) == count


@pytest.mark.parametrize(
    ("said", "kind", "limit", "reason"),
    [
        ("[Errno 12] Cannot allocate memory", "gpu", None, "host_oom"),
        ("[Errno 12] Cannot allocate memory", "gpu", 2**30, "host_oom"),
        ("CUDA out of memory. Tried to allocate 2.00 GiB.", "gpu", None, "oom"),
        ("std::bad_alloc: out_of_memory: CUDA error: cudaErrorMemoryAllocation", "gpu", None, "oom"),
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes", "gpu", None, "host_oom"),
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes", "cpu", None, "oom"),
    ],
)
def test_a_host_without_memory_says_nothing_of_a_device(said: str, kind: str, limit: int | None, reason: str) -> None:
    """It was charged as a device's, without a proof: whoever fills the host for a moment decided on the result."""
    seen = Seen()
    for event in (engine(), Oom(rank=0, message=said)):
        seen.add(event)
    devices = DevicePool(kind=kind, indices=(0, 1))
    outcome = problem(seen, "", rules(), launch(devices=devices, memory_limit_bytes=limit))
    assert isinstance(outcome, Infeasible) and outcome.reason == reason
    assert outcome.message.startswith("the host's memory was full: rank 0: ") == (reason == "host_oom")


@pytest.mark.parametrize(
    ("events", "moment", "reason"),
    [
        ([engine()], Moment(seconds=1.0, exit_code=247, host_kills=1), "host_oom"),
        ([engine(), *steps(3), ERROR], Moment(seconds=1.0, host_kills=1), "host_oom"),
        ([engine(), OWN_FAULT], Moment(seconds=1.0, host_kills=1), "crash"),
        ([engine(), ERROR], Moment(seconds=1.0), "crash"),
        ([engine(), Oom(rank=0, message="no room"), ERROR], Moment(seconds=1.0, host_kills=1), "oom"),
        ([engine()], Moment(seconds=1.0, exit_code=-9), "crash"),
    ],
)
def test_a_run_that_dies_meanwhile_ran_out_of_the_hosts_memory(
    events: list[Event], moment: Moment, reason: str
) -> None:
    outcome = outcome_of(*events, moment=moment)
    assert isinstance(outcome, Failed | Infeasible)
    assert outcome.reason == reason


def test_what_others_lose_ends_no_run() -> None:
    assert outcome_of(engine(), *steps(3), moment=Moment(seconds=1.0, host_kills=1)) is None
