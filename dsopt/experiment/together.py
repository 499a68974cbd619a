"""Runs that end together with their worker, of the same signal: that says nothing about their candidates."""

import time
from collections.abc import Callable
from typing import Final

from dsopt.experiment.outcome import Failed, Infeasible, Outcome

_LOOK_SECONDS: Final = 0.02
_SAME_SIGNAL_SECONDS: Final = 1.0
_HEEDED_SECONDS: Final = 0.25  # after a script has heeded a signal and ended, which takes it a while
_OF_A_SIGNAL: Final = ("crash", "no_metrics", "few_samples")  # what a script seems to do that heeds a signal and ends


def ended_with_the_worker(outcome: Outcome, stop_asked: Callable[[], bool], leave_asked: Callable[[], bool]) -> bool:
    """Whether what ended a run asked the worker to stop, too: systemd and Slurm send signals to all processes.

    A script may heed the signal, and end with any code. One that does not heed it dies of it, also of the signal that
    asks a worker to leave.
    """
    if not isinstance(outcome, Failed | Infeasible):
        return False
    has_died = isinstance(outcome, Failed) and outcome.retryable
    may_be_the_drain = outcome.reason in _OF_A_SIGNAL
    if not (has_died or may_be_the_drain):
        return False
    deadline = time.monotonic() + (_SAME_SIGNAL_SECONDS if has_died else _HEEDED_SECONDS)
    while not (is_asked := stop_asked() or (may_be_the_drain and leave_asked())) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    return is_asked
