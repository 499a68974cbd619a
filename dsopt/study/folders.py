"""The folders that a study's files go to. dsopt never touches what another study, or another program, wrote there."""

import contextlib
import errno
import os
import tempfile
import uuid
from pathlib import Path
from typing import Final

from dsopt.errors import DsoptError
from dsopt.protocol.given import open_given
from dsopt.protocol.private import create_private, make_private
from dsopt.study.spec import StudySpec

OPTIMAL: Final = "ds_config_optimal.json"
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)  # of file systems that have no hard links
_MOST_BYTES = 4096  # of a study's name
_MARK = ".dsopt-study"  # holds the name of the study whose folder it is


def results_folder(spec: StudySpec) -> Path:
    """Creates the folder of run directories and final files, and marks it as this study's."""
    return own_folder(Path(spec.cwd) / spec.results_dir, spec.name)


def find_results_folder(spec: StudySpec) -> Path | None:
    """The folder of run directories and final files, if this study already has one; creates nothing.

    None, too, if it is closed to this user.
    """
    with contextlib.suppress(PermissionError):
        return open_results_folder(spec)
    return None


def open_results_folder(spec: StudySpec) -> Path | None:
    """As `find_results_folder`, for whoever has to know that it is closed.

    Raises:
        PermissionError: it is.
    """
    base = folder = Path(spec.cwd) / spec.results_dir
    number = 1
    while folder.is_dir():
        mark = folder / _MARK
        if mark.exists() and _owner(mark) == spec.name:
            return folder
        folder = base / (spec.name if number == 1 else f"{spec.name}.{number}")
        number += 1
    return None


def is_run_directory(spec: StudySpec, path: str) -> bool:
    """Whether a path lies in the study's results folder, wherever else a database says that a run's files are."""
    try:
        return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(Path(spec.cwd) / spec.results_dir))
    except (OSError, ValueError):
        return False


def exps_folder(spec: StudySpec) -> Path:
    """Creates the folder of experiment descriptions, and marks it as this study's."""
    return own_folder(Path(spec.cwd) / spec.exps_dir, spec.name)


def check_path(cwd: Path, folder: str, place: str) -> None:
    """Refuses a file, or an invalid path; creates nothing. `place` is file and key, for messages."""
    try:
        path = cwd / folder
        is_file = path.exists() and not path.is_dir()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DsoptError(f"{place}: {folder!r} is not a valid path: {reason}. Expected a folder.") from None
    if is_file:
        raise DsoptError(f"{place}: {folder!r} is a file. Expected a folder.")


def check_folders(spec: StudySpec) -> None:
    """Creates the folders that runs write to, before anything runs.

    Raises:
        DsoptError: one of them cannot be created or written.
    """
    for key, path, make in (
        ("results_dir", spec.results_dir, results_folder),
        ("exps_dir", spec.exps_dir, exps_folder),
    ):
        folder = Path(spec.cwd) / path
        try:
            with tempfile.TemporaryFile(dir=make(spec)):
                pass
        except (OSError, ValueError) as error:
            reason = _dead_link(folder) or getattr(error, "strerror", None) or str(error)
            raise DsoptError(
                f"study '{spec.name}': autotuning.{key}: cannot write to {str(folder)!r}: {reason}. "
                "Fix the folder, or name another one in a new study."
            ) from None


def _dead_link(folder: Path) -> str | None:
    """Which link on the way to a folder leads nowhere, in words."""
    for path in (folder, *folder.parents):
        if os.path.islink(path) and not os.path.exists(path):  # noqa: PTH110, PTH114 - these raise nothing
            return f"{str(path)!r} is a link to {str(path.readlink())!r}, which is not there"
    return None


def own_folder(base: Path, study: str) -> Path:
    """`base` if it is this study's or empty, else a folder in it that is named after the study.

    Raises:
        OSError: the folder cannot be created or written.
    """
    folder, number = base, 1
    while not _is_own(folder, study):
        folder = base / (study if number == 1 else f"{study}.{number}")
        number += 1
    return folder


def _is_own(folder: Path, study: str) -> bool:
    """Whether a folder is the study's. An empty folder becomes the study's; several workers may ask at once."""
    make_private(folder)
    mark = folder / _MARK
    if not mark.exists():
        if any(not path.name.startswith(_MARK) for path in folder.iterdir()):
            return mark.exists() and _owner(mark) == study  # another worker may have begun meanwhile
        _put_mark(mark, study)
    return _owner(mark) == study


def _put_mark(mark: Path, study: str) -> None:
    """Writes the mark unless there is one, as a whole: a full disk, or a kill, never leaves an empty one for good."""
    whole = mark.with_name(f"{_MARK}.{uuid.uuid4().hex}")
    try:
        with create_private(whole) as file:
            file.write(study + "\n")
        os.link(whole, mark)
    except OSError as error:
        if error.errno in _NO_LINKS:
            whole.replace(mark)
        elif error.errno != errno.EEXIST:
            raise
    finally:
        whole.unlink(missing_ok=True)


def _owner(mark: Path) -> str:
    """The study that owns the folder."""
    with open_given(mark) as file:
        return file.read(_MOST_BYTES).decode("utf-8", "replace").strip()
