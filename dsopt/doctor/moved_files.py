"""The user's files that a run's script moved, where nobody has put them back: as after the machine got another name."""

from collections.abc import Iterator
from typing import Final

from dsopt.doctor.check import Check, ok, warning
from dsopt.launch.put_back import still_away
from dsopt.protocol.run_dir import RunDir
from dsopt.study.folders import open_results_folder
from dsopt.study.spec import StudySpec

NAME: Final = "moved-files"


def check_moved_files(spec: StudySpec) -> Iterator[Check]:
    """Each file that is still where a run of the study has moved it, of whatever machine."""
    try:
        results = open_results_folder(spec)
        runs = [RunDir(path) for path in sorted(results.iterdir())] if results is not None else []
    except PermissionError as error:
        told = f"{error.filename} is closed to you, so nobody looked whether a run has left a file of yours elsewhere"
        yield warning(NAME, told, "Ask whoever works on the study to run this")
        return
    away = [(run_dir, event) for run_dir in runs for event in still_away(run_dir)]
    for run_dir, event in away:
        did = "wrote to {0}: what that held is in {1}" if event.is_copy else "moved {0} to {1}"
        told = f"the script of run {run_dir.path.name} {did.format(event.path, event.to)}, and nobody has put it back"
        yield warning(NAME, told, "A worker does once that run ends, or when it begins. If it cannot, do it yourself")
    if not away:
        yield ok(NAME, "no run has left a file of yours elsewhere")
