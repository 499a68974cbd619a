"""`dsopt diff`: what the best configuration changes against the user's own."""

import click

import dsopt
from dsopt.cli.options import complete_study, json_option, print_json, storage_option
from dsopt.cli.prose import say


@click.command()
@click.argument("study", shell_complete=complete_study)
@storage_option
@json_option
def diff(study: str, storage: str | None, as_json: bool) -> None:
    """Show what the best configuration of a finished STUDY changes against your own, and what each change is worth."""
    result = dsopt.load_study(study, storage=storage).diff()
    if as_json:
        print_json(result.to_json())
    else:
        say(result.text())
