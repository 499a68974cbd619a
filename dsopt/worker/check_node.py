"""Checks that a study's runs can start on this node."""

import os
from pathlib import Path

from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool
from dsopt.launch.environment import check_variables
from dsopt.launch.program import find_launcher
from dsopt.study.comparison import specs_of_runs
from dsopt.study.spec import StudySpec
from dsopt.worker.capacity import check_capacity


def check_node(spec: StudySpec, pool: DevicePool) -> None:
    """Checks what a study's runs need: a working folder, devices, launchers, variables that the command names.

    Raises:
        DsoptError: something is missing.
    """
    is_here = os.path.isdir(spec.cwd)  # noqa: PTH112 - False also below a folder that is closed to this user
    if not (is_here or spec.is_simulated or pool.placer is not None):
        raise DsoptError(
            f"study '{spec.name}': its working folder {spec.cwd} is not on this node. If it was moved, move it back, "
            "or create a study under another --name where it is now."
        )
    check_capacity(spec, pool)
    if not spec.is_simulated:
        for run in specs_of_runs(spec):
            try:
                find_launcher(run.launch.program[0], Path(run.cwd))
            except DsoptError as error:
                raise DsoptError(f"study '{spec.name}': {error}") from None
            check_variables(run, os.environ)
