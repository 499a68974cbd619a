"""The gallery `studies/`: its folders, and a copy of it to work in."""

import shutil
from pathlib import Path

from tests.conftest import STUDIES, Dsopt

FOLDERS = sorted(path.parent.relative_to(STUDIES).as_posix() for path in STUDIES.glob("**/study.yaml"))
DRY_RUNS = sorted(path.parent.relative_to(STUDIES).as_posix() for path in STUDIES.glob("**/dry-run.yaml"))


def copy_gallery(dsopt: Dsopt) -> Path:
    """Copies `studies/` into the command's working folder, without what earlier runs left there."""
    ignored = shutil.ignore_patterns("autotuning_*", ".dsopt", "out", "__pycache__")
    return shutil.copytree(STUDIES, dsopt.cwd / "studies", ignore=ignored)
