"""What a running worker shows: a live view on a terminal, plain lines elsewhere."""

import contextlib
import errno
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

from dsopt.api.event_text import best_text, budget_text, event_line, label_of, part_of, progress_text
from dsopt.api.events import (
    Event,
    History,
    Progress,
    StoredStudy,
    StudyFinished,
    StudyProgressed,
    Task,
    TaskEnded,
    TaskProgressed,
    TaskStarted,
)


@contextlib.contextmanager
def watch(devices: str) -> Iterator[Callable[[Event], None]]:
    """A watcher for a worker: a live view on a terminal, elsewhere one line per event."""
    console = Console()
    if not (sys.stdout.isatty() and console.is_terminal):
        click.echo(f"Working with {devices}.")
        yield lambda event: _print_lines(event, _echo)
        return
    view = LiveView(devices)
    with Live(console=console, get_renderable=view.render, refresh_per_second=4, transient=True) as live:

        def show(event: Event) -> None:
            view.update(event)
            _print_lines(event, lambda line: live.console.print(line, highlight=False))

        yield show


def _echo(line: str) -> None:
    """Prints a line; tuning continues when the reader, such as `head`, is gone, or the disk of the log is full."""
    try:
        click.echo(line)
    except BrokenPipeError:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise  # else the next line that can be written brings this one, too


def _print_lines(event: Event, write: Callable[[str], None]) -> None:
    line = event_line(event)
    if line:
        write(line)


@dataclass
class LiveView:
    """What the live view shows now: best and progress of the study, whoever ran it; current runs of this worker."""

    devices: str
    study: StoredStudy | None = None
    history: History | None = None
    current_runs: dict[Task, Progress | None] = field(default_factory=dict)

    def update(self, event: Event) -> None:
        """Takes in an event of a worker."""
        match event:
            case TaskStarted(task=task):
                self.current_runs[task] = None
            case TaskProgressed(task=task, progress=progress):
                self.current_runs[task] = progress
            case TaskEnded(task=task):
                self.current_runs.pop(task, None)
            case StudyProgressed(study=study, history=history):
                self.study, self.history = study, history
            case StudyFinished():
                self.current_runs.clear()

    def render(self) -> Table:
        """What is shown now."""
        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold")
        table.add_column()
        if self.study is None:
            table.add_row("worker", f"waiting; {self.devices}")
            return table
        table.add_row("study", f"{self.study.name}, with {self.devices}")
        for task, progress in list(self.current_runs.items()):
            table.add_row(part_of(task), Text(f"{label_of(task)}: {progress_text(progress)}"))
        if not self.current_runs:
            table.add_row("next", "choosing")
        table.add_row("best", best_text(self.study, self.history))
        table.add_row("progress", budget_text(self.study, self.history, list(self.current_runs)))
        return table
