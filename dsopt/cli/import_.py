"""`dsopt import`: takes the results of DeepSpeed's own autotuner into a study."""

from dataclasses import asdict
from pathlib import Path

import click

from dsopt.cli.options import json_option, open_store, print_json, storage_option
from dsopt.worker.importing import Imported, import_results


@click.command("import")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.argument("study")
@storage_option
@json_option
def import_(folder: Path, study: str, storage: str, as_json: bool) -> None:
    """Take the results of DeepSpeed's own autotuner into a STUDY, so that nothing is measured again.

    DIR is its results_dir. Experiments in the study's space become trials of it and steer the search; before anything
    is called best it is measured here, in turn with your own configuration. Importing again adds what is new.
    """
    store = open_store(storage)
    found = store.get(study)
    imported = import_results(store, found, folder)
    if as_json:
        print_json({"study": study, "unit": found.spec.autotuning.unit, **_as_data(imported)})
        return
    unit = found.spec.autotuning.unit
    results = [
        (taken.name, taken.candidate, "out of memory" if taken.value is None else f"{taken.value:.6g} {unit}")
        for taken in imported.taken
    ]
    rows = [(name, value if name == candidate else f"{value} (as {candidate})") for name, candidate, value in results]
    _section(f"Taken into study '{study}'", rows)
    _section("Known already", [(name, "" if name == candidate else f"as {candidate}")
                               for name, candidate in imported.known])  # fmt: skip
    _section("Passed over", [(folder.name, folder.why) for folder in imported.passed_over])
    if imported.taken:
        click.echo(
            "These figures steer the search; the best are measured again here, in turn with your own configuration."
        )
    else:
        click.echo("Nothing new was taken.")
    click.echo(_next(study, store.state(found)))


def _as_data(imported: Imported) -> dict[str, object]:
    return {
        "taken": [asdict(taken) for taken in imported.taken],
        "known": [{"name": name, "candidate": candidate} for name, candidate in imported.known],
        "passed_over": [asdict(folder) for folder in imported.passed_over],
    }


def _section(title: str, rows: list[tuple[str, str]]) -> None:
    if not rows:
        return
    click.echo(f"{title} ({len(rows)}):")
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        click.echo(f"  {name.ljust(width)}  {text}".rstrip())


def _next(study: str, state: str | None) -> str:
    resume = f"dsopt study resume {study}, then " if state == "stopped" else ""
    return f"Go on with: {resume}dsopt worker {study}"
