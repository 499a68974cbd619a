"""Files that a person names to write to: what is there already stays, unless it is to be replaced."""

from pathlib import Path

from dsopt.errors import DsoptError


def refuse_existing(path: Path, *, example: str, force: bool) -> None:
    """Refuses to write over what is there.

    Args:
        path: the file.
        example: a name for one, such as `runs.csv`.
        force: whether a file is to be replaced.

    Raises:
        DsoptError: it is a folder, a pipe or a device, or exists without `force`.
    """
    if path.is_dir():
        raise DsoptError(f"{path}: is a folder. Name a file in it, such as {path / example}.")
    if path.exists() and not path.is_file():
        raise DsoptError(f"{path}: is a pipe or a device. Name a file.")
    if not force and (path.exists() or path.is_symlink()):
        raise DsoptError(f"{path}: exists. Name another file, or replace it with --force (in Python: force=True).")
