"""Several nodes on this machine, by real ssh, Slurm and Ray: how full they are, and what it takes to start a run.

Needs root and what `make test-cluster` installs. Ranks pretend to train, so that they need no processor of their own.

    python -m benchmarks.clusters packed   # 2 nodes of 16 devices, as in the tutorial of DeepSpeed's autotuner
    python -m benchmarks.clusters starts [ROUNDS]
"""

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from dsopt.launch.devices import DevicePool, free_ports
from dsopt.launch.launch import Launch
from dsopt.launch.placement import Placement
from dsopt.launch.placers.ray import Ray
from dsopt.launch.placers.slurm import Slurm
from dsopt.launch.placers.ssh import HostFile
from dsopt.launch.process import Process
from dsopt.launch.spread import Spread
from dsopt.protocol.run_dir import RunDir
from dsopt.store.studies import Store
from dsopt.study.command import LaunchCommand
from dsopt.study.wanted import Wanted
from tests.cluster.raylets import raylets
from tests.cluster.slurm import slurm
from tests.cluster.sshd import Hosts, hosts

SCRIPT: Final = Path(__file__).parent.parent / "tests" / "scripts" / "pretends.py"
_SLOTS, _RANKS, _RUNS = 16, 4, 40


def packed(folder: Path) -> None:
    """A study of runs of four devices on one host file of 2 x 16, with one worker."""
    (folder / "ssh").mkdir()
    with hosts(folder / "ssh", "node1", "node2") as found:
        (folder / "hosts").write_text(found.host_file(_SLOTS))
        write_study(folder)
        environment = environment_of(found, folder)
        for words in (["study", "create", "study.yaml"], ["worker", "packed", "--hostfile", "hosts"]):
            command = [sys.executable, "-m", "dsopt", *words]
            subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        store = Store.open(environment["DSOPT_STORAGE"])
        runs = [dict(run) for run in store.runs(store.get("packed"))]
        store.close()
    searched = [run for run in runs if run["stage"] != "reference"]
    # between these moments a run always waits for devices
    begin, end = min(run["started_at"] for run in searched), max(run["started_at"] for run in searched)
    held = sum(min(run["finished_at"], end) - run["started_at"] for run in searched)
    side_by_side = 2 * _SLOTS // _RANKS
    lasted = statistics.median(run["finished_at"] - run["started_at"] for run in searched)
    print(
        f"{len(searched)} runs of {_RANKS} devices, {lasted:.0f} s each, on 2 nodes of {_SLOTS}: while one waits "
        f"({end - begin:.0f} s), {held / side_by_side / (end - begin):.1%} of the devices are in use"
    )
    print(f"states: {sorted({run['state'] for run in runs})}")


def write_study(folder: Path) -> None:
    """As many candidates as there are runs, so that the search never has to wait for what it has not seen."""
    zero = {"stage": [1], "reduce_bucket_size": [1000 * (1 + number) for number in range(_RUNS)]}
    study = {
        "name": "packed",
        "command": f"deepspeed --num_nodes 1 --num_gpus {_RANKS} {SCRIPT} --deepspeed_config ds.json",
        "ds_config": {"train_micro_batch_size_per_gpu": [4], "zero_optimization": zero},
        "autotuning": {"tuner_num_trials": _RUNS, "tuner_early_stopping": 1000, "tuner_type": "random"},
        "measurement": {"max_steps": 30},
        "confirmation": {"finalists": 1, "rounds": 1},
    }
    (folder / "ds.json").write_text("{}")
    (folder / "study.yaml").write_text(yaml.safe_dump(study))


def environment_of(found: Hosts, folder: Path) -> dict[str, str]:
    """The variables of a worker that reaches the nodes."""
    own = {"DSOPT_STORAGE": f"sqlite:///{folder}/dsopt.db", "DSOPT_DEVICE_LOCKS": str(folder / "locks")}
    return {**os.environ, **found.environment, **own, "XDG_CONFIG_HOME": str(folder / "config")}


def starts(folder: Path, rounds: int) -> None:
    """Seconds from asking for a run of two ranks until both run the script."""
    (folder / "ssh").mkdir()
    with hosts(folder / "ssh", "node1", "node2") as found:
        os.environ |= found.environment
        (folder / "hosts").write_text(found.host_file(1))
        placement = HostFile(folder / "hosts").place({"node1": (0,), "node2": (0,)})
        ways: dict[str, Callable[[], float]] = {
            "this node": lambda: started(folder, None),
            "two nodes by ssh": lambda: started(folder, placement),
        }
        tell(ways, rounds)
    (folder / "slurm").mkdir()
    with slurm(folder / "slurm", "node1", "node2") as cluster:
        script = folder / "job.sh"
        command = f"exec {sys.executable} -m benchmarks.clusters starts-in-a-job {rounds}"
        script.write_text(
            f"#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=1 --output=out\ncd {Path.cwd()}\n{command}\n"
        )
        job = cluster.submit(script)
        state = cluster.wait(job, "COMPLETED", "FAILED", seconds=600)
        print((folder / "out").read_text(), end="" if state == "COMPLETED" else f"{state}\n")
    with raylets("node1", "node2") as cluster:
        words = ("-m", "benchmarks.clusters", "starts-on-a-head", str(rounds))
        head = cluster.nodes["head"]
        print(head.run(sys.executable, *words, environment=cluster.environment, seconds=600), end="")


def starts_in_a_job(folder: Path, rounds: int) -> None:
    """The same where a worker runs in an allocation."""
    placement = Slurm().place({"node1": (0,), "node2": (0,)})
    tell({"two nodes by Slurm": lambda: started(folder, placement)}, rounds)


def starts_on_a_head(folder: Path, rounds: int) -> None:
    """The same where a worker asks Ray for GPUs, which takes a part of the time."""
    placer = Ray("auto")
    wanted = Wanted(hosts=placer.hosts(), nodes=2, devices=1)
    shares: list[float] = []

    def measure() -> float:
        is_granted, began = threading.Event(), time.perf_counter()
        while (placement := placer.acquire(wanted, (), is_granted.set)) is None:
            is_granted.wait()
            is_granted.clear()
        shares.append(time.perf_counter() - began)
        try:
            return shares[-1] + started(folder, placement)
        finally:
            placer.release(placement)

    tell({"two nodes by Ray": measure}, rounds)
    placer.close()
    print(f"of this, until Ray has placed it and holds each bundle: {statistics.median(shares[1:]):.2f} s")


def tell(ways: dict[str, Callable[[], float]], rounds: int) -> None:
    """Measures in turn and prints medians; the first round warms what can be warm."""
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way, measure in ways.items():
            seconds = measure()
            taken[way] += [seconds] if number else []
    for way, ones in taken.items():
        print(
            f"start on {way}: median of {rounds} {statistics.median(ones):.2f} s ({min(ones):.2f} to {max(ones):.2f})"
        )


def started(folder: Path, placement: Placement | None) -> float:
    """How long a start takes, in seconds."""
    run_dir = RunDir.create(folder, "run")
    run_dir.ds_config.write_text('{"train_micro_batch_size_per_gpu": 4}')
    ranks = 2 if placement is None else 1
    typed = f"PRETENDED_SECONDS=0 deepspeed --num_gpus {ranks} {SCRIPT} --deepspeed_config {run_dir.ds_config}"
    launch = Launch(
        command=LaunchCommand.parse(typed, "benchmark"),
        cwd=folder,
        run_dir=run_dir,
        devices=DevicePool(kind="cpu", indices=(0, 1)),
        port=next(free_ports()),
        memory_limit_bytes=None,
        placement=placement,
        start="direct",
    )
    began = time.perf_counter()
    running: Any = Process(launch) if placement is None else Spread(launch)
    try:
        while not run_dir.stdout.exists() or run_dir.stdout.read_text().count("rank ") < 2:
            if running.exit_code() is not None:
                raise SystemExit(f"the run ended: {run_dir.stderr.read_text()}")
            time.sleep(0.005)
        return time.perf_counter() - began
    finally:
        running.kill()


def main(words: Sequence[str]) -> None:
    rounds = int(words[1]) if len(words) > 1 else 7
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        match words[:1]:
            case ["packed"]:
                packed(folder)
            case ["starts"]:
                starts(folder, rounds)
            case ["starts-in-a-job"]:
                starts_in_a_job(folder, rounds)
            case ["starts-on-a-head"]:
                starts_on_a_head(folder, rounds)
            case _:
                raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
