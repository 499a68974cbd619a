"""A lane: runs that follow each other on a worker, and the helper processes that make the next start cheap."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dsopt.experiment.outcome import Cancelled, Measured, Outcome, Slow
from dsopt.experiment.rules import RunRules
from dsopt.experiment.run import Progress, run_experiment
from dsopt.launch.forked import ForkedStarts
from dsopt.launch.guard import Guard
from dsopt.launch.launch import Launch
from dsopt.launch.observed import ObservedStarts
from dsopt.launch.process import Process
from dsopt.launch.spread import Spread
from dsopt.launch.undone import undo
from dsopt.study.secrets import hidden, secret_values

# outcomes of forked ranks that ranks started directly would have, too
_BELIEVED: Final = ("oom", "fixed_batch", "fixed_accumulation", "fixed_setting", "few_samples", "hardware")


class Lane:
    """Runs one experiment at a time. Each ends with the worker, however the worker ends.

    Args:
        stop_asked: whether someone asked the worker to stop.
        on_cold: gets the reason, once, why the lane no longer forks ranks.
        on_trouble: gets a sentence about a helper process that had to be started again.
        leave_asked: whether someone has just asked the worker to end after its runs.
    """

    def __init__(
        self,
        stop_asked: Callable[[], bool],
        on_cold: Callable[[str], None],
        on_trouble: Callable[[str], None] = lambda _: None,
        leave_asked: Callable[[], bool] = lambda: False,
    ) -> None:
        self._leave_asked = leave_asked
        self._asked_from_outside = stop_asked
        self._guard = Guard(on_trouble)
        self._observed = ObservedStarts()
        self._forked = ForkedStarts(stop_asked, lambda why: on_cold(hidden(why, secret_values(os.environ))))

    def run(self, launch: Launch, rules: RunRules, on_progress: Callable[[Progress], None]) -> Outcome:
        """Runs one attempt; its processes are gone when this returns or raises.

        If forked ranks fail, it starts the run again directly. If that one can be measured, the script does not work
        when forked, and the lane forks no further run.
        """
        self.watch(launch.run_dir.path, launch.port)
        if launch.placement is not None:
            return self._run(launch, rules, on_progress, Spread)
        if launch.start != "warm" or launch.plain is not None:
            # runs without DeepSpeed do not import what runs with it import
            return self._run(launch, rules, on_progress, self._start_cold)
        outcome = self._run(launch, rules, on_progress, self._start_warm)
        if not self._forked.has_forked(launch.run_dir):
            if isinstance(outcome, Measured | Slow):
                self._forked.learn(launch.run_dir)
            return outcome
        if isinstance(outcome, Measured | Slow | Cancelled) or outcome.reason in _BELIEVED:
            return outcome
        undo(launch.run_dir)
        if not launch.run_dir.undone.exists():
            return outcome  # as on a full disk: what tells how to undo it has to stay where it is
        launch.run_dir.set_aside()
        again = self._run(launch, rules, on_progress, self._start_cold)
        if isinstance(again, Measured | Slow):
            why = "a forked run failed that worked when started directly"
            self._forked.give_up(f"{why}; its logs: {launch.run_dir.former}")
        return again

    def _run(
        self,
        launch: Launch,
        rules: RunRules,
        on_progress: Callable[[Progress], None],
        start: Callable[[Launch], Process | Spread],
    ) -> Outcome:
        return run_experiment(launch, rules, self._stop_asked, on_progress, start, self._leave_asked)

    def watch(self, run_dir: Path, port: int) -> Callable[[], bool]:
        """Ends with the worker what a run does from now on, before its launch, too. Gives what says to end it."""
        self._guard.watch(run_dir, port)
        return self._stop_asked

    def rest(self) -> None:
        """Notes that the run is over, with all that follows it."""
        self._guard.rest()

    def close(self) -> None:
        """Ends the helper processes."""
        self._forked.close()
        self._guard.close()

    def _stop_asked(self) -> bool:
        """Asked many times during a run, which is when the guard must live."""
        self._guard.replace_if_dead()
        return self._asked_from_outside()

    def _start_warm(self, launch: Launch) -> Process:
        return Process(launch, self._observed, self._forked)

    def _start_cold(self, launch: Launch) -> Process:
        may_observe = launch.start != "launcher" and launch.plain is None
        return Process(launch, self._observed if may_observe else None)
