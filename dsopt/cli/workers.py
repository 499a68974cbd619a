"""`dsopt workers`: who lives, where, and does what."""

from typing import TYPE_CHECKING

import click

from dsopt.api.storage import shown_storage
from dsopt.cli.options import json_option, print_json, storage_option
from dsopt.cli.prose import say

if TYPE_CHECKING:
    from dsopt import RunInHand, WorkerInfo


@click.command()
@storage_option
@json_option
def workers(storage: str | None, as_json: bool) -> None:
    """List the workers of the storage, on all nodes, with what each runs.

    A silent one has missed three heartbeats. After a minute, another worker gives its runs to somebody else.
    """
    import dsopt

    found = dsopt.list_workers(storage=storage)
    if as_json:
        print_json([worker.to_json() for worker in found])
        return
    if not found:
        say(f"There is no worker on {shown_storage(storage)}. Start one with: dsopt worker")
        return
    rows = [("node", "process", "last heartbeat", "runs")]
    dimmed = [False]
    for worker in found:
        for number, run in enumerate(_runs(worker)):
            beat = f"{_duration(worker.silent_seconds)} ago{', silent' if worker.is_silent else ''}"
            beat += ", draining" if worker.is_draining else ""
            rows.append((worker.node, str(worker.pid), beat, run) if number == 0 else ("", "", "", run))
            dimmed.append(worker.is_silent)
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row, dim in zip(rows, dimmed, strict=True):
        line = "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]])
        click.secho(line, dim=dim)


def _runs(worker: "WorkerInfo") -> list[str]:
    nodes = {"" if node == worker.node else f" of {node}": rates for node, rates in worker.rates.items()}
    speed = [f"each device{node}: {rates}" for node, rates in nodes.items()]
    return [*(_run(run) for run in worker.runs), *speed] if worker.runs else ["nothing now", *speed]


def _run(run: "RunInHand") -> str:
    in_round = f" · round {run.round}" if run.round else ""
    return f"{run.study}: {run.label}{in_round}, for {_duration(run.running_seconds)}"


def _duration(seconds: float) -> str:
    """Seconds in a form that a glance takes in."""
    if seconds < 100:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"
