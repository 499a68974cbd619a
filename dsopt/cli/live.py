"""What a running worker shows: a live view on a terminal, plain lines elsewhere."""

import contextlib
import errno
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text
from typing_extensions import Self

from dsopt.api.event_text import (
    awaited_text,
    best_text,
    done_text,
    event_line,
    first_run_lines,
    label_of,
    left_text,
    part_of,
    progress_text,
    short_duration,
)
from dsopt.api.events import (
    DevicesAwaited,
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
    TaskTriedAgain,
)
from dsopt.api.pace import Pace
from dsopt.cli.prose import wrapped


@contextlib.contextmanager
def watch(devices: str) -> Iterator[Callable[[Event], None]]:
    """A watcher for a worker: a live view on a terminal, elsewhere one line per event."""
    console = Console()
    view = LiveView(devices)
    if not (sys.stdout.isatty() and console.is_terminal):
        click.echo(f"Working with {devices}.")
        with Plain(view) as plain:
            yield plain.show
        return
    with Live(
        console=console,
        get_renderable=view.render,
        refresh_per_second=4,
        transient=True,
        redirect_stderr=sys.stderr.isatty(),
    ) as live:

        def show(event: Event) -> None:
            view.update(event)
            for line in view.lines_of(event):
                live.console.print(Text(wrapped(line, live.console.width)), soft_wrap=True)

        yield show


class Plain:
    """A line for each event, and at least one in half a minute: who reads a log sees that it goes on."""

    def __init__(self, view: "LiveView", seconds: float = 30.0) -> None:
        self._view = view
        self._seconds = seconds
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._written_at = time.monotonic()
        self._thread = threading.Thread(target=self._keep_on, name="dsopt-lines", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def show(self, event: Event) -> None:
        """Takes in an event, and prints its line if it has one."""
        with self._lock:
            self._view.update(event)
            for line in self._view.lines_of(event):
                self._write(line)

    def _write(self, line: str) -> None:
        _echo(line)
        self._written_at = time.monotonic()

    def _keep_on(self) -> None:
        while not self._over.wait(min(1.0, self._seconds / 4)):
            with self._lock:
                if time.monotonic() - self._written_at >= self._seconds:
                    self._write(self._view.line())


def _echo(line: str) -> None:
    """Prints a line; tuning continues when the reader, such as `head`, is gone, or the disk of the log is full."""
    try:
        click.echo(line)
    except BrokenPipeError:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise  # else the next line that can be written brings this one, too


@dataclass
class LiveView:
    """What the live view shows now: best and progress of the study, whoever ran it; current runs of this worker."""

    devices: str
    study: StoredStudy | None = None
    history: History | None = None
    current_runs: dict[tuple[str, int], tuple[Task, Progress | None]] = field(default_factory=dict)
    awaited: str | None = None
    began: float = field(default_factory=time.monotonic)
    _left: str | None = None
    _pace: Pace = field(default_factory=Pace)
    _told: set[str] = field(default_factory=set)  # studies of whose first run the lines were shown

    def update(self, event: Event) -> None:
        """Takes in an event of a worker."""
        match event:
            case TaskStarted(task=task):
                self.current_runs[task.key], self.awaited = (task, None), None
            case DevicesAwaited():
                self.awaited = awaited_text(event)
            case TaskProgressed(task=task, progress=progress):
                self.current_runs[task.key] = (task, progress)
            case TaskEnded(task=task) | TaskTriedAgain(task=task):
                self.current_runs.pop(task.key, None)
            case StudyProgressed(study=study, history=history):
                self.study, self.history = study, history
                self._left = left_text(study, history, self._pace.after(study, history))
            case StudyFinished():
                self.current_runs.clear()

    def lines_of(self, event: Event) -> list[str]:
        """The lines that stay of an event that was taken in: its own, and what the first run of a study tells."""
        if isinstance(event, StudyProgressed) and event.study.id not in self._told:
            lines = first_run_lines(event.study.spec, event.history)
            self._told |= {event.study.id} if lines else set()
            return lines
        line = event_line(event)
        return [line] if line else []

    def render(self) -> Table:
        """What is shown now."""
        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold")
        table.add_column()
        if self.study is None:
            table.add_row("worker", f"waiting; {self.devices}")
            return table
        table.add_row("study", f"{self.study.name}, with {self.devices}")
        for task, progress in list(self.current_runs.values()):
            table.add_row(part_of(task), Text(f"{label_of(task)}: {progress_text(progress)}"))
        if not self.current_runs:
            table.add_row("next", self.awaited or "choosing")
        table.add_row("best", best_text(self.study, self.history))
        table.add_row("progress", f"{self._done()}; {short_duration(time.monotonic() - self.began)} so far")
        if self._left is not None:
            table.add_row("left", self._left.replace(" left", "", 1))
        return table

    def line(self) -> str:
        """The same in one line."""
        if self.study is None:
            return "Waiting for a study."
        runs = [f"{label_of(task)}: {progress_text(progress)}" for task, progress in list(self.current_runs.values())]
        now = "; ".join(runs) or self.awaited or "choosing the next run"
        return f"… {now} ({'; '.join(filter(None, [self._done(), self._left]))})"

    def _done(self) -> str:
        assert self.study is not None
        return done_text(self.history)
