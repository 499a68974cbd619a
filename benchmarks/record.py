"""Measures a whole grid for real and keeps it as a small Parquet file, for `benchmarks.replay`.

The grid is a study file: its lists of ZeRO stages, micro-batch sizes, accumulations and further dimensions, all of them
combined. Runs are dsopt's own, each of the same number of steps. Each round launches every candidate once, in an order
of its own, so that a machine that grows slow does so for all of them. A launch waits until nobody else uses the
machine, and is done again where somebody began to; how much others had is kept. The file is written after each launch,
and a recording that was stopped goes on with what it lacks.

    python -m benchmarks.record benchmarks/grids/tiny-gpt-cpu/study.yaml grid.parquet [--launches 2] [--steps 40]
        [--seconds 500]
"""

import argparse
import datetime
import importlib.metadata
import math
import platform
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.grid import About, Grid, Launched, read_grid, write_grid
from benchmarks.quiet import Busy, wait_until_quiet
from dsopt.experiment.lane import Lane
from dsopt.experiment.outcome import Failed, Infeasible, Measured, Outcome
from dsopt.experiment.rules import RunRules
from dsopt.experiment.run import Progress
from dsopt.launch.devices import DevicePool, free_ports, parse_devices
from dsopt.launch.launch import Launch
from dsopt.protocol.event_reader import EventReader
from dsopt.protocol.events import Engine, Event, Flops, Memory, Step
from dsopt.protocol.run_dir import RunDir
from dsopt.study.candidate_run import candidate_command, run_config
from dsopt.study.ds_config import baseline_config
from dsopt.study.load import load_spec
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec

_DISTURBING = 0.1
_TRIES = 3
_FIRST_STEP = 3  # RunRules needs a window; all steps are kept


@dataclass(slots=True)
class _Starting:
    """When the first step of a run began."""

    seconds: float = 0.0

    def __call__(self, progress: Progress) -> None:
        if not progress.steps:
            self.seconds = progress.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("study", type=Path, help="a study file whose lists make up the grid")
    parser.add_argument("out", type=Path, help="the Parquet file")
    parser.add_argument("--launches", type=int, default=2, help="launches of each candidate")
    parser.add_argument("--steps", type=int, default=40, help="optimizer steps of each")
    parser.add_argument("--tries", type=int, default=_TRIES, help="of a launch, while others use much of the machine")
    parser.add_argument("--patience", type=float, default=120, help="seconds to wait for a quiet machine, each launch")
    parser.add_argument("--devices", help="as for `dsopt worker`")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no launch after this")
    args = parser.parse_args()
    spec, _ = load_spec(args.study)
    pool = parse_devices(args.devices)
    devices = DevicePool(kind=pool.kind, indices=pool.indices[: spec.resources.ranks or len(pool.indices)])
    kept = read_grid(args.out) if args.out.exists() else None
    recorder = Recorder(
        spec,
        devices,
        steps=args.steps,
        patience_seconds=args.patience,
        tries=args.tries,
        deadline=time.monotonic() + args.seconds,
        about=kept.about if kept else None,
        launches=list(kept.launches) if kept else [],
    )
    try:
        for round_ in range(args.launches):
            for _ in recorder.launch_all(round_):
                if recorder.about is not None:
                    write_grid(Grid(about=recorder.about, launches=tuple(recorder.launches)), args.out)
        print(f"{args.out}: {len(recorder.launches)} launches; the same command does what is missing")
    finally:
        recorder.lane.close()


@dataclass(slots=True)
class Recorder:
    """Launches the candidates of a grid and keeps what they said."""

    spec: StudySpec
    devices: DevicePool
    steps: int
    patience_seconds: float
    tries: int = _TRIES
    deadline: float = math.inf
    about: About | None = None
    launches: list[Launched] = field(default_factory=list)
    lane: Lane = field(default_factory=lambda: Lane(lambda: False, print))

    def launch_all(self, round_: int) -> Iterator[Launched]:
        """One launch of every candidate that has none in this round and never ran out of memory."""
        done = {one.candidate for one in self.launches if one.oom is not None or one.launch == round_}
        candidates = [candidate for candidate in candidates_of(self.spec) if candidate not in done]
        random.Random(round_).shuffle(candidates)
        ports = free_ports()
        with tempfile.TemporaryDirectory() as folder:
            for number, candidate in enumerate(candidates, start=1):
                if time.monotonic() > self.deadline:
                    return
                launched = self._quiet_launch(candidate, round_, Path(folder), ports)
                print(f"{round_}: {number}/{len(candidates)} {candidate.name}: {_said(launched)}", flush=True)
                if launched is not None:
                    self.launches.append(launched)
                    yield launched

    def _quiet_launch(self, candidate: Candidate, round_: int, folder: Path, ports: Iterator[int]) -> Launched | None:
        """A launch with the machine to itself, or the least disturbed of a few."""
        tries: list[Launched] = []
        while len(tries) < self.tries and (not tries or tries[-1].elsewhere > _DISTURBING):
            wait_until_quiet(_DISTURBING, self.patience_seconds)
            launched = self._launch(candidate, round_, RunDir.create(folder, candidate.name), next(ports))
            if launched is None:
                return None
            tries.append(launched)
        return min(tries, key=lambda launched: launched.elsewhere)

    def _about(self, engine: Engine) -> About:
        return About(
            name=self.spec.name,
            date=datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat(),
            versions={name: importlib.metadata.version(name) for name in ("dsopt", "torch", "deepspeed")}
            | {"python": platform.python_version()},
            device=f"{len(self.devices.indices)} × {engine.device or platform.processor()}",
            command=self.spec.command,
            baseline=baseline_config(self.spec.ds_config),
            max_train_batch_size=self.spec.autotuning.max_train_batch_size,
            nodes=1,
            ranks=engine.world_size,
            params=engine.num_params,
            trainable_params=engine.trainable_params,
            memory_bytes=self.spec.memory_per_device or engine.device_memory_bytes,
        )

    def _launch(self, candidate: Candidate, round_: int, run_dir: RunDir, port: int) -> Launched | None:
        run_dir.write_json(run_dir.ds_config, run_config(self.spec, candidate))
        launch = Launch(
            command=candidate_command(self.spec, candidate).with_config(str(run_dir.ds_config)),
            cwd=Path(self.spec.cwd),
            run_dir=run_dir,
            devices=self.devices,
            port=port,
            memory_limit_bytes=self.spec.memory_per_device,
            start=self.spec.start,
            count_flops=True,
        )
        rules = RunRules(
            measurement=self.spec.measurement,
            window=(_FIRST_STEP, self.steps - 1),
            floor=(_FIRST_STEP, self.steps - 1),
            timeout_seconds=self.spec.timeout_seconds,
            expected=candidate,
            needs_flops=False,
        )
        starting, before = _Starting(), Busy.now()
        outcome = self.lane.run(launch, rules, starting)
        events = list(EventReader(run_dir).read())
        if isinstance(outcome, Failed):
            print(f"{candidate.name}: {outcome.message}", flush=True)
        engine = next((event for event in events if isinstance(event, Engine) and event.rank == 0), None)
        if self.about is None and engine is not None:
            self.about = self._about(engine)
        return _launched(candidate, round_, outcome, events, starting.seconds, before.elsewhere())


def candidates_of(spec: StudySpec) -> Iterator[Candidate]:
    """Every candidate of a study whose micro-batch sizes are listed.

    Raises:
        ValueError: they are not.
    """
    sizes = spec.micro_batch_list
    if sizes is None:
        raise ValueError(f"study '{spec.name}': train_micro_batch_size_per_gpu: a grid needs a list of sizes")
    for stage in spec.stages:
        yield from spec.space(stage).candidates(sizes, spec.accumulation_list or (1,))


def _launched(
    candidate: Candidate, round_: int, outcome: Outcome, events: list[Event], start_seconds: float, elsewhere: float
) -> Launched | None:
    """What one launch said, or None where it neither trained nor ran out of memory."""
    steps = [event for event in events if isinstance(event, Step) and event.rank == 0]
    memory = {event.rank: event for event in events if isinstance(event, Memory)}.values()
    later = steps[len(steps) // 2 :]
    is_full = isinstance(outcome, Infeasible) and outcome.reason == "oom"
    if not is_full and not isinstance(outcome, Measured):
        return None
    return Launched(
        candidate=candidate,
        launch=round_,
        oom=outcome.message.partition(" Log: ")[0] if isinstance(outcome, Infeasible) else None,
        elsewhere=elsewhere,
        start_seconds=start_seconds,
        step_seconds=() if is_full else tuple(step.seconds for step in steps),
        forward_seconds=0.0 if is_full else float(np.mean([step.forward_seconds for step in later])),
        backward_seconds=0.0 if is_full else float(np.mean([step.backward_seconds for step in later])),
        optimizer_seconds=0.0 if is_full else float(np.mean([step.optimizer_seconds for step in later])),
        peak_allocated_bytes=0 if is_full else max(m.peak_allocated_bytes for m in memory),
        peak_reserved_bytes=0 if is_full else max(m.peak_reserved_bytes for m in memory),
        activation_bytes=0 if is_full else max(m.activation_bytes for m in memory),
        flops_per_step=next((event.flops_per_step for event in events if isinstance(event, Flops)), 0.0),
        samples_per_step=0 if is_full else steps[-1].samples,
    )


def _said(launched: Launched | None) -> str:
    if launched is None:
        return "failed, left out"
    if launched.oom is not None:
        return f"out of memory after {launched.start_seconds:.1f} s"
    return (
        f"{launched.samples_per_step / launched.settled_seconds:.1f} samples/s, "
        f"{launched.peak_reserved_bytes / 2**20:.0f} MiB, start {launched.start_seconds:.1f} s, "
        f"others had {launched.elsewhere:.0%}"
    )


if __name__ == "__main__":
    main()
