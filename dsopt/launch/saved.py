"""Removes what a run has saved: the next one, and the training itself, must not go on from an experiment's weights."""

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from dsopt.launch.beside import went_on_beside
from dsopt.launch.put_back import is_copy, keep_replaced
from dsopt.launch.told import is_own, told_here
from dsopt.protocol.birth import has_birth, was_there
from dsopt.protocol.checkpoint_names import FILE, WEIGHTS
from dsopt.protocol.events import Moved, Saved
from dsopt.protocol.file_events import being_saved, identity_of, saved_file
from dsopt.protocol.run_dir import RunDir

_LARGEST_KEPT: Final = 2**20  # bytes of a log, or of figures


def remove_saved(run_dir: RunDir, until_ns: int, *, is_late: bool = False) -> None:
    """Removes what may be weights of a run (`weights_in`), if it is as that left it, and links to nothing.

    Its processes are gone. It removes those on this machine. A file that somebody else has put there, or
    has written to since, stays. So do files that a folder names which no worker of this user has made.

    What the run was still writing when it ended goes to its own folder where others may have written to it since or
    beside it: in the place of a file of the user's, unless it has the name of a checkpoint; and if `is_late`, which
    says that nobody was there when it ended.
    """
    moved = told_here(run_dir, Moved)
    theirs = {event.path: Path(event.to) for event in moved}
    in_place = {(event.path, event.inode) for event in moved if event.is_copy}
    last = {
        (event.rank, event.path, event.inode): event
        for event in weights_in(told_here(run_dir, Saved))
        if (event.path, event.inode) not in in_place
    }
    removed, began_ns = set[Path](), _began_ns(run_dir)
    # links come after what they name; unlike `Path.is_symlink`, this takes any text
    for saved in sorted(last.values(), key=lambda saved: os.path.islink(saved.path)):  # noqa: PTH114
        with contextlib.suppress(OSError):
            may_be_others = is_late or (saved.path in theirs and not FILE.fullmatch(Path(saved.path).name))
            if is_older(Path(saved.path), run_dir):
                continue  # whatever was told of it
            if may_be_others and saved.path in theirs:
                may_be_others = not is_copy(Path(saved.path), theirs[saved.path])
            if _is_removed(saved, until_ns, run_dir if may_be_others else None):
                removed.add(Path(os.path.realpath(saved.path)))
    for folder in {path.parent for path in removed}:
        with contextlib.suppress(OSError):
            _remove_links(folder, removed, began_ns)


def weights_in(told: Iterable[Saved]) -> list[Saved]:
    """What may be weights of what a run has told: by a function that saves, or by their name, after the first step.

    What only has the name may be data, unless the run has made its folder, and nothing there or below before that step.
    """
    events = [*told]
    early = [Path(event.path) for event in events if event.is_plain and event.is_early]
    may_have = {Path(event.path) for event in events} - {folder for path in early for folder in path.parents}

    def is_named_so(path: Path) -> bool:
        return path.parent in may_have and WEIGHTS.fullmatch(path.name) is not None

    return [e for e in events if not e.is_plain or (not e.is_early and is_named_so(Path(e.path)))]


def is_older(path: Path, run_dir: RunDir) -> bool:
    """Whether something is older than a run, and than those beside it, as far as the file system tells births."""
    if not has_birth(path) or not was_there(path, _began_ns(run_dir) - 1):
        return False
    return all(was_there(path, _began_ns(run) - 1) for run in went_on_beside(run_dir))


def _began_ns(run_dir: RunDir) -> int:
    return run_dir.mark.stat().st_mtime_ns


def _is_removed(saved: Saved, until_ns: int, keeper: RunDir | None) -> bool:
    """Removes a file that is as it was saved, or a link to nothing; whether it was a file, which others may name.

    `keeper`: gets what may have changed since it was told.
    """
    path = Path(saved.path)
    found = os.lstat(path)
    seen = replace((saved_file if saved.changed else being_saved)(saved.rank, path), host=saved.host)
    is_empty_link = stat.S_ISLNK(found.st_mode) and not path.exists()
    if not saved.born:  # nobody could tell, or an older dsopt did not
        seen = replace(seen, born="")
    if not saved.changed and found.st_mtime_ns > until_ns:
        return False
    if seen != saved or not (stat.S_ISREG(found.st_mode) or is_empty_link):
        return False
    if keeper is not None and not saved.changed and not is_empty_link:
        keep_replaced(path, keeper)
    else:
        path.unlink()
    return not is_empty_link


def _remove_links(folder: Path, removed: set[Path], began_ns: int) -> None:
    """Removes the links of a folder that are of this run and named what is removed: they point to nothing."""
    for link in folder.iterdir():
        is_new = link.is_symlink() and link.lstat().st_mtime_ns >= began_ns
        if is_new and Path(os.path.realpath(link)) in removed and not link.exists():
            link.unlink()


def _files_below(folder: Path) -> Iterator[Path]:
    return (Path(top, name) for top, _, names in os.walk(folder) for name in names)


def is_much(path: Path) -> bool:
    """Whether a file is large, or has a checkpoint's name."""
    return FILE.fullmatch(path.name) is not None or path.lstat().st_size > _LARGEST_KEPT


def remove_weights(run_dir: RunDir, *, is_late: bool = False) -> None:
    """Removes what is large, or has a checkpoint's name, of what a run has written below its own folder.

    So it does with checkpoints that it has saved in the place of the user's, unless `is_late`, as in `remove_saved`.
    Its logs and figures stay, for whoever asks why it failed. So does what is older than the run: it may be the user's,
    moved there, where it could not be put back.
    """
    mark = run_dir.mark.stat()
    told = {(event.inode, event.born) for event in told_here(run_dir, Saved) if event.born}
    for path in () if is_late else (*_files_below(run_dir.replaced),):
        with contextlib.suppress(OSError):
            if FILE.fullmatch(path.name) and identity_of(path) in told:
                path.unlink()
    for top in run_dir.written if is_own(run_dir) else ():  # else a database names a folder of others
        for folder, _, names in os.walk(top, topdown=False) if not top.is_symlink() else ():
            for path in (Path(folder, name) for name in names):
                with contextlib.suppress(OSError):
                    if is_much(path) and not was_there(path, mark.st_mtime_ns):
                        path.unlink()
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # noqa: PTH106 - unless something is left in it
