"""One run from launch to outcome: start it, read its events, end it as soon as it has said enough."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Final

from dsopt.experiment.events import Batch, End, Engine, Error, Event, EventReader, Flops, Memory, Oom, Step
from dsopt.experiment.launch import Launch
from dsopt.experiment.launched import Process
from dsopt.experiment.leftovers import remove_stale_build_locks
from dsopt.experiment.measure import Measurement, measure
from dsopt.experiment.outcome import Cancelled, Failed, Infeasible, Measured, Outcome, Slow
from dsopt.experiment.race import Race
from dsopt.study.space import Candidate
from dsopt.study.spec import MeasurementBudget

_POLL_SECONDS = 0.02
_SLOW_POLL_SECONDS = 0.1
_LAST_WORDS_SECONDS = 0.5
_TAIL_LINES = 12
FEWEST_STEPS: Final = 3  # after warm-up, however long they take: with fewer there is no interval
_MIN_STEPS_AT_END = 5  # after warm-up, of a script that ends by itself
_STEPS_HINT = 20  # what most runs need to be measured
# a script that raises in these modules before an engine exists was given a configuration it cannot take
_CONFIG_READERS = ("deepspeed.", "pydantic", "transformers.integrations.deepspeed", "transformers.training_args")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRules:
    """When a run has said enough.

    Attributes:
        measurement: precision wanted, and the step and time budget.
        window: first and last step to measure, where the user set them.
        floor: where warm-up is detected, the earliest first and last step: DeepSpeed's own window.
        timeout_seconds: a run that has not been measured by then is ended.
        expected: the candidate whose settings the engine must report, or None for the user's own configuration.
        needs_flops: whether the run must count floating-point operations.
        needs_pass: the pass of a step that has to be seen: `forward`, `backward` or `step`.
        own_rows: rows of the batches in the user's own run, and its micro-batch size.
        race: what the run has to be able to reach; it is stopped as soon as it cannot. None: it is measured whatever.
    """

    measurement: MeasurementBudget
    window: tuple[int, int] | None
    floor: tuple[int, int]
    timeout_seconds: float
    expected: Candidate | None
    needs_flops: bool
    needs_pass: str | None = None
    own_rows: tuple[int, int] | None = None
    race: Race | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run has come, for people who watch: "starting" until the first step ended, then "measuring"."""

    phase: str
    seconds: float
    steps: int
    engine: Engine | None
    measurement: Measurement | None


@dataclass(slots=True)
class _Seen:
    """What the events have said so far."""

    engine: Engine | None = None
    rows: int = 0
    steps: list[Step] = field(default_factory=list)
    memory: dict[int, Memory] = field(default_factory=dict)
    flops: float | None = None
    problems: list[Oom | Error] = field(default_factory=list)
    first_step_at: float | None = None
    ended: bool = False

    def add(self, event: Event) -> None:
        if isinstance(event, Engine) and event.rank == 0:
            self.engine = event
        elif isinstance(event, Batch) and event.rank == 0:
            self.rows = event.rows
        elif isinstance(event, Step) and event.rank == 0:
            self.steps.append(event)
            self.first_step_at = self.first_step_at or time.monotonic()
        elif isinstance(event, Memory):
            self.memory[event.rank] = event
        elif isinstance(event, Flops) and event.rank == 0:
            self.flops = event.flops_per_step
        elif isinstance(event, Oom | Error):
            self.problems.append(event)
        elif isinstance(event, End) and event.rank == 0:
            self.ended = True


def run_experiment(
    launch: Launch, rules: RunRules, stop_asked: Callable[[], bool], on_progress: Callable[[Progress], None]
) -> Outcome:
    """Runs one attempt and says what came of it. Its processes are gone when this returns or raises, or parked."""
    remove_stale_build_locks()
    started = time.monotonic()
    process = Process(launch)
    reader = EventReader(launch.run_dir)
    seen = _Seen()
    try:
        while True:
            exit_code = process.exit_code()  # asked before reading, so that nothing written before the end is missed
            new_steps, engine = len(seen.steps), seen.engine
            for event in reader.read():
                seen.add(event)
            new_steps = len(seen.steps) - new_steps
            if seen.engine is not engine:
                process.learn()
            measurement = _measurement(seen, rules) if new_steps or exit_code is not None else None
            elapsed = time.monotonic() - started
            if new_steps or not seen.steps:
                phase = "measuring" if seen.steps else "starting"
                progress = Progress(
                    phase=phase, seconds=elapsed, steps=len(seen.steps), engine=seen.engine, measurement=measurement
                )
                on_progress(progress)
            outcome = _judge(seen, rules, measurement, exit_code, elapsed, launch)
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


def _judge(
    seen: _Seen,
    rules: RunRules,
    measurement: Measurement | None,
    exit_code: int | None,
    elapsed: float,
    launch: Launch,
) -> Outcome | None:
    """The outcome, once there is one."""
    log = launch.run_dir.stderr
    if seen.problems:
        return _problem(seen, log_path=str(log))
    if seen.engine is not None and rules.expected is not None:
        contradiction = _contradiction(seen.engine, rules.expected) or _stale_batch(seen, rules)
        if contradiction:
            return Infeasible(reason="invalid_config", message=contradiction)
    if measurement is not None and seen.engine is not None:
        spent = _budget_spent(seen, rules, measurement)
        precise = rules.window is None and measurement.is_precise(rules.measurement.precision)
        enough = len(seen.steps) > rules.floor[1]
        ended_well = exit_code is not None and seen.ended and measurement.measured_steps >= _MIN_STEPS_AT_END
        if (precise and enough) or spent or ended_well:
            if rules.needs_flops and seen.flops is None:
                return Failed(
                    reason="no_metrics", message="no floating-point operations were counted; choose another metric"
                )
            if rules.needs_pass and not any(_passes(seen)[rules.needs_pass]):
                return Failed(
                    reason="no_metrics",
                    message=f"the engine's {rules.needs_pass} calls are not seen in this script; choose another metric",
                )
            return _measured(seen, measurement)
        why = rules.race.lost(measurement) if rules.race is not None and enough else None
        if rules.race is not None and why is not None:
            return Slow(so_far=_measured(seen, measurement), best=rules.race.best, message=why)
    if exit_code is not None:
        return _ended(seen, exit_code, launch)
    if elapsed > rules.timeout_seconds:
        return Failed(
            reason="timeout",
            message=f"{_stage_reached(seen)} when timeout_seconds ({rules.timeout_seconds:g} s) had passed. "
            f"Raise timeout_seconds, or see whether the script hangs. Log: {log}",
        )
    return None


def _measurement(seen: _Seen, rules: RunRules) -> Measurement | None:
    if not seen.steps:
        return None
    seconds = [step.seconds for step in seen.steps]
    if rules.window is not None:
        if len(seconds) <= rules.window[1]:
            return None
        return measure(seconds, seen.steps[-1].samples, rules.measurement.precision, rules.window)
    return measure(seconds, seen.steps[-1].samples, rules.measurement.precision, min_warmup=rules.floor[0])


def _budget_spent(seen: _Seen, rules: RunRules, measurement: Measurement) -> bool:
    """Whether a run may go on no longer; where a step takes minutes, the budget of seconds waits for a few of them."""
    if rules.window is not None:
        return len(seen.steps) > rules.window[1]
    assert seen.first_step_at is not None
    budget = rules.measurement
    is_over = time.monotonic() - seen.first_step_at >= budget.max_seconds
    return len(seen.steps) >= budget.max_steps or (is_over and measurement.measured_steps >= FEWEST_STEPS)


def _measured(seen: _Seen, measurement: Measurement) -> Measured:
    assert seen.engine is not None
    return Measured(
        measurement=measurement,
        step_seconds=tuple(step.seconds for step in seen.steps),
        engine=seen.engine,
        peak_memory_bytes=max((m.peak_reserved_bytes for m in seen.memory.values()), default=0),
        activation_bytes=max((m.activation_bytes for m in seen.memory.values()), default=0),
        flops_per_step=seen.flops,
        pass_seconds=_passes(seen),
        rows=seen.rows,
        peak_allocated_bytes=max((m.peak_allocated_bytes for m in seen.memory.values()), default=0),
        outside_bytes=max((m.outside_bytes for m in seen.memory.values()), default=0),
    )


def _passes(seen: _Seen) -> dict[str, tuple[float, ...]]:
    return {
        "forward": tuple(step.forward_seconds for step in seen.steps),
        "backward": tuple(step.backward_seconds for step in seen.steps),
        "step": tuple(step.optimizer_seconds for step in seen.steps),
    }


def _problem(seen: _Seen, log_path: str) -> Outcome:
    """What the first rank that failed raised. Others often fail only because that one is gone."""
    first = min(seen.problems, key=lambda problem: problem.time)
    oom = next((problem for problem in seen.problems if isinstance(problem, Oom)), None)
    if oom is not None:
        return Infeasible(reason="oom", message=f"rank {oom.rank}: {_first_line(oom.message)} Log: {log_path}")
    assert isinstance(first, Error)
    message = f"rank {first.rank}: {first.type}: {_first_line(first.message)} Log: {log_path}"
    if seen.engine is None and first.origin.startswith(_CONFIG_READERS):
        return Infeasible(reason="invalid_config", message=message)
    return Failed(reason="crash", message=message)


def _contradiction(engine: Engine, expected: Candidate) -> str | None:
    """Why a run is not the candidate's, where the script did not take the configuration it was given."""
    asked = (expected.stage, expected.micro_batch, expected.gas)
    built = (engine.zero_stage, engine.micro_batch, engine.gas)
    if asked == built:
        return None
    return (
        "the script built its engine with ZeRO stage {}, micro-batch {}, accumulation {}, ".format(*built)
        + "not the {}, {}, {} it was given. ".format(*asked)
        + "Let it take DeepSpeed's configuration from the command's --deepspeed_config or --deepspeed, "
        "and name the flags that override it in autotuning.arg_mappings."
    )


def _stale_batch(seen: _Seen, rules: RunRules) -> str | None:
    """Why a run is not the candidate's, where the script still feeds the batches of the user's own run.

    The engine believes its configuration and would count samples that were never there. Rows say that only where they
    were the micro-batch size in the user's own run; one row may be a packed batch.
    """
    if rules.own_rows is None or rules.expected is None or not seen.rows:
        return None
    rows, micro_batch = rules.own_rows
    asked = rules.expected.micro_batch
    if rows != micro_batch or rows == 1 or seen.rows != rows or rows == asked:
        return None
    return (
        f"the script fed batches of {rows}, as in your own run, though its configuration says {asked}: its figures "
        "would be wrong. Name the flag that sets its batch size in autotuning.arg_mappings."
    )


def _ended(seen: _Seen, exit_code: int, launch: Launch) -> Failed:
    """The launcher has ended before anything could be measured, and no rank said why."""
    log = launch.run_dir.stderr
    ended_well = exit_code == 0 or seen.ended  # torch may abort a process that has done all its work
    if ended_well and seen.engine is None:
        return Failed(
            reason="no_metrics",
            message=f"the script ended without calling deepspeed.initialize with an optimizer. "
            f"dsopt tunes scripts that train with DeepSpeed. Log: {launch.run_dir.stdout}",
        )
    if ended_well:
        return Failed(
            reason="no_metrics",
            message=f"the script ended after {len(seen.steps)} optimizer steps, before it could be measured. "
            f"Let it train for at least {_STEPS_HINT} steps. Log: {launch.run_dir.stdout}",
        )
    tail = _last_lines(launch)
    if "No module named dsopt" in tail or "No module named 'dsopt'" in tail:
        return Failed(
            reason="crash",
            message=f"the Python that '{launch.command.program[0]}' uses cannot import dsopt. "
            f"Install dsopt in the training environment too. Log: {log}",
        )
    how = f"was ended by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
    hint = " Signal 9 is often the kernel's out-of-memory killer." if exit_code in (-9, 137) else ""
    return Failed(
        reason="crash",
        message=f"the launcher {how}, {_stage_reached(seen)}.{hint} Last output: {tail} Log: {log}",
        retryable=True,
    )


def _stage_reached(seen: _Seen) -> str:
    if seen.steps:
        return f"only {len(seen.steps)} optimizer steps had been done"
    return "the first optimizer step had not ended" if seen.engine else "DeepSpeed's engine had not been built"


def _last_lines(launch: Launch) -> str:
    for path in (launch.run_dir.stderr, launch.run_dir.stdout):
        lines = [line.strip() for line in path.read_text("utf-8", errors="replace").splitlines() if line.strip()]
        if lines:
            return " | ".join(lines[-_TAIL_LINES:])[-600:]
    return "none."


def _first_line(message: str) -> str:
    line = next((line.strip() for line in message.splitlines() if line.strip()), "(no message)")
    return line if line.endswith((".", "!", "?")) else f"{line}."


def describe(outcome: Measured | Slow) -> dict[str, object]:
    """The figures as the content of `metrics.json`: DeepSpeed's keys first, then all that stands behind them."""
    if isinstance(outcome, Slow):
        return describe(outcome.so_far) | {"slower_than": outcome.best}
    m = outcome.measurement
    return {
        "throughput": m.samples_per_second,
        "latency": m.step_seconds * 1000,
        "FLOPS_per_gpu": outcome.metric("FLOPS") if outcome.flops_per_step is not None else None,
        "step_seconds_interval_95": [m.step_seconds - m.half_width_seconds, m.step_seconds + m.half_width_seconds],
        "peak_memory_bytes": outcome.peak_memory_bytes,
        "peak_allocated_bytes": outcome.peak_allocated_bytes,
        "outside_bytes": outcome.outside_bytes,
        "activation_bytes": outcome.activation_bytes,
        "flops_per_step": outcome.flops_per_step,
        "rows": outcome.rows,
        "measurement": asdict(m),
        "engine": asdict(outcome.engine),
        "step_seconds": list(outcome.step_seconds),
        "pass_seconds": {name: list(seconds) for name, seconds in outcome.pass_seconds.items()},
    }
