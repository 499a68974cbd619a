"""What a running worker shows: a live view on a terminal, plain lines elsewhere."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dsopt.cli.options import run_label
from dsopt.experiment.devices import DevicePool
from dsopt.experiment.outcome import Measured, Outcome
from dsopt.experiment.run import Progress
from dsopt.report.summary import outside_text
from dsopt.search.history import History
from dsopt.store.attempts import Task
from dsopt.store.studies import StoredStudy
from dsopt.worker.happenings import (
    Happening,
    SharingEnded,
    StageClosed,
    StudyFinished,
    TaskEnded,
    TaskProgressed,
    TaskSkipped,
    TaskStarted,
    WarmStartsEnded,
    WroteOutside,
)


@contextlib.contextmanager
def watch(pool: DevicePool) -> Iterator[Callable[[Happening], None]]:
    """A watcher for a worker: live on a terminal, otherwise a line for each thing that happened."""
    console = Console()
    if not (sys.stdout.isatty() and console.is_terminal):
        click.echo(f"Working with {pool}.")
        yield lambda happening: _print_lines(happening, _echo)
        return
    view = _LiveView(pool)
    with Live(console=console, get_renderable=view.render, refresh_per_second=4, transient=True) as live:

        def show(happening: Happening) -> None:
            view.update(happening)
            _print_lines(happening, lambda line: live.console.print(line, highlight=False))

        yield show


def _echo(line: str) -> None:
    """Prints a line; tuning goes on when the reader, such as `head`, has gone."""
    try:
        click.echo(line)
    except BrokenPipeError:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends


def _print_lines(happening: Happening, write: Callable[[str], None]) -> None:
    line = _line(happening)
    if line:
        write(line)


def _line(happening: Happening) -> str | None:
    """The line for the record; what only goes on has none."""
    match happening:
        case TaskEnded(study=study, task=task, outcome=outcome, value=value):
            return f"{run_label(task.name, task.round):<34} {_result(study, outcome, value)}"
        case TaskSkipped(task=task, why=why):
            return f"{run_label(task.name, task.round):<34} not run: {why}"
        case WarmStartsEnded(why=why):
            return f"From now on ranks are not forked but started directly, which takes longer: {why}."
        case SharingEnded(why=why):
            return f"From now on each run has ranks of its own, which takes longer: {why}."
        case WroteOutside(task=task, paths=paths):
            return f"{run_label(task.name, task.round):<34} {outside_text(paths)}"
        case StageClosed(stage=stage, verdict=verdict):
            return f"ZeRO {stage}: {verdict}."
        case _:
            return None


def _result(study: StoredStudy, outcome: Outcome, value: float | None) -> str:
    if not isinstance(outcome, Measured) or value is None:
        assert not isinstance(outcome, Measured)
        reason = "" if outcome.reason == outcome.state else f", {outcome.reason}"
        return f"{outcome.state}{reason}: {outcome.message}"
    m = outcome.measurement
    drift = ", still drifting" if m.drifting else ""
    return (
        f"{value:.6g} {study.spec.autotuning.unit} (±{100 * m.relative_half_width:.1f} %, "
        f"{m.measured_steps} steps after {m.warmup_steps} of warm-up{drift})"
    )


@dataclass
class _LiveView:
    """What the live view shows now."""

    pool: DevicePool
    study: StoredStudy | None = None
    history: History | None = None
    runs_in_hand: dict[Task, Progress | None] = field(default_factory=dict)
    runs: int = 0

    def update(self, happening: Happening) -> None:
        match happening:
            case TaskStarted(study=study, task=task, history=history):
                self.study, self.history = study, history
                self.runs_in_hand[task] = None
            case TaskProgressed(task=task, progress=progress):
                self.runs_in_hand[task] = progress
            case TaskEnded(task=task):
                self.runs_in_hand.pop(task, None)
                self.runs += 1
            case StudyFinished():
                self.runs_in_hand.clear()

    def render(self) -> Table:
        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold")
        table.add_column()
        if self.study is None:
            table.add_row("worker", f"waiting; {self.pool}")
            return table
        table.add_row("study", f"{self.study.name}, with {self.pool}")
        for task, progress in list(self.runs_in_hand.items()):
            table.add_row(_stage_of(task), Text(f"{run_label(task.name, task.round)}: {_now(progress)}"))
        if not self.runs_in_hand:
            table.add_row("next", "choosing")
        table.add_row("best", self._best())
        table.add_row("budget", self._budget())
        return table

    def _best(self) -> str:
        assert self.study is not None
        unit = self.study.spec.autotuning.unit
        if self.history is None or not self.history.measured:
            return "none yet"
        best = max(self.history.measured, key=self.history.score)
        baseline = self.history.find("baseline")
        against = f" (baseline {baseline.value:.4g})" if baseline and baseline.value is not None else ""
        origin = " (imported)" if best.imported is not None else ""
        return f"{best.name}{origin}: {best.value:.4g} {unit}{against}"

    def _budget(self) -> str:
        assert self.study is not None
        tuning = self.study.spec.autotuning
        parts = {task.part for task in list(self.runs_in_hand)} - {"reference"}
        if not parts or self.history is None:
            rounds = self.study.spec.confirmation.rounds
            return f"{self.runs} runs done; confirmation takes {rounds} rounds"
        stage = int(min(parts).removeprefix("z"))
        used = sum(o.is_spent for o in self.history.stages[stage])
        return f"{tuning.tuner_num_trials - used} of {tuning.tuner_num_trials} trials of ZeRO {stage} left"


def _stage_of(task: Task) -> str:
    if task.part == "reference":
        return "confirmation" if task.round else "baseline"
    return f"ZeRO {task.part.removeprefix('z')}"


def _now(progress: Progress | None) -> str:
    if progress is None:
        return "launching"
    if progress.phase == "starting":
        return f"starting, {progress.seconds:.0f} s"
    text = f"measuring, {progress.steps} steps"
    m = progress.measurement
    if m is not None:
        text += f", {m.samples_per_second:.4g} samples/s ±{100 * m.relative_half_width:.1f} %"
    return text
