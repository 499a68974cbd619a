"""Isolates an experiment from the user's files: it has its own folders, and resumes, saves and reports nothing."""

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dsopt.study.command import LaunchCommand
from dsopt.study.curricula import end_curricula
from dsopt.study.ds_config import get_path, set_path
from dsopt.study.script_flags import same_flag

# Flags of the Hugging Face Trainer and of Accelerate's example scripts. Whatever a script does without flags, the probe
# isolates in the training process (`probe/isolation.py`).
FOLDERS: Final = ("--output_dir", "--logging_dir", "--project_dir")
RESUMING: Final = ("--resume_from_checkpoint",)
_SAVING: Final = ("--checkpointing_steps",)
_SWITCHES: Final = ("--push_to_hub", "--with_tracking", "--load_best_model_at_end")
_VALUES: Final = {"--report_to": "none", "--save_strategy": "no"}
KNOWN: Final = (*FOLDERS, *RESUMING, *_SAVING, *_SWITCHES, *_VALUES)
# flags whose names suggest that they say where a script writes
_WRITES: Final = re.compile(
    r"--?(save|out|output|((save|ckpt|checkpoint|output|out|log|tensorboard|tb|results?)s?_)+(dir|path|folder|root))"
)
_TRUTHS: Final = frozenset(["true", "false", "yes", "no", "1", "0"])

# DeepSpeed's own reports, and what it saves by itself
_REPORTS: Final = ("tensorboard", "wandb", "comet", "csv_monitor", "nebula")
CLUSTERS: Final = "data_clusters"  # an index of the whole data set: it may be large
_WRITTEN: Final = {  # what it writes to, each by its name in a run's own folder
    "flops_profiler": "flops_profiler.output_file",
    CLUSTERS: "data_efficiency.data_sampling.curriculum_learning.data_cluster_path",
}

# variables that turn off reporting, however a script is written
_QUIET: Final[Mapping[str, str]] = {
    "WANDB_MODE": "disabled",
    "CLEARML_OFFLINE_MODE": "1",
    "NEPTUNE_MODE": "debug",
    "COMET_AUTO_LOG_DISABLE": "1",
}


def folder_flags(command: LaunchCommand, isolate: Sequence[str]) -> list[str]:
    """The flags of a command for which each run has its own folder: the known ones that it has, and `isolate`."""
    known = [flag for flag in FOLDERS if command.script_switch(flag) is not None]
    return [*known, *(flag for flag in isolate if not any(same_flag(flag, other) for other in known))]


def isolated_command(
    command: LaunchCommand, isolate: Sequence[str], own_path: Callable[[str, str], Path]
) -> LaunchCommand:
    """The command of an experiment, which never resumes from, saves to or reports to anything of the user's.

    Args:
        command: the command that would train with the configuration.
        isolate: further flags of the script that name what it writes.
        own_path: gives the run's own path for a flag and the value that the user gave it, which may be empty.
    """
    for flag in folder_flags(command, isolate):
        command = command.with_script_value(flag, str(own_path(flag, command.script_switch(flag) or "")))
    for flag in (*RESUMING, *_SAVING):
        command = command.with_script_switch(flag, None)
    for flag in _SWITCHES:
        given = command.script_switch(flag)
        if given is not None:
            command = command.with_script_switch(flag, None, takes_value=given.lower() in _TRUTHS)
    for flag, value in _VALUES.items():
        if command.script_switch(flag) is not None:
            command = command.with_script_value(flag, value)
    return command


def isolated_config(config: Mapping[str, Any], own_path: Callable[[str, str], Path]) -> dict[str, Any]:
    """DeepSpeed's configuration of an experiment.

    Monitors are off, what DeepSpeed writes goes to the run's folder, and curricula are at their end.
    """
    result = copy.deepcopy(dict(config))
    for section in _REPORTS:
        if get_path(result, f"{section}.enabled"):
            set_path(result, f"{section}.enabled", False)
    for name, path in _WRITTEN.items():
        given = get_path(result, path)
        if given:
            set_path(result, path, str(own_path(name, str(given))))
    end_curricula(result)
    return result


def quiet_environment(run_dir: Path) -> dict[str, str]:
    """The variables with which a run reports nothing, or only to a file of its own."""
    return {
        **_QUIET,
        "MLFLOW_TRACKING_URI": f"file://{run_dir}/mlruns",  # with its artifacts, and for several ranks
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "CLEARML_CACHE_DIR": f"{run_dir}/clearml",
    }


def config_notes(config: Mapping[str, Any]) -> list[str]:
    """Says how an experiment's configuration differs from the user's in what they may not expect."""
    return [
        f"{path}: experiments begin at its end, as a few steps cannot show it all; the result keeps it as it is"
        for path in end_curricula(copy.deepcopy(dict(config)))
    ]


def isolation_notes(command: LaunchCommand, isolate: Sequence[str]) -> list[str]:
    """Says how an experiment's command differs from the user's, and which other flags may need isolation."""
    own = folder_flags(command, isolate)
    given = {flag: command.script_switch(flag) for flag in KNOWN if flag not in FOLDERS}
    changed = [flag for flag, value in given.items() if value not in (None, _VALUES.get(flag))]
    notes = []
    if own:
        notes.append(f"each experiment has its own folder for {', '.join(own)}")
    if changed:
        notes.append(f"experiments neither resume, save nor report, whatever {', '.join(changed)} says")
    for flag in command.given_flags:
        is_known = any(same_flag(flag, known) for known in (*own, *FOLDERS))
        if _WRITES.fullmatch(flag.replace("-", "_").replace("__", "--", 1)) and not is_known:
            notes.append(
                f"{flag} seems to name what the script writes. If it does, give each experiment its own path with "
                f"isolate: [{flag}] (on the command line: --isolate={flag})"
            )
    return notes
