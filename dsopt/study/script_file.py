"""The file of a study's script, which may change after runs have shown something of it."""

import hashlib
from pathlib import Path
from typing import Final

from dsopt.study.spec import StudySpec

_DIGITS: Final = 16


def script_file(spec: StudySpec) -> Path | None:
    """The file that its launcher runs; None for a dry run, or where there is none in the working folder."""
    if spec.is_simulated:
        return None
    name = Path(spec.launch.script)
    if spec.launch.is_module:
        name = Path(*spec.launch.script.split("."))
        names = [name.with_suffix(".py"), name / "__main__.py"]
    else:
        names = [name]
    return next((file for one in names if (file := Path(spec.cwd) / one).is_file()), None)


def script_digest(spec: StudySpec) -> str:
    """What the file holds, as the beginning of its SHA-256; empty where there is no file that can be read."""
    file = script_file(spec)
    try:
        return "" if file is None else hashlib.sha256(file.read_bytes()).hexdigest()[:_DIGITS]
    except OSError:
        return ""
