"""What a tuning chose, beside the best of a grid that was recorded on the same device."""

from pathlib import Path
from typing import Any

from benchmarks.grid import read_grid


def beside_the_grid(path: Path, told: dict[str, Any]) -> str:
    """A sentence.

    Args:
        path: the grid's Parquet file; it may be missing.
        told: what `dsopt study show --json` says of the tuning.
    """
    runs = told.get("runs", [])
    measured = sum(run["state"] == "measured" for run in runs)
    best = (told.get("comparison") or {}).get("best")
    said = f"{len(runs)} runs, {measured} measured; the best is {best or 'not known'}"
    if best is None or not path.exists():
        return said
    launches = [one for one in read_grid(path).launches if one.step_seconds]
    speeds = {one.candidate.name: one.samples_per_step / one.settled_seconds for one in launches}
    if not speeds:
        return said
    first = max(speeds, key=lambda name: speeds[name])
    said += f". The grid's best of {len(speeds)} is {first}, {speeds[first]:.4g} samples/s"
    own = speeds.get(best)
    return said if own is None else f"{said}; there {best} has {own:.4g}, {own / speeds[first]:.3f} of it"
