"""The folders a study's files go to. What another study, or another program, wrote is never touched."""

import time
from pathlib import Path

from dsopt.study.spec import StudySpec

_WRITING_SECONDS = 1.0
_MARK = ".dsopt-study"  # holds the name of the study whose folder it is


def results_folder(spec: StudySpec) -> Path:
    """The folder of run directories and final files, made and marked as this study's."""
    return own_folder(Path(spec.cwd) / spec.results_dir, spec.name)


def exps_folder(spec: StudySpec) -> Path:
    """The folder of experiment descriptions, made and marked as this study's."""
    return own_folder(Path(spec.cwd) / spec.exps_dir, spec.name)


def own_folder(base: Path, study: str) -> Path:
    """`base` where it is this study's or holds nothing yet, else a folder named after the study in it.

    Raises:
        OSError: it cannot be made or written.
    """
    folder, number = base, 1
    while not _is_own(folder, study):
        folder = base / (study if number == 1 else f"{study}.{number}")
        number += 1
    return folder


def _is_own(folder: Path, study: str) -> bool:
    """Whether a folder is the study's, which it becomes when it is empty; several workers may ask at once."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / _MARK
    if not mark.exists() and any(folder.iterdir()):
        return mark.exists() and _owner(mark) == study
    try:
        with mark.open("x", encoding="utf-8") as file:
            file.write(study + "\n")
    except FileExistsError:
        return _owner(mark) == study
    return True


def _owner(mark: Path) -> str:
    """Whose folder it is; the one who made the mark a moment ago may not have written the name yet."""
    deadline = time.monotonic() + _WRITING_SECONDS
    while not (name := mark.read_text("utf-8", errors="replace").strip()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return name  # nobody's where it was never written
