"""Runs whose ranks had measured another micro-batch size before, against runs with ranks of their own.

Measures `studies/tiny-gpt/train.py` on two ranks for STEPS steps with several micro-batch sizes, in ranks that are
handed from run to run (`start: shared`) and in ranks forked for each (`start: warm`), in turn, every other round
backwards.
Prints the ratios of wall time, step time and peak memory with their 95 % intervals over rounds and sizes (Student's t).

    python -m benchmarks.shared [ROUNDS [STEPS]]
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.overhead import TINY_GPT
from benchmarks.ratio import ratio_of
from dsopt.experiment.devices import DevicePool, free_ports
from dsopt.experiment.fallback import run_with_fallback
from dsopt.experiment.launch import Launch
from dsopt.experiment.outcome import Measured
from dsopt.experiment.rules import RunRules
from dsopt.experiment.rundir import RunDir
from dsopt.experiment.shared import SharedRanks
from dsopt.experiment.warm import WarmStarter
from dsopt.study.command import LaunchCommand
from dsopt.study.spec import MeasurementBudget

MICRO_BATCHES = (4, 16, 2, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One run: seconds of all of it and of a step, peak memory, whether its ranks had measured another run before."""

    seconds: float
    step_seconds: float
    peak_bytes: int
    is_lent: bool


class Lane:
    """What measures runs one after the other, as a lane of a worker does."""

    def __init__(self, folder: Path, steps: int, *, is_shared: bool) -> None:
        self._folder = folder
        self._steps = steps
        self._ports = free_ports()
        self._warm = WarmStarter(lambda: False, lambda why: sys.exit(f"ranks cannot be forked: {why}"))
        self.refusals: list[str] = []
        self._is_shared = is_shared
        self._shared = SharedRanks(self.refusals.append)

    def measure(self, micro_batch: int) -> Timed:
        """Measures one micro-batch size. Where ranks could be shared no more, later runs share again."""
        run_dir = RunDir.create(self._folder, "experiment")
        config = json.loads((TINY_GPT / "ds_config.json").read_text())
        run_dir.write_json(run_dir.ds_config, {**config, "train_micro_batch_size_per_gpu": micro_batch})
        typed = f"OMP_NUM_THREADS=1 deepspeed --num_gpus 2 train.py --deepspeed_config {run_dir.ds_config}"
        if not self._shared.is_on:
            self._shared = SharedRanks(self.refusals.append)
        launch = Launch(
            command=LaunchCommand.parse(typed, "benchmark"),
            cwd=TINY_GPT,
            run_dir=run_dir,
            devices=DevicePool(kind="cpu", indices=(0, 1)),
            port=next(self._ports),
            memory_limit_bytes=None,
            is_direct=True,
            warm=self._warm,
            shared=self._shared if self._is_shared else None,
            setting=(0, ()),
        )
        rules = RunRules(
            measurement=MeasurementBudget(),
            window=(3, self._steps - 1),
            floor=(3, 5),
            timeout_seconds=300,
            expected=None,
            needs_flops=False,
        )
        started = time.perf_counter()
        outcome = run_with_fallback(launch, rules, lambda: False, lambda _progress: None)
        seconds = time.perf_counter() - started
        assert isinstance(outcome, Measured), outcome
        return Timed(
            seconds=seconds,
            step_seconds=statistics.median(outcome.step_seconds[5 : self._steps]),
            peak_bytes=outcome.peak_memory_bytes,
            is_lent=self._shared.has_lent(run_dir),
        )

    def close(self) -> None:
        self._shared.close()
        self._warm.close()


def rounds_of(lanes: Sequence[Lane], rounds: int) -> Iterator[tuple[Timed, Timed]]:
    """Pairs of runs of one size, in the order of `lanes`; each round has every size once."""
    for number in range(rounds):
        for micro_batch in MICRO_BATCHES:
            order = lanes if number % 2 == 0 else lanes[::-1]
            timed = [lane.measure(micro_batch) for lane in order]
            first, second = timed if number % 2 == 0 else timed[::-1]
            yield first, second


def ratio(pairs: Sequence[tuple[float, float]]) -> str:
    """The geometric mean of the ratios with its 95 % interval."""
    middle, low, high = ratio_of(pairs)
    return f"{middle:.3f}, 95 % interval {low:.3f} to {high:.3f}"


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    with tempfile.TemporaryDirectory() as name:
        lanes = [Lane(Path(name), steps, is_shared=is_shared) for is_shared in (True, False)]
        for lane in lanes:
            for _ in range(2):  # the first run tells what is imported, the second waits for the imports
                lane.measure(MICRO_BATCHES[-1])
        pairs = list(rounds_of(lanes, rounds))
        refusals = lanes[0].refusals
        for lane in lanes:
            lane.close()
    lent = [(shared, own) for shared, own in pairs if shared.is_lent]
    median = [statistics.median(run.seconds for run in runs) for runs in zip(*pairs, strict=True)]
    print(f"{len(pairs)} pairs of runs of {steps} steps; in {len(lent)} the ranks had measured another before")
    print(f"ranks could not be handed on {len(refusals)} times: {'; '.join(refusals) or 'never'}")
    print(f"wall time, median: shared {median[0]:.2f} s, own ranks {median[1]:.2f} s")
    print(f"wall time, all pairs: {ratio([(s.seconds, o.seconds) for s, o in pairs])}")
    print(f"wall time, ranks handed on: {ratio([(s.seconds, o.seconds) for s, o in lent])}")
    print(f"step time, ranks handed on: {ratio([(s.step_seconds, o.step_seconds) for s, o in lent])}")
    print(f"peak memory, ranks handed on: {ratio([(float(s.peak_bytes), float(o.peak_bytes)) for s, o in lent])}")


if __name__ == "__main__":
    main()
