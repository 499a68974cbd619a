"""Writes the study file for an existing DeepSpeed autotuning setup."""

import os
from collections.abc import Sequence
from pathlib import Path

from dsopt.autotuner.conversion import study_from_autotuning, study_text
from dsopt.errors import DsoptError


def write_study_file(
    ds_config: str | os.PathLike[str],
    command: Sequence[str],
    *,
    name: str | None = None,
    output: str | os.PathLike[str] | None = None,
) -> tuple[Path, list[str]]:
    """Writes the study file for a DeepSpeed configuration and its launch command.

    Args:
        ds_config: DeepSpeed's configuration, with its `autotuning` section.
        command: the launch command, word by word, as typed in the working directory.
        name: of the study; None: the script's.
        output: the file to write; None: `NAME.yaml`.

    Returns:
        The file, and warnings.

    Raises:
        DsoptError: the setup has a mistake, or the file already exists or cannot be written.
    """
    source = Path(ds_config)
    content, warnings = study_from_autotuning(source, command, cwd=Path.cwd(), name=name)
    target = Path(output) if output is not None else Path(f"{content['name']}.yaml")
    if target.resolve().parent == Path.cwd():
        del content["cwd"]  # the study file's folder
    write_new_file(target, study_text(content, source))
    return target, warnings


def write_new_file(path: Path, text: str) -> None:
    """Writes a new file.

    Raises:
        DsoptError: it already exists, or cannot be written.
    """
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise DsoptError(f"--output: {path} already exists. Give another name with -o, or remove it.") from None
    except OSError as error:
        raise DsoptError(f"--output: {path}: cannot be written: {error.strerror}.") from None
