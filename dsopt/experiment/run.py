"""One run from launch to outcome: start it, read its events, end it as soon as it has said enough."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from dsopt.experiment.events import Engine, EventReader
from dsopt.experiment.judge import Moment, judge, measurement_of
from dsopt.experiment.launch import Launch
from dsopt.experiment.launched import Process
from dsopt.experiment.leftovers import remove_stale_build_locks
from dsopt.experiment.measure import Measurement
from dsopt.experiment.outcome import Cancelled, Measured, Outcome, Slow
from dsopt.experiment.rules import RunRules
from dsopt.experiment.rundir import RunDir
from dsopt.experiment.seen import Seen

_POLL_SECONDS = 0.02
_SLOW_POLL_SECONDS = 0.1
_LAST_WORDS_SECONDS = 0.5
_TAIL_LINES = 12
_TAIL_LENGTH = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run has come, for people who watch: "starting" until the first step ended, then "measuring"."""

    phase: str
    seconds: float
    steps: int
    engine: Engine | None
    measurement: Measurement | None


def run_experiment(
    launch: Launch, rules: RunRules, stop_asked: Callable[[], bool], on_progress: Callable[[Progress], None]
) -> Outcome:
    """Runs one attempt and says what came of it. Its processes are gone when this returns or raises, or parked."""
    remove_stale_build_locks()
    started = time.monotonic()
    first_step_ended: float | None = None
    process = Process(launch)
    reader = EventReader(launch.run_dir)
    seen = Seen()
    try:
        while True:
            exit_code = process.exit_code()  # asked before reading, so that nothing written before the end is missed
            new_steps, engine = len(seen.steps), seen.engine
            for event in reader.read():
                seen.add(event)
            new_steps = len(seen.steps) - new_steps
            if seen.engine is not engine:
                process.learn()
            now = time.monotonic()
            if seen.steps and first_step_ended is None:
                first_step_ended = now
            measurement = measurement_of(seen, rules) if new_steps or exit_code is not None else None
            moment = Moment(
                seconds=now - started,
                training_seconds=now - first_step_ended if first_step_ended is not None else 0.0,
                exit_code=exit_code,
                last_output=_last_lines(launch.run_dir) if exit_code is not None or seen.problems else "",
            )
            if new_steps or not seen.steps:
                phase = "measuring" if seen.steps else "starting"
                progress = Progress(
                    phase=phase, seconds=moment.seconds, steps=len(seen.steps), engine=seen.engine,
                    measurement=measurement,
                )  # fmt: skip
                on_progress(progress)
            outcome = judge(seen, rules, measurement, moment, launch)
            if isinstance(outcome, Measured | Slow) and exit_code is None and not seen.ended:
                process.park(len(seen.steps), seen.steps[-1].seconds, reader)
            if outcome is not None:
                return outcome
            if new_steps:
                process.lead(len(seen.steps), seen.steps[-1].seconds)
            if stop_asked():
                process.terminate()
                return Cancelled()
            time.sleep(_POLL_SECONDS if seen.engine else _SLOW_POLL_SECONDS)
    finally:
        if seen.problems and process.exit_code() is None:
            time.sleep(_LAST_WORDS_SECONDS)  # other ranks and tracebacks are still being written
        process.kill()


def _last_lines(run_dir: RunDir) -> str:
    for path in (run_dir.stderr, run_dir.stdout):
        lines = [line.strip() for line in path.read_text("utf-8", errors="replace").splitlines() if line.strip()]
        if lines:
            return " | ".join(lines[-_TAIL_LINES:])[-_TAIL_LENGTH:]
    return "none."
