"""The folders that a run offloads to. Each run has its own, which dsopt removes after the run."""

import shutil
from pathlib import Path
from typing import Any

from dsopt.launch.passing import refusal
from dsopt.protocol.given import read_given_json
from dsopt.protocol.private import make_private
from dsopt.protocol.run_dir import RunDir

_PREFIX = "dsopt-swap-"


def give_own_swap(config: dict[str, Any], run_dir: RunDir, attempt_id: str, cwd: Path) -> None:
    """Creates the attempt's own folder below each `nvme_path` of a configuration, and sets the path to it.

    A relative path starts from `cwd`, where the run starts. DeepSpeed names its swap files only after the rank, and
    does not remove them (`zero_stage_3/optimizer/rank0` and so on).

    Raises:
        DsoptError: the folder cannot be created; a `PassingError` if it can be at another time.
    """
    for section in _sections(config):
        given = section["nvme_path"]
        try:
            folder = cwd / given / f"{_PREFIX}{run_dir.path.name}-{attempt_id}"
            make_private(folder)
        except (OSError, TypeError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise refusal(
                f"nvme_path: cannot use {given!r}: {reason}. Expected a folder that this user may write to; "
                "fix the path or the folder.",
                error,
            ) from None
        section["nvme_path"] = str(folder)


def remove_swap(run_dir: Path) -> None:
    """Removes the folders that a run offloaded to, after its end."""
    try:
        folders = [Path(section["nvme_path"]) for section in _sections(read_given_json(RunDir(run_dir).ds_config))]
    except (OSError, ValueError, TypeError, AttributeError):
        return  # the run ended before it was described, or the script has changed that
    for folder in folders:
        if folder.name.startswith(_PREFIX):
            shutil.rmtree(folder, ignore_errors=True)


def _sections(config: dict[str, Any]) -> list[dict[str, Any]]:
    zero = config.get("zero_optimization")
    sections = [zero.get("offload_optimizer"), zero.get("offload_param")] if isinstance(zero, dict) else []
    return [s for s in sections if isinstance(s, dict) and s.get("device") == "nvme" and s.get("nvme_path")]
