"""What to know before this process works on studies."""

from collections.abc import Sequence
from pathlib import Path

from dsopt.api.study import Study
from dsopt.report.changed_config import changed_config
from dsopt.store.told import unsigned_note
from dsopt.study.own_sources import script_file


def notes_on(studies: Sequence[Study]) -> list[str]:
    """Whom a node without keys trusts, once per node and database; what was changed, or may be taken for another."""
    notes = [
        note
        for study in studies
        for note in (unsigned_note(study._store.engine), _elsewhere(study), changed_config(study.spec))
    ]
    return [note for note in notes if note is not None]


def _elsewhere(study: Study) -> str | None:
    """A folder may be a copy of the study's, with the database in it: runs are those of the first one's script."""
    ran, here = script_file(study.spec), Path(study.spec.launch.script).absolute()
    try:
        is_another = ran is not None and here.is_file() and not here.samefile(ran)
    except OSError:  # a folder is closed to this user
        return None
    if not is_another:
        return None
    return (
        f"study '{study.name}' runs {ran}, and not {here}. To tune this one, create a study of it under another name "
        "(--name)"
    )
