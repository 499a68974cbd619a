"""Starts a training as the user would, in the foreground."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from dsopt.launch.process_tree import ProcessTree
from dsopt.launch.program import find_launcher, path_with
from dsopt.launch.trainings import Mark
from dsopt.study.command import LaunchCommand
from dsopt.study.command_secrets import with_values
from dsopt.study.secrets import OWN_ACCESS

_LOOK_SECONDS: Final = 1.0
_ENDING_SECONDS: Final = 5.0  # that ranks may take to end after their launcher
# what schedulers and terminals end, warn or steer a training with; a terminal itself sends SIGINT to all
_PASSED_ON: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def train(
    command: LaunchCommand,
    cwd: Path,
    files: Sequence[int] = (),
    mark: Mark | None = None,
    tell: Callable[[str], object] = lambda _: None,
) -> int:
    """Runs a launch command to its end, on this terminal; Ctrl-C reaches it as it would without dsopt.

    It passes signals on if this is the main thread, and then returns only when all processes have ended. So it does if
    the launcher alone has ended: its ranks may train on.

    Args:
        command: the command.
        cwd: where to start it.
        files: open files that the training gets, such as locks.
        mark: what its processes are known by (`launch/trainings.py`).
        tell: told that the launcher has ended without its ranks.

    Returns:
        Its exit code, as a shell gives it: 128 and the signal's number when a signal ended it.

    Raises:
        DsoptError: the launcher cannot be found.
    """
    program = find_launcher(command.program[0], cwd)
    command = with_values(command, os.environ)
    own = {name: value for name, value in os.environ.items() if name not in OWN_ACCESS}
    environment = {**own, **dict(command.environment)}
    environment["PATH"] = path_with(environment, program)
    mark = mark or Mark(script=command.script)
    with _signals_passed_on() as pass_on_to:
        argv = [str(program), *command.argv()[1:]]
        process = subprocess.Popen(argv, cwd=cwd, env=environment | mark.environment, pass_fds=files)
        tree = ProcessTree(process.pid)
        pass_on_to(tree)
        while True:
            try:
                code = process.wait()
                tree.wait()
                _outlast(tree, mark, tell)
            except KeyboardInterrupt:
                if process.returncode is None and _is_in_foreground():  # the terminal has told them all
                    tree.look()
                else:
                    tree.send(signal.SIGINT)
                continue
            return code if code >= 0 else 128 - code


def _outlast(tree: ProcessTree, mark: Mark, tell: Callable[[str], object]) -> None:
    """Waits for what a training still does whose launcher is gone; who passes on a signal, sends it to these, too."""
    began, is_told = time.monotonic(), False
    while left := mark.living():
        tree.know(left)
        if not is_told and time.monotonic() - began > _ENDING_SECONDS:
            is_told = True
            numbers = ", ".join(map(str, left))
            tell(f"The training's launcher has ended, and ranks of it go on: processes {numbers}. Ctrl-C ends them.")
        time.sleep(_LOOK_SECONDS)


def _is_in_foreground() -> bool:
    """Whether Ctrl-C on a terminal reaches this process and those that it has started."""
    try:
        with Path("/dev/tty").open("rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


@contextlib.contextmanager
def _signals_passed_on() -> Iterator[Callable[[ProcessTree], None]]:
    """Passes signals on to the processes that it is told of; those that came before, at once."""
    receivers: list[ProcessTree] = []
    early: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if not receivers:
            early.append(number)
        for tree in receivers:
            tree.send(number)

    def pass_on_to(tree: ProcessTree) -> None:
        receivers.append(tree)
        for number in early:
            tree.send(number)

    if threading.current_thread() is not threading.main_thread():
        yield pass_on_to
        return
    # what is ignored here, as SIGHUP under nohup, the training ignores, too
    heard = [number for number in _PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, pass_on) for number in heard}
    try:
        yield pass_on_to
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
