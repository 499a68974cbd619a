"""`dsopt report`: a study as one file."""

import json
from pathlib import Path

import click

from dsopt.api.one_thread import calculate_on_one_thread
from dsopt.cli.options import complete_study, print_json, storage_option
from dsopt.errors import DsoptError


@click.command()
@click.argument("study", shell_complete=complete_study)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The file. Default: STUDY-report.html.")
@click.option("--md", "as_markdown", is_flag=True, help="Markdown, on standard output unless --output is given.")
@click.option("--json", "as_json", is_flag=True, help="JSON, on standard output unless --output is given.")
@click.option("--force", is_flag=True, help="Replace the file of --output if it exists.")
@storage_option
def report(study: str, output: Path | None, as_markdown: bool, as_json: bool, force: bool, storage: str | None) -> None:
    """Write a STUDY as one file that needs nothing else: first what to change, then the evidence."""
    calculate_on_one_thread()
    from dsopt.api.output import refuse_existing
    from dsopt.api.reporting import study_report

    if as_markdown and as_json:
        raise click.UsageError("--md and --json are two forms. Give one of them.")
    found = study_report(study, storage=storage)
    if output is None and as_json:
        print_json(found.to_json())
    elif output is None and as_markdown:
        click.echo(found.markdown(), nl=False)
    else:
        text = found.markdown() if as_markdown else json.dumps(found.to_json(), indent=2) if as_json else found.html()
        path = output or Path(f"{study}-report.html")
        refuse_existing(path, example=f"{study}-report.html", force=force or output is None)
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise DsoptError(f"--output: {path}: cannot be written: {error.strerror}.") from None
        click.echo(f"Wrote {path}.")
