"""Runs programs for a limited time, and ends all of their processes."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

_LOOK_SECONDS: Final = 0.05
_PATIENCE_SECONDS: Final = 2.0  # a compiler's driver ends its compilers if it is asked to


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program to run: its words, its whole environment, and the folder that it starts in."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    cwd: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended.

    Attributes:
        code: its exit code, negative for a signal; None if it ran past its time.
        output: what it wrote to stdout.
        errors: what it wrote to stderr.
    """

    code: int | None
    output: str
    errors: str

    @property
    def last_words(self) -> str:
        """The last line that it wrote, or how it ended."""
        lines = [line.strip() for line in (self.errors or self.output).splitlines() if line.strip()]
        return lines[-1] if lines else f"it ended with exit code {self.code} and wrote nothing"


def run_all(
    programs: Sequence[Program], *, seconds: float, should_end: Callable[[], bool] = lambda: False
) -> list[Ended]:
    """Runs programs side by side, for at most this long all together. None of their processes is left.

    If one fails, the others get two seconds more. `should_end` is asked meanwhile whether all are to end at once.
    """
    if should_end():
        return []
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(_started(program)) for program in programs]
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and None in (codes := [one.process.poll() for one in started]):
            if should_end():
                break
            if any(codes):
                deadline = min(deadline, time.monotonic() + _PATIENCE_SECONDS)
            time.sleep(_LOOK_SECONDS)
        for one in started:
            one.end()
        return [one.ended() for one in started]


class _Started:
    def __init__(self, program: Program, output: int, errors: int) -> None:
        self._output, self._errors = output, errors
        self._code: int | None = None
        self.process = subprocess.Popen(
            program.argv,
            cwd=program.cwd,
            env=program.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )

    def end(self) -> None:
        """Ends what is left of its session: ninja starts compilers in process groups of their own."""
        if self._code is None:
            self._code = self.process.poll()
        left = self._session()
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.send_signal(number)
            _, left = psutil.wait_procs(left, timeout=_PATIENCE_SECONDS)
        self.process.wait()

    def ended(self) -> Ended:
        return Ended(code=self._code, output=_text(self._output), errors=_text(self._errors))

    def _session(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError):
                if os.getsid(process.pid) == self.process.pid:
                    found.append(process)
        return found


@contextlib.contextmanager
def _started(program: Program) -> Iterator[_Started]:
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        started = _Started(program, output.fileno(), errors.fileno())
        try:
            yield started
        finally:
            started.end()


def _text(file: int) -> str:
    os.lseek(file, 0, os.SEEK_SET)
    with os.fdopen(os.dup(file), "rb") as reader:
        return reader.read().decode("utf-8", errors="replace")
