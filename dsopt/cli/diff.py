"""`dsopt diff`: what the best configuration changes against the user's own."""

import json
from collections.abc import Sequence

import click

from dsopt.cli.options import json_option, open_store, print_json, storage_option
from dsopt.cli.result import finished_summary, qualities_of
from dsopt.report.diff import Diff, Worth, best_diff
from dsopt.worker.knowledge import load_history


@click.command()
@click.argument("study")
@storage_option
@json_option
def diff(study: str, storage: str, as_json: bool) -> None:
    """Show what the best configuration of a finished STUDY changes against your own, and what each change is worth."""
    store = open_store(storage)
    found = store.get(study)
    finished_summary(store, found)
    result = best_diff(found.spec, load_history(store, found), qualities_of(store, found))
    if as_json:
        print_json(result.to_json())
        return
    for line in table(result):
        click.echo(line)
    click.echo(("\n" if result.changes else "") + result.sentence())


def table(result: Diff) -> list[str]:
    """Every change in a line, in aligned columns; nothing when there is none."""
    rows = [(c.key, shown(c.key, c.old), shown(c.key, c.new), worth_text(c.worth)) for c in result.changes]
    rows += [(f.key, shown(f.key, f.old), shown(f.key, f.new), follows_text(f.because)) for f in result.following]
    if not result.changes:
        return []
    rows.insert(0, ("key", "yours", "best", "worth"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows]


def shown(key: str, value: object) -> str:
    """A value for people: as JSON has it, text without quotes."""
    if value is None:
        return "not given"
    if value == "" and key.startswith("-"):
        return "given"
    return value if isinstance(value, str) and value else json.dumps(value)


def worth_text(worth: Worth | None) -> str:
    """What a change is worth, against which trial, and how sure that is."""
    if worth is None:
        return "not known alone"
    interval = f" ({worth.interval[0]:.2f}–{worth.interval[1]:.2f})" if worth.interval else ""
    runs = "confirmed" if worth.is_confirmed else "single runs"
    doubt = ", within noise" if worth.is_within_noise else "" if worth.interval else ", noise not known"
    return f"{worth.factor:.2f}×{interval} against {worth.other}, {runs}{doubt}"


def follows_text(because: Sequence[str]) -> str:
    """Which changes a key follows from."""
    return f"follows from {', '.join(because)}"
