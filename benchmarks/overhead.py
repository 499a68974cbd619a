"""Wall time of one experiment against the bare launcher running the same number of steps.

Runs `studies/tiny-gpt/train.py` for STEPS steps with the `deepspeed` launcher alone, and as one dsopt experiment that
measures the same steps, in turn, and prints the ratio of the medians.

    python -m benchmarks.overhead [PAIRS]
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

STEPS = 60
TINY_GPT = Path(__file__).parent.parent / "studies" / "tiny-gpt"


def bare(port: int) -> float:
    """Seconds the launcher alone takes for the steps."""
    launcher = find_launcher("deepspeed")
    command = [launcher, "--num_gpus", "2", "--master_port", str(port), TINY_GPT / "train.py", "--steps", str(STEPS)]
    environment = {"OMP_NUM_THREADS": "1", "PATH": f"{launcher.parent}:/usr/bin:/bin", "HOME": str(Path.home())}
    started = time.perf_counter()
    subprocess.run(
        [*command, "--deepspeed_config", TINY_GPT / "ds_config.json"], env=environment, check=True, capture_output=True
    )
    seconds = time.perf_counter() - started
    remove_shared_memory(port)
    return seconds


def experiment(port: int, folder: Path) -> float:
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
    )
    rules = RunRules(
        measurement=MeasurementBudget(),
        window=(3, STEPS - 1),
        floor=(3, 5),
        timeout_seconds=300,
        expected=None,
        needs_flops=False,
    )
    started = time.perf_counter()
    outcome = run_experiment(launch, rules, threading.Event().is_set, lambda _progress: None)
    seconds = time.perf_counter() - started
    assert isinstance(outcome, Measured), outcome
    assert len(outcome.step_seconds) >= STEPS
    return seconds


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    ports = free_ports()
    alone, measured = [], []
    bare(next(ports))  # warms the file cache
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(pairs):
            alone.append(bare(next(ports)))
            measured.append(experiment(next(ports), Path(folder)))
    ratios = [m / a for m, a in zip(measured, alone, strict=True)]
    alone_median, measured_median = statistics.median(alone), statistics.median(measured)
    print(
        f"wall time of {STEPS} steps, {pairs} pairs, medians: launcher alone {alone_median:.2f} s, experiment "
        f"{measured_median:.2f} s, ratio {measured_median / alone_median:.3f}; pair by pair {min(ratios):.3f} to "
        f"{max(ratios):.3f}"
    )


if __name__ == "__main__":
    main()
