"""`dsopt report-issue`: what maintainers need to look into an issue, without secrets."""

from pathlib import Path

import click

import dsopt
from dsopt.cli.options import storage_option


@click.command("report-issue")
@click.argument("study", required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write it to this file.")
@storage_option
def report_issue(study: str | None, output: Path | None, storage: str | None) -> None:
    """Collect versions, configuration, command and the last failure of a STUDY (default: the newest) for an issue.

    It leaves out secrets: the values of variables, flags and keys whose names suggest one, and whatever looks like a
    token. Logs are left out where a variable that the run had is not set here. Read it before you send it.
    """
    from dsopt.api.study_files import write_new_file

    text = dsopt.issue_report(study, storage=storage)
    if output is None:
        click.echo(text, nl=False)
        return
    write_new_file(output, text)
    click.echo(f"Wrote {output}. Read it before you send it.")
