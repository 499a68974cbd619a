"""`dsopt export`: a study's runs for other programs: a file, or an experiment tracker."""

from pathlib import Path

import click

import dsopt
from dsopt.cli.options import (
    complete_study,
    json_option,
    only_data_on_stdout,
    print_json,
    print_warnings,
    storage_option,
)


@click.command()
@click.argument("study", shell_complete=complete_study)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="The file to write; its name ends in .csv or .parquet. '-' prints CSV.",
)
@click.option(
    "--to",
    "tracker",
    type=click.Choice(["mlflow", "wandb"]),
    help="Instead of a file: an experiment tracker, as its own variables configure it, such as MLFLOW_TRACKING_URI.",
)
@click.option("--format", "file_format", type=click.Choice(["csv", "parquet"]), help="Whatever the file's name says.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@storage_option
@json_option
def export(
    study: str,
    output: Path | None,
    tracker: str | None,
    file_format: str | None,
    force: bool,
    storage: str | None,
    as_json: bool,
) -> None:
    """Export every run of a STUDY as a table: one row per run, with the candidate's knobs as columns.

    The columns are those of Study.trials_dataframe(), which docs/api.md lists. A study that is not finished gives the
    runs so far.

    In a tracker, the study is a run with the best configuration and its factor. In MLflow, each run of the study is a
    run nested in it; in Weights & Biases, a row of its table.
    """
    if tracker is not None:
        if output is not None or file_format is not None or force:
            raise click.UsageError("--to takes neither -o nor --format nor --force: it writes no file.")
        _export_to(tracker, study, storage, as_json=as_json)
        return
    if output is None:
        raise click.UsageError("Name a file or a tracker: -o FILE, such as -o runs.csv, or --to mlflow.")
    if str(output) == "-":
        _print_csv(study, file_format, storage, as_json=as_json)
        return
    found = _load(study, storage)
    number = dsopt.export_runs(found, output, file_format=file_format, force=force)
    if as_json:
        print_json({"study": study, "file": str(output.absolute()), "num_runs": number})
    else:
        click.echo(f"Wrote {number} {'run' if number == 1 else 'runs'} to {output}.")


def _export_to(tracker: str, study: str, storage: str | None, *, as_json: bool) -> None:
    """Exports the study to a tracker, and says where it is."""
    with only_data_on_stdout(as_json):
        place = dsopt.export_to(_load(study, storage), tracker)
    if as_json:
        print_json({"study": study, "tracker": tracker, "place": place})
    else:
        click.echo(f"Exported study '{study}' to {tracker}: {place}")


def _print_csv(study: str, file_format: str | None, storage: str | None, *, as_json: bool) -> None:
    """Prints the table, and nothing else."""
    if file_format not in (None, "csv"):
        raise click.UsageError(f"-o - prints CSV alone. For {file_format}, name a file: -o runs.{file_format}.")
    if as_json:
        raise click.UsageError("-o - prints CSV, --json prints JSON. Give one of them.")
    from dsopt.api.exporting import table_of, to_csv

    click.echo(to_csv(table_of(_load(study, storage))), nl=False)


def _load(study: str, storage: str | None) -> "dsopt.Study":
    found = dsopt.load_study(study, storage=storage)
    if found.distrust:
        print_warnings([found.distrust])
    return found
