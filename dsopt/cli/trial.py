"""`dsopt trial …`: one run of a study, and its logs."""

import click

import dsopt
from dsopt.cli.options import complete_study, json_option, print_json, storage_option


@click.group()
def trial() -> None:
    """Show one run of a study, and what it wrote."""


_round = click.option(
    "--round", "round_", type=int, help="0 is the first run, 1, 2 … those after it. Default: the last."
)


@trial.command()
@click.argument("study", shell_complete=complete_study)
@click.argument("name")
@_round
@storage_option
@json_option
def show(study: str, name: str, round_: int | None, storage: str | None, as_json: bool) -> None:
    """Show the run of the configuration NAME (or `baseline`) of a STUDY: what came of it, and where its files are.

    NAME is as folders have it (`z2_gas4_tmbspg24`), or as screens show it ('ZeRO 2 · 24 × 4').
    """
    from dsopt.api.trials import described, find_run

    found = dsopt.load_study(study, storage=storage)
    run = find_run(found, name, round_)
    if as_json:
        print_json(run.to_json())
    else:
        click.echo("\n".join(described(found, run)))


@trial.command()
@click.argument("study", shell_complete=complete_study)
@click.argument("name")
@_round
@click.option("-n", "--lines", type=click.IntRange(1), default=40, show_default=True, help="Last lines of each log.")
@storage_option
def logs(study: str, name: str, round_: int | None, lines: int, storage: str | None) -> None:
    """Print the last lines that the run of the configuration NAME of a STUDY wrote."""
    from dsopt.api.trials import find_run, logs_of

    found = dsopt.load_study(study, storage=storage)
    logs = logs_of(found, find_run(found, name, round_), lines)
    if found.spec.is_simulated and not any(text for _, text in logs):
        click.echo("A dry run starts no training, so nothing was written.")
    for file, text in logs:
        cut = f", the last {lines} lines (-n shows more)" if len(text) == lines else ""
        click.echo(f"==> {file}{cut or ('' if text else ', empty')} <==")
        click.echo("\n".join(text))
