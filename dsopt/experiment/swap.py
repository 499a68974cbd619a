"""The folders that a run offloads to: its own, so that runs do not meet, and gone with it."""

import json
import shutil
from pathlib import Path
from typing import Any

from dsopt.experiment.rundir import RunDir

_PREFIX = "dsopt-swap-"


def give_own_swap(config: dict[str, Any], run_dir: RunDir, attempt_id: int, cwd: Path) -> None:
    """Puts a folder of the attempt's own below each `nvme_path` of a configuration, and makes it.

    A relative path is one from `cwd`, where the run is started. DeepSpeed names its swap files after the rank alone,
    and leaves them (`zero_stage_3/optimizer/rank0` and so on).

    Raises:
        OSError: the folder cannot be made.
    """
    for section in _sections(config):
        folder = cwd / section["nvme_path"] / f"{_PREFIX}{run_dir.path.name}-{attempt_id}"
        folder.mkdir(parents=True, exist_ok=True)
        section["nvme_path"] = str(folder)


def remove_swap(run_dir: Path) -> None:
    """Removes the folders that a run offloaded to, once it has ended."""
    try:
        config = json.loads(RunDir(run_dir).ds_config.read_text("utf-8"))
    except (OSError, ValueError):
        return  # ended before it was described
    for section in _sections(config):
        folder = Path(section["nvme_path"])
        if folder.name.startswith(_PREFIX):
            shutil.rmtree(folder, ignore_errors=True)


def _sections(config: dict[str, Any]) -> list[dict[str, Any]]:
    zero = config.get("zero_optimization")
    sections = [zero.get("offload_optimizer"), zero.get("offload_param")] if isinstance(zero, dict) else []
    return [s for s in sections if isinstance(s, dict) and s.get("device") == "nvme" and s.get("nvme_path")]
