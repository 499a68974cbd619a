"""The file of a study's script, which may change after runs have shown something of it."""

from pathlib import Path

from dsopt.study.spec import StudySpec


def script_of(spec: StudySpec) -> tuple[Path, float]:
    """The script's file, and when it was written, in seconds since the epoch; 0 for a dry run or without a file."""
    path = Path(spec.cwd) / spec.launch.script
    return path, path.stat().st_mtime if path.is_file() and not spec.is_simulated else 0.0
