"""`dsopt report`: a study as one file."""

import json
from pathlib import Path
from typing import Final

import click

from dsopt.api.one_thread import calculate_on_one_thread
from dsopt.cli.options import complete_study, storage_option

_TITLE: Final = "– dsopt report</title>".encode()
_FORMS: Final = {".html": "html", ".htm": "html", ".md": "md", ".json": "json"}
_HEAD: Final = 2048  # bytes, in which a page has its title


@click.command()
@click.argument("study", shell_complete=complete_study)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, allow_dash=True),
    help="The file; its name ends in .html, .md or .json. '-' prints it. Default: STUDY-report.html.",
)
@click.option("--md", "as_markdown", is_flag=True, help="Markdown, on standard output unless --output is given.")
@click.option("--json", "as_json", is_flag=True, help="JSON, on standard output unless --output is given.")
@click.option(
    "--force",
    is_flag=True,
    help="Replace the file if it exists; an earlier report of the default name is replaced anyway.",
)
@storage_option
def report(study: str, output: Path | None, as_markdown: bool, as_json: bool, force: bool, storage: str | None) -> None:
    """Write a STUDY as one file that needs nothing else: first what to change, then the evidence."""
    calculate_on_one_thread()
    from dsopt.api.output import write_whole
    from dsopt.api.reporting import study_report

    if as_markdown and as_json:
        raise click.UsageError("--md and --json are two forms. Give one of them.")
    form = "md" if as_markdown else "json" if as_json else _form_of(output)
    found = study_report(study, storage=storage)
    text = (
        found.markdown() if form == "md" else found.html() if form == "html" else json.dumps(found.to_json(), indent=2)
    )
    if str(output) == "-" or (output is None and form != "html"):
        click.echo(text, nl=not text.endswith("\n"))
    else:
        name = f"{study}-report.html"
        path = output or Path(name)
        write_whole(path, text.encode(), example=name, force=force or (output is None and _is_report(path)))
        click.echo(f"Wrote {path}.")


def _form_of(output: Path | None) -> str:
    """The form that a file's name tells."""
    if output is None or str(output) == "-":
        return "html"
    form = _FORMS.get(output.suffix.lower())
    if form is None:
        raise click.UsageError(f"{output}: a report's name ends in .html, .md or .json; or give --md or --json.")
    return form


def _is_report(path: Path) -> bool:
    """Whether a file is an earlier report, which a new one replaces without asking."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return _TITLE in file.read(_HEAD)
