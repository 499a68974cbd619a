"""Reads the `results_dir` of DeepSpeed's own autotuner, which has a folder for each experiment.

An experiment's folder contains `exp.json` (name, GPUs, nodes, configuration), `ds_config.json`, `cmd.txt`,
`stdout.log`, `stderr.log` and, if it was measured, `metrics.json`. The `results_dir` also has a profile of the model
and the final files.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dsopt.autotuner.candidate_of import ForeignRun
from dsopt.errors import DsoptError
from dsopt.experiment.outcome import DEEPSPEED_KEYS
from dsopt.protocol.out_of_memory import says_out_of_memory
from dsopt.protocol.run_dir import RunDir
from dsopt.study.command import LaunchCommand
from dsopt.study.documents import parse_json, read_json, read_text

_UNITS: Final = {"latency": 0.001}  # converts a figure to dsopt's unit: DeepSpeed gives microseconds
_LINE_LENGTH = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One experiment that was measured or ran out of memory.

    Attributes:
        name: its folder's.
        folder: its path, absolute.
        run: configuration, command and resources.
        figures: by dsopt's metric: samples/s, milliseconds of an optimizer step, FLOPS of one GPU. Empty if it ran
            out of memory.
        out_of_memory: the line that says so.
    """

    name: str
    folder: Path
    run: ForeignRun
    figures: Mapping[str, float]
    out_of_memory: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """A skipped folder, with the reason for people."""

    name: str
    why: str


def read_results(folder: Path) -> tuple[list[Experiment], list[PassedOver]]:
    """The experiments in a results folder, by name, and the folders in it that are not experiments, or incomplete.

    Raises:
        DsoptError: there is no such folder, or no experiment in it.
    """
    expected = (
        "Expected the results_dir of DeepSpeed's autotuner, with a folder that contains exp.json for each experiment"
    )
    try:
        folders = sorted(path for path in Path(os.path.realpath(folder)).iterdir() if path.is_dir())
        found = any(RunDir(path).description.exists() for path in folders)
    except FileNotFoundError:
        raise DsoptError(f"{folder}: no such folder. {expected}; check the path.") from None
    except NotADirectoryError:
        raise DsoptError(f"{folder}: is a file. {expected}.") from None
    except (OSError, ValueError) as error:
        raise DsoptError(f"{folder}: cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if not found:
        hint = ""
        if RunDir(folder).description.exists():
            hint = f" This is one experiment: give the folder that it is in, {folder.resolve().parent}."
        elif any(folder.glob("*.json")):
            hint = " Is it the exps_dir? That describes only what to run."
        raise DsoptError(f"{folder}: contains no experiment. {expected}.{hint}")
    experiments, passed_over = [], []
    for path in folders:
        try:
            experiments.append(_read(path))
        except (DsoptError, OSError) as error:
            passed_over.append(PassedOver(name=path.name, why=str(error).rstrip(".")))
    return experiments, passed_over


def chosen_config(folder: Path, metric: str, *, maximize: bool) -> tuple[dict[str, Any], str]:
    """The configuration that DeepSpeed's autotuner has chosen, and where it is.

    It is its `ds_config_optimal.json`, else that of the best experiment by a metric of dsopt.

    Raises:
        DsoptError: as `read_results`, or no experiment has a figure for the metric.
    """
    optimal = folder / "ds_config_optimal.json"
    if optimal.exists():
        return read_json(optimal), str(optimal)
    experiments, _ = read_results(folder)
    measured = [experiment for experiment in experiments if metric in experiment.figures]
    if not measured:
        raise DsoptError(f"{folder}: no experiment has a figure for {metric}. Expected one that was measured.")
    best = (max if maximize else min)(measured, key=lambda experiment: experiment.figures[metric])
    return dict(best.run.ds_config), str(best.folder)


def _read(folder: Path) -> Experiment:
    """One experiment.

    Raises:
        DsoptError: it is not an experiment, it is incomplete, or it failed.
    """
    files = RunDir(folder)
    if not files.description.exists():
        raise DsoptError("contains no exp.json: it is not an experiment")
    content = read_json(files.description)
    if "round" in content:
        raise DsoptError("is a run of dsopt, not of DeepSpeed's autotuner")
    config = content.get("ds_config")
    if not isinstance(config, dict):
        raise DsoptError(f"{files.description}: ds_config: {config!r}. Expected DeepSpeed's configuration")
    try:
        json.dumps(config, ensure_ascii=False).encode("utf-8")
    except ValueError:
        raise DsoptError(f"{files.description}: ds_config contains invalid text") from None
    section = config.get("autotuning")
    if isinstance(section, dict) and "model_info_path" in section:
        raise DsoptError("is the profile of the model, not an experiment")
    if not files.command.exists():
        raise DsoptError("contains no cmd.txt: it was not launched")
    words = read_text(files.command, "command of an experiment").split()
    run = ForeignRun(
        ds_config=config,
        command=LaunchCommand.parse(words, str(files.command)),
        num_gpus=_count(content, "num_gpus", files.description),
        num_nodes=_count(content, "num_nodes", files.description),
    )
    figures = _figures(files.metrics) if files.metrics.exists() else {}
    out_of_memory, last_line = _read_stderr(files.stderr)
    if figures and out_of_memory:
        raise DsoptError("metrics.json has figures, but stderr.log says that it ran out of memory")
    if not figures and not out_of_memory:
        said = f"; stderr.log ends with: {last_line}" if last_line else ""
        raise DsoptError(f"was not measured: it contains no metrics.json{said}")
    return Experiment(name=folder.name, folder=folder, run=run, figures=figures, out_of_memory=out_of_memory)


def _count(content: Mapping[str, Any], key: str, path: Path) -> int:
    value = content.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise DsoptError(f"{path}: {key}: {value!r}. Expected a whole number of at least 1")
    return value


def _figures(path: Path) -> dict[str, float]:
    content = parse_json(read_text(path, "metrics of an experiment"), str(path))
    found = {metric: _figure(content.get(key)) for metric, key in DEEPSPEED_KEYS.items()}
    figures = {metric: value * _UNITS.get(metric, 1.0) for metric, value in found.items() if value is not None}
    if not figures:
        keys = ", ".join(DEEPSPEED_KEYS.values())
        raise DsoptError(f"{path}: contains no figure. Expected one of {keys} as a number above 0")
    return figures


def _figure(value: object) -> float | None:
    """A measured number; there, 0 means a failure, or that operations were not counted."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number > 0 else None


def _read_stderr(path: Path) -> tuple[str | None, str]:
    """The first line that says that memory ran out, if any, and the last line that is not empty."""
    last = ""
    if path.is_file():
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                text = line.strip()[:_LINE_LENGTH]
                if says_out_of_memory(text):
                    return text, text
                last = text or last
    return None, last
