"""The files a finished study leaves in its results folder."""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsopt.experiment.results import results_folder
from dsopt.report.batch_size import batch_advice, scale_rates
from dsopt.report.summary import Summary, optimal_candidate
from dsopt.search.history import History
from dsopt.study.candidate_run import candidate_command, run_config
from dsopt.study.command import LaunchCommand
from dsopt.study.spec import StudySpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The best configuration, ready to use: DeepSpeed's configuration and the command that goes with it."""

    ds_config: dict[str, Any]
    command: LaunchCommand


def optimum(spec: StudySpec, history: History, *, scale_lr: bool = False) -> Optimum:
    """The best configuration of a study that has a result; with `scale_lr`, its learning rate fits its batch."""
    candidate = optimal_candidate(history)
    config = run_config(spec, candidate, history.aio)
    command = candidate_command(spec, candidate)
    advice = batch_advice(spec, history, candidate)
    if scale_lr and advice is not None:
        config, command = scale_rates(advice, config, command)
    return Optimum(ds_config=config, command=command)


def write_files(spec: StudySpec, history: History, summary: Summary, *, scale_lr: bool = False) -> list[Path]:
    """Writes `summary.txt` and, where there is a result, `ds_config_optimal.json` and `cmd_optimal.txt`.

    Where there is none, those of an earlier result get another name: they would look like this one's.
    """
    folder = results_folder(spec)
    written = [write_summary(spec, summary.text(scaled=scale_lr))]
    config, command = folder / "ds_config_optimal.json", folder / "cmd_optimal.txt"
    if summary.comparison is None:
        for path in (config, command):
            if path.exists():
                path.replace(path.with_name(f"{path.name}.earlier"))
    else:
        best = optimum(spec, history, scale_lr=scale_lr)
        write_config(config, best)
        line = f"cd {shlex.quote(spec.cwd)} && {best.command.with_config(str(config))}\n"
        command.write_text(line, encoding="utf-8")
        written += [config, command]
    return written


def write_summary(spec: StudySpec, text: str) -> Path:
    """Writes `summary.txt`."""
    path = results_folder(spec) / "summary.txt"
    path.write_text(text + "\n", encoding="utf-8")
    return path


def write_config(path: Path, best: Optimum) -> None:
    """Writes DeepSpeed's configuration of the best."""
    path.write_text(json.dumps(best.ds_config, indent=2) + "\n", encoding="utf-8")
