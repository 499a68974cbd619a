"""The figures of a run as the content of `metrics.json`, which the database keeps, too: written and read here."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dsopt.experiment.events import Engine
from dsopt.experiment.measure import Measurement
from dsopt.experiment.outcome import Measured, Slow


def figures_to_json(outcome: Measured | Slow) -> dict[str, Any]:
    """DeepSpeed's keys first, then all that stands behind them."""
    if isinstance(outcome, Slow):
        return figures_to_json(outcome.so_far) | {"slower_than": outcome.best}
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
        "skipped_steps": list(outcome.skipped),
        "nonfinite_losses": list(outcome.nonfinite),
    }


def figures_from_json(content: Mapping[str, Any]) -> Measured:
    """The figures in such a content; earlier versions wrote less."""
    return Measured(
        measurement=Measurement(**content["measurement"]),
        step_seconds=tuple(content["step_seconds"]),
        engine=Engine(**content["engine"]),
        peak_memory_bytes=content["peak_memory_bytes"],
        activation_bytes=content["activation_bytes"],
        flops_per_step=content["flops_per_step"],
        pass_seconds={name: tuple(seconds) for name, seconds in content["pass_seconds"].items()},
        rows=content["rows"],
        peak_allocated_bytes=content.get("peak_allocated_bytes", 0),
        outside_bytes=content.get("outside_bytes", 0),
        skipped=tuple(content.get("skipped_steps", ())),
        nonfinite=tuple(content.get("nonfinite_losses", ())),
    )
