"""What a run has left in the working folder whose worker is gone, as its trial keeps it."""

from pathlib import Path

from dsopt.launch.outside import left_by, shown_paths
from dsopt.protocol.run_dir import RunDir
from dsopt.study.folders import is_run_directory
from dsopt.study.spec import StudySpec
from dsopt.study.trial_attributes import TrialAttributes


def attributes_left(spec: StudySpec, run_dir: str) -> TrialAttributes:
    """What whoever saw to the end of a run has noted, if its folder is one of the study's and on this machine."""
    attrs = TrialAttributes()
    if is_run_directory(spec, run_dir):
        left = left_by(RunDir(Path(run_dir)))
        if paths := shown_paths(Path(spec.cwd), left.paths):
            attrs["wrote_outside"] = ", ".join(paths)
        if left.saves_in_place:
            attrs["saves_in_place"] = True
    return attrs
