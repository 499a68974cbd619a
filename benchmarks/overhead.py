"""Wall time of one experiment against the bare launcher running the same number of steps.

Runs `studies/tiny-gpt/train.py` for STEPS steps with the `deepspeed` launcher alone, and as dsopt experiments that
measure the same steps, with the launcher and with ranks started directly, in turn. Prints the ratios of the medians.

    python -m benchmarks.overhead [ROUNDS [STEPS]]
"""

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from dsopt.experiment.devices import DevicePool, free_ports
from dsopt.experiment.launch import Launch, find_launcher
from dsopt.experiment.leftovers import remove_shared_memory
from dsopt.experiment.outcome import Measured
from dsopt.experiment.run import RunRules, run_experiment
from dsopt.experiment.rundir import RunDir
from dsopt.study.command import LaunchCommand
from dsopt.study.spec import MeasurementBudget

TINY_GPT = Path(__file__).parent.parent / "studies" / "tiny-gpt"


def bare(port: int, steps: int) -> float:
    """Seconds the launcher alone takes for the steps."""
    launcher = find_launcher("deepspeed", Path.cwd())
    command = [launcher, "--num_gpus", "2", "--master_port", str(port), TINY_GPT / "train.py", "--steps", str(steps)]
    environment = {"OMP_NUM_THREADS": "1", "PATH": f"{launcher.parent}:/usr/bin:/bin", "HOME": str(Path.home())}
    started = time.perf_counter()
    subprocess.run(
        [*command, "--deepspeed_config", TINY_GPT / "ds_config.json"], env=environment, check=True, capture_output=True
    )
    seconds = time.perf_counter() - started
    remove_shared_memory(port)
    return seconds


def experiment(port: int, folder: Path, steps: int, *, is_direct: bool) -> float:
    """Seconds one dsopt experiment takes to measure the same steps."""
    run_dir = RunDir.create(folder, "experiment")
    run_dir.ds_config.write_text((TINY_GPT / "ds_config.json").read_text())
    typed = f"OMP_NUM_THREADS=1 deepspeed --num_gpus 2 train.py --deepspeed_config {run_dir.ds_config}"
    launch = Launch(
        command=LaunchCommand.parse(typed, "benchmark"),
        cwd=TINY_GPT,
        run_dir=run_dir,
        devices=DevicePool(kind="cpu", indices=(0, 1)),
        port=port,
        memory_limit_bytes=None,
        is_direct=is_direct,
    )
    rules = RunRules(
        measurement=MeasurementBudget(),
        window=(3, steps - 1),
        floor=(3, 5),
        timeout_seconds=300,
        expected=None,
        needs_flops=False,
    )
    started = time.perf_counter()
    outcome = run_experiment(launch, rules, threading.Event().is_set, lambda _progress: None)
    seconds = time.perf_counter() - started
    assert isinstance(outcome, Measured), outcome
    assert len(outcome.step_seconds) >= steps
    return seconds


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    ports = free_ports()
    seconds: dict[str, list[float]] = {"launcher alone": [], "experiment, launcher": [], "experiment, direct": []}
    bare(next(ports), steps)  # warms the file cache
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            seconds["launcher alone"].append(bare(next(ports), steps))
            for name, is_direct in (("experiment, launcher", False), ("experiment, direct", True)):
                seconds[name].append(experiment(next(ports), Path(folder), steps, is_direct=is_direct))
    alone = seconds["launcher alone"]
    for name, measured in seconds.items():
        ratios = [m / a for m, a in zip(measured, alone, strict=True)]
        median = statistics.median(measured)
        print(
            f"{name}: {steps} steps, median of {rounds} {median:.2f} s, {median / statistics.median(alone):.3f} of the "
            f"launcher alone, round by round {min(ratios):.3f} to {max(ratios):.3f}"
        )


if __name__ == "__main__":
    main()
