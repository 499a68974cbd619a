"""What a run has left in the working folder, as its trial keeps it."""

from collections.abc import Sequence
from pathlib import Path

from dsopt.launch.outside import noted, shown_paths
from dsopt.protocol.run_dir import RunDir
from dsopt.study.folders import is_run_directory
from dsopt.study.spec import StudySpec
from dsopt.study.trial_attributes import TrialAttributes


def attributes_left(paths: Sequence[str], *, saves_in_place: bool) -> TrialAttributes:
    """What is written on a trial: paths in the working folder, and whether a run beside it would save there, too."""
    attrs = TrialAttributes()
    if paths:
        attrs["wrote_outside"] = ", ".join(paths)
    if saves_in_place:
        attrs["saves_in_place"] = True
    return attrs


def attributes_noted(spec: StudySpec, run_dir: str) -> TrialAttributes:
    """The same of a run whose worker is gone, if its folder is one of the study's and on this machine."""
    if not is_run_directory(spec, run_dir):
        return TrialAttributes()
    left = noted(RunDir(Path(run_dir)))
    return attributes_left(shown_paths(Path(spec.cwd), left.paths), saves_in_place=left.saves_in_place)
