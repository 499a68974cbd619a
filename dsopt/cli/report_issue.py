"""`dsopt report-issue`: what an issue needs to be looked into, without secrets."""

from pathlib import Path

import click

from dsopt.cli.options import open_store, storage_option
from dsopt.errors import DsoptError
from dsopt.report.issue import StudyReport, issue_report
from dsopt.store.studies import Store


@click.command("report-issue")
@click.argument("study", required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write it to this file.")
@storage_option
def report_issue(study: str | None, output: Path | None, storage: str) -> None:
    """Collect versions, configuration, command and the last failure of a STUDY (default: the newest) for an issue.

    Secrets are left out: what variables, flags and keys with a telling name hold, and what looks like a token. Read it
    before you send it.
    """
    try:
        store = open_store(storage)
    except DsoptError as error:
        if study is not None:
            raise
        text = issue_report(f"cannot be read: {error}", None)
    else:
        text = issue_report(store.shown_url.partition(":")[0], _study_of(store, study))
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise DsoptError(f"--output: {output} exists already. Give another name with -o, or remove it.") from None
    except OSError as error:
        raise DsoptError(f"--output: {output}: cannot be written: {error.strerror}.") from None
    click.echo(f"Wrote {output}. Read it before you send it.")


def _study_of(store: Store, name: str | None) -> StudyReport | None:
    """The study of that name, or the newest one; None where there is none."""
    newest = store.headers()[-1:]
    if name is None and not newest:
        return None
    found = store.get(newest[0].name if name is None else name)
    return StudyReport(
        spec=found.spec, state=found.state, note=found.note, runs=[dict(run) for run in store.runs(found)]
    )
