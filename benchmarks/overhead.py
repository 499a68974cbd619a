"""Wall time of one experiment against the bare launcher running the same number of steps.

Runs `studies/tiny-gpt/train.py` for STEPS steps with the `deepspeed` launcher alone, and as dsopt experiments that
measure the same steps, with the launcher, with ranks started directly and with ranks forked, in turn, every other round
backwards. Prints the ratios of the medians, and whether steps take as long in ranks that were forked.

    python -m benchmarks.overhead [ROUNDS [STEPS]]
"""

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ratio import ratio_of
from dsopt.experiment.lane import Lane
from dsopt.experiment.outcome import Measured
from dsopt.experiment.rules import RunRules
from dsopt.launch.devices import DevicePool, free_ports
from dsopt.launch.launch import Launch
from dsopt.launch.leftovers import remove_shared_memory
from dsopt.launch.program import find_launcher, path_with
from dsopt.protocol.run_dir import RunDir
from dsopt.study.command import LaunchCommand
from dsopt.study.spec import MeasurementBudget, Start

TINY_GPT = Path(__file__).parent.parent / "studies" / "tiny-gpt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Seconds of one run, and of each of its steps after warm-up where they are known."""

    seconds: float
    step_seconds: tuple[float, ...] = ()


def bare(port: int, steps: int) -> Timed:
    """What the launcher alone takes for the steps."""
    launcher = find_launcher("deepspeed", Path.cwd())
    command = [launcher, "--num_gpus", "2", "--master_port", str(port), TINY_GPT / "train.py", "--steps", str(steps)]
    # the same ninja as in experiments: another one compiles DeepSpeed's operators anew
    environment = {"OMP_NUM_THREADS": "1", "PATH": path_with(os.environ, launcher), "HOME": str(Path.home())}
    started = time.perf_counter()
    subprocess.run(
        [*command, "--deepspeed_config", TINY_GPT / "ds_config.json"], env=environment, check=True, capture_output=True
    )
    seconds = time.perf_counter() - started
    remove_shared_memory(port)
    return Timed(seconds=seconds)


def experiment(port: int, folder: Path, steps: int, lane: Lane, start: Start) -> Timed:
    """What one dsopt experiment takes to measure the same steps."""
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
        start=start,
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
    outcome = lane.run(launch, rules, lambda _progress: None)
    seconds = time.perf_counter() - started
    assert isinstance(outcome, Measured), outcome
    assert len(outcome.step_seconds) >= steps
    return Timed(seconds=seconds, step_seconds=outcome.step_seconds[5:steps])


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    ports = free_ports()
    lane = Lane(threading.Event().is_set, lambda why: sys.exit(f"ranks cannot be forked: {why}"))
    bare(next(ports), steps)  # warms the file cache
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ways: dict[str, Callable[[], Timed]] = {
            "launcher alone": lambda: bare(next(ports), steps),
            "experiment, launcher": lambda: experiment(next(ports), folder, steps, lane, "launcher"),
            "experiment, direct": lambda: experiment(next(ports), folder, steps, lane, "direct"),
            "experiment, warm": lambda: experiment(next(ports), folder, steps, lane, "warm"),
        }
        timed: dict[str, list[Timed]] = {way: [] for way in ways}
        for _ in range(2):  # the first tells what is imported, the second waits for the imports
            ways["experiment, warm"]()
        for number in range(rounds):
            for way in list(ways) if number % 2 == 0 else reversed(ways):
                timed[way].append(ways[way]())
    lane.close()
    alone = [run.seconds for run in timed["launcher alone"]]
    for way, runs in timed.items():
        ratios = [run.seconds / a for run, a in zip(runs, alone, strict=True)]
        median = statistics.median(run.seconds for run in runs)
        print(
            f"{way}: {steps} steps, median of {rounds} {median:.2f} s, {median / statistics.median(alone):.3f} of the "
            f"launcher alone, round by round {min(ratios):.3f} to {max(ratios):.3f}"
        )
    experiments = [way for way in ways if way != "launcher alone"]  # of which no single steps are known
    steps_of = {way: [statistics.median(run.step_seconds) for run in timed[way]] for way in experiments}
    for way in ("experiment, launcher", "experiment, warm"):
        ratio, low, high = ratio_of(list(zip(steps_of[way], steps_of["experiment, direct"], strict=True)))
        print(f"{way}: a step takes {ratio:.3f} times as long as with direct, 95 % interval {low:.3f} to {high:.3f}")


if __name__ == "__main__":
    main()
