"""Creates studies, for the commands that do: with what an earlier study has run already."""

from collections import Counter

import click

from dsopt.store.studies import Store, StoredStudy
from dsopt.study.spec import StudySpec
from dsopt.worker.takeover import TakenOver, check_source, take_over


def create_study(store: Store, spec: StudySpec, earlier: str | None) -> tuple[StoredStudy, bool]:
    """Creates a study, or finds it with the same spec, and takes over what `earlier` has run; says what came of that.

    Returns:
        The study, and whether it is new.

    Raises:
        DsoptError: it cannot be created, or nothing of `earlier` could be the same; nothing is changed then.
    """
    source = None if earlier is None else store.get(earlier)
    if source is not None:
        check_source(spec, source.spec)
    study, is_new = store.create(spec)
    if source is not None and study.state != "finished":
        _show(take_over(store, study, source), source.name)
    return study, is_new


def _show(result: TakenOver, source: str) -> None:
    click.echo(f"Taken over from study '{source}', and not measured again: {', '.join(result.taken) or 'nothing new'}.")
    if result.known:
        click.echo(f"Known already: {', '.join(result.known)}.")
    for why, count in Counter(why for _, why in result.left).most_common():
        names = ", ".join(name for name, reason in result.left if reason == why)
        click.echo(f"Left, {count}, since {why}: {names}.")
