"""One run from launch to outcome: starts it, reads its events, ends it as soon as it has seen enough."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from dsopt.experiment.hiding import without_secrets
from dsopt.experiment.host_memory import count_kills
from dsopt.experiment.judge import Moment, judge, measurement_of
from dsopt.experiment.measure import Measurement
from dsopt.experiment.outcome import Cancelled, Failed, Measured, Outcome
from dsopt.experiment.rules import RunRules
from dsopt.experiment.seen import Seen
from dsopt.experiment.together import ended_with_the_worker
from dsopt.launch.launch import Launch
from dsopt.launch.leftovers import remove_nccl_segments, remove_stale_build_locks
from dsopt.launch.process import Process
from dsopt.launch.spread import Spread
from dsopt.protocol.event_reader import EventReader
from dsopt.protocol.events import Engine, Error, Event, Oom, Step
from dsopt.protocol.tail import tail
from dsopt.protocol.text import plain_text
from dsopt.study.secrets import hidden
from dsopt.study.simulation import DRY_START_SECONDS

_POLL_SECONDS = 0.02
_SLOW_POLL_SECONDS = 0.1
_LAST_WORDS_SECONDS = 0.5
_AWAY_SECONDS = 2.0  # that a look and a wait may last longer on a machine that has much to do
_TELL_SECONDS = 2.0  # so often at least, also during a long step: whoever watches looks around then
_FIRST_STEPS = 3  # which may take as long by themselves
_SHARED = 0.5  # of what the worker was away, at least, if its run was suspended with it: a busy machine adds to either
_REMOTE_SECONDS = 4.0  # attributes of files are kept for three seconds and more on NFS (nfs(5))
_TAIL_LINES = 12
_TAIL_LENGTH = 600
_TAIL_BYTES = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is, for people who watch: "starting" until the first step has ended, then "measuring".

    `sources`: digests of the script's own files, by their names; empty until its engine was built. `resumes_from`: as
    `Seen`.
    """

    phase: str
    seconds: float
    steps: int
    engine: Engine | None
    measurement: Measurement | None
    sources: Mapping[str, str] = field(default_factory=dict)
    resumes_from: str = ""


def run_experiment(
    launch: Launch,
    rules: RunRules,
    stop_asked: Callable[[], bool],
    on_progress: Callable[[Progress], None],
    start: Callable[[Launch], Process | Spread] = Process,
    leave_asked: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Runs one attempt and returns its outcome, without secrets in its message.

    Its processes are gone when this returns or raises.

    Args:
        launch: what to start.
        rules: when it has seen enough.
        stop_asked: whether someone asked the worker to stop, which ends the run.
        on_progress: told how far it is.
        start: starts its processes.
        leave_asked: whether someone has just asked the worker to end after this run.
    """
    outcome = _run(launch, rules, stop_asked, on_progress, start, leave_asked)
    return (
        outcome if isinstance(outcome, Measured) else replace(outcome, message=hidden(outcome.message, launch.secrets))
    )


def _run(
    launch: Launch,
    rules: RunRules,
    stop_asked: Callable[[], bool],
    on_progress: Callable[[Progress], None],
    start: Callable[[Launch], Process | Spread],
    leave_asked: Callable[[], bool],
) -> Outcome:
    if stop_asked():  # while it was prepared: others may have its devices
        return Cancelled()
    remove_stale_build_locks()
    remove_nccl_segments()
    watched = _Watched(launch, rules, start, on_progress)
    try:
        while True:
            outcome = watched.look()
            if outcome is not None:
                return Cancelled() if ended_with_the_worker(outcome, stop_asked, leave_asked) else outcome
            if stop_asked():
                watched.process.terminate()
                return Cancelled()
            watched.wait(_POLL_SECONDS if watched.seen.engine else _SLOW_POLL_SECONDS)
    finally:
        watched.process.kill()


class _Watched:
    """A run in progress: what its events have said so far, and since when."""

    def __init__(
        self,
        launch: Launch,
        rules: RunRules,
        start: Callable[[Launch], Process | Spread],
        on_progress: Callable[[Progress], None],
    ) -> None:
        self._started, self._kills = time.monotonic(), count_kills()
        self.process = start(launch)
        self.seen = Seen()
        self._launch = launch
        self._rules = rules
        self._on_progress = on_progress
        self._reader = EventReader(launch.run_dir)
        self._first_step_ended: float | None = None
        self._looked = self._started  # when the last look began
        self._away: list[tuple[float, int, int | None]] = []  # seconds out of the ordinary, and a range of steps
        self._is_suspended = False
        self._told_at = self._started
        self._passed_until = time.monotonic()

    def wait(self, seconds: float) -> None:
        """Waits until the next look. If that takes far longer, somebody has suspended the worker meanwhile."""
        time.sleep(seconds)
        away = self._passed() - seconds
        self._is_suspended |= away > _AWAY_SECONDS
        self._leave_out(away, len(self.seen.steps))

    def look(self) -> Outcome | None:
        """Reads what is new since the last look, and judges it; a run that was suspended says nothing."""
        self._looked, before = time.monotonic(), len(self.seen.steps)
        outcome = self._look()
        self._leave_out(self._passed(), before)
        if not self._away:
            return outcome
        steps = [step.seconds for step in self.seen.steps]
        last_so_far = len(steps) + 2  # that goes on, or is half written
        closed = [(away, first, last or last_so_far) for away, first, last in self._away]
        self._away = [*closed]
        if _is_in_step(steps, closed) or (self._is_suspended and isinstance(outcome, Failed)):
            total = sum(away for away, _, _ in self._away)
            return Cancelled(message=f"the worker and its run were suspended for {total:.0f} s", reason="suspended")
        return outcome

    def _passed(self) -> float:
        """Seconds since this was last asked: a worker may be suspended between a look and a wait, too."""
        before, self._passed_until = self._passed_until, time.monotonic()
        return self._passed_until - before

    def _leave_out(self, away: float, first: int) -> None:
        """Counts time towards no limit in which the worker did nothing, if that is more than a busy machine causes.

        Slurm, a container's engine and a shell suspend its runs with it: the step that goes on then lasts longer by
        that. A look that takes long may only have waited for a disk.
        """
        if away > _AWAY_SECONDS:
            self._away.append((away, first, None))
            self._started += away
            if self._first_step_ended is not None:
                self._first_step_ended += away

    def _pause(self, seconds: float) -> None:
        """Waits within a look."""
        time.sleep(seconds)
        self._looked += seconds
        self._passed_until += seconds

    def _look(self) -> Outcome | None:
        """Reads what is new since the last look, and judges it.

        It judges each step by itself, so the outcome depends on the events, and not on when it reads them. Only how
        long the start took, and the time limits, depend on the clock: it checks these once, after everything else. What
        ranks say beside their steps comes first, because each rank has its own file.
        """
        if (gone := removed(self._launch.run_dir.path)) is not None:  # its ranks may go on, and can tell nothing
            return gone
        exit_code = self.process.exit_code()  # asked before reading, so that nothing written before the end is missed
        events = sorted(self._read(), key=lambda event: isinstance(event, Step))
        has_problem = _tells_a_problem(events)
        if has_problem and exit_code is None:
            self._pause(_LAST_WORDS_SECONDS)  # a rank often fails because another one has, which still writes why
            events += self._read()
        if exit_code and not has_problem and not self.seen.problems and not self._launch.is_local:
            self._pause(_REMOTE_SECONDS)  # what a rank on another node wrote last may come later
            events += self._read()
            has_problem = _tells_a_problem(events)
        measurement: Measurement | None = None
        outcome: Outcome | None = None
        steps = len(self.seen.steps)
        for event in events:
            if self._add(event) and not has_problem and self.seen.engine is not None:
                measurement = measurement_of(self.seen, self._rules)
                moment = Moment(seconds=0.0, spent_seconds=self._spent())
                outcome = judge(self.seen, self._rules, measurement, moment, self._launch)
                if outcome is not None:
                    break
        self._tell(measurement, has_steps=len(self.seen.steps) > steps)
        if outcome is None:
            if exit_code is not None or self.seen.problems:
                measurement = measurement_of(self.seen, self._rules)
            outcome = self._judge(measurement, exit_code)
        return outcome

    def _read(self) -> list[Event]:
        """What ranks have told since, without secrets."""
        return without_secrets(list(self._reader.read()), lambda: self._launch.secrets)

    def _add(self, event: Event) -> bool:
        """Takes in an event, and returns whether it is a step that counts."""
        steps = len(self.seen.steps)
        self.seen.add(event)
        if isinstance(event, Engine) and event.rank == 0:
            self.process.observe()
        is_step = len(self.seen.steps) > steps
        if is_step and self._first_step_ended is None:
            self._first_step_ended = self._looked
        return is_step

    def _spent(self) -> float:
        """Seconds from the launch to the end of the last step that was read; of a dry run, what they stand for."""
        if self._first_step_ended is None:
            return 0.0
        start = DRY_START_SECONDS if self._launch.is_simulated else self._first_step_ended - self._started
        return start + sum(step.seconds for step in self.seen.steps[1:])

    def _judge(self, measurement: Measurement | None, exit_code: int | None) -> Outcome | None:
        now, has_problem = self._looked, exit_code is not None or bool(self.seen.problems)
        moment = Moment(
            seconds=now - self._started,
            spent_seconds=self._spent(),
            training_seconds=now - self._first_step_ended if self._first_step_ended is not None else 0.0,
            exit_code=exit_code,
            last_output=_last_lines(self._launch) if has_problem else "",
            host_kills=max(0, count_kills() - self._kills) if exit_code or self.seen.problems else 0,
        )
        return judge(self.seen, self._rules, measurement, moment, self._launch)

    def _tell(self, measurement: Measurement | None, *, has_steps: bool) -> None:
        now = time.monotonic()
        if self.seen.steps and not has_steps and now - self._told_at < _TELL_SECONDS:
            return
        self._told_at = now
        self._on_progress(
            Progress(
                phase="measuring" if self.seen.steps else "starting",
                seconds=now - self._started,
                steps=len(self.seen.steps),
                engine=self.seen.engine,
                measurement=measurement,
                sources=self.seen.sources,
                resumes_from=self.seen.resumes_from,
            )
        )


def _is_in_step(steps: Sequence[float], away: Sequence[tuple[float, int, int]]) -> bool:
    """Whether a step lasted longer by what the worker was away in its range of steps, and longer than all others."""
    meanwhile = {number for _, first, last in away for number in range(first, last)}
    longest_of_others = max((s for n, s in enumerate(steps) if n >= _FIRST_STEPS and n not in meanwhile), default=0.0)
    for seconds, first, last in away:
        longest = max(steps[max(first, _FIRST_STEPS) : last], default=0.0)
        if longest > longest_of_others and longest - median(steps) > _SHARED * seconds:
            return True
    return False


def removed(folder: Path) -> Cancelled | None:
    """What comes of a run whose folder is not there any more; one that cannot be looked at now may be."""
    try:
        folder.stat()
    except FileNotFoundError:
        return Cancelled(message=f"somebody has removed {folder} while the run went on", reason="removed")
    except OSError:
        pass
    return None


def _tells_a_problem(events: Sequence[Event]) -> bool:
    return any(isinstance(event, Oom | Error) for event in events)


def _last_lines(launch: Launch) -> str:
    for path in (launch.run_dir.stderr, launch.run_dir.stdout):
        said = hidden(plain_text(tail(path, _TAIL_BYTES)), launch.secrets)
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        if lines:
            return " | ".join(lines[-_TAIL_LINES:])[-_TAIL_LENGTH:]
    return "none."
