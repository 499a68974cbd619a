"""`dsopt import`: imports the results of DeepSpeed's own autotuner into a study."""

from pathlib import Path

import click

import dsopt
from dsopt.cli.options import json_option, print_json, storage_option


@click.command("import")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.argument("study")
@storage_option
@json_option
def import_(folder: Path, study: str, storage: str | None, as_json: bool) -> None:
    """Import the results of DeepSpeed's own autotuner into a STUDY, so that not all of it is measured again.

    DIR is its results_dir. Experiments in the study's space become trials and steer the search. dsopt measures here
    what may be the best of them, and calls nothing the best that it has not measured. Importing again adds what is new.
    """
    from dsopt.api.standing import significant

    found = dsopt.load_study(study, storage=storage)
    imported = found.import_results(folder)
    unit = found.spec.autotuning.unit
    if as_json:
        print_json({"study": study, "unit": unit, **imported.to_json()})
        return
    results = [
        (taken.name, taken.candidate, "out of memory" if taken.value is None else f"{significant(taken.value)} {unit}")
        for taken in imported.taken
    ]
    rows = [(name, value if name == candidate else f"{value} (as {candidate})") for name, candidate, value in results]
    _section(f"Imported into study '{study}'", rows)
    _section("Already known", [(name, "" if name == candidate else f"as {candidate}")
                               for name, candidate in imported.known])  # fmt: skip
    _section("Skipped", [(folder.name, folder.why) for folder in imported.passed_over])
    if imported.taken:
        click.echo("These figures steer the search; dsopt measures here what may be the best of them.")
    else:
        click.echo("Nothing new was imported.")
    resume = f"dsopt study resume {study}, then " if found.state == "stopped" else ""
    click.echo(f"Continue with: {resume}dsopt worker {study}")


def _section(title: str, rows: list[tuple[str, str]]) -> None:
    if not rows:
        return
    click.echo(f"{title} ({len(rows)}):")
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        click.echo(f"  {name.ljust(width)}  {text}".rstrip())
