"""What a run of DeepSpeed's own autotuner left in its `results_dir`: a folder for each experiment.

An experiment's folder holds `exp.json` (name, GPUs, nodes, configuration), `ds_config.json`, `cmd.txt`, `stdout.log`,
`stderr.log` and, where it was measured, `metrics.json`. Beside them stand a profile of the model and the final files.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dsopt.errors import DsoptError
from dsopt.experiment.rundir import RunDir
from dsopt.probe.failure import says_out_of_memory
from dsopt.study.candidate_of import ForeignRun
from dsopt.study.command import LaunchCommand
from dsopt.study.documents import parse_json, read_json, read_text

# dsopt's metrics in DeepSpeed's words, each with what makes its unit dsopt's; `latency` is in microseconds there
_METRICS: Final[Mapping[str, tuple[str, float]]] = {
    "throughput": ("throughput", 1.0),
    "latency": ("latency", 0.001),
    "FLOPS": ("FLOPS_per_gpu", 1.0),
}
_LINE_LENGTH = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One experiment that was measured or ran out of memory.

    Attributes:
        name: its folder's.
        folder: where it lies, absolute.
        run: configuration, command and resources.
        figures: by dsopt's metric: samples/s, milliseconds of an optimizer step, FLOPS of one GPU. Empty when it ran
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
    """A folder that nothing is taken from, with the reason for people."""

    name: str
    why: str


def read_results(folder: Path) -> tuple[list[Experiment], list[PassedOver]]:
    """The experiments in a results folder, by name, and the folders in it that are none, or not whole.

    Raises:
        DsoptError: there is no such folder, or no experiment in it.
    """
    expected = (
        "Expected the results_dir of DeepSpeed's autotuner, with a folder that holds exp.json for each experiment"
    )
    try:
        folders = sorted(path for path in folder.resolve().iterdir() if path.is_dir())
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
            hint = f" This is one experiment: give the folder it lies in, {folder.resolve().parent}."
        elif any(folder.glob("*.json")):
            hint = " Is it exps_dir? That holds only what was to be run."
        raise DsoptError(f"{folder}: holds no experiment. {expected}.{hint}")
    experiments, passed_over = [], []
    for path in folders:
        try:
            experiments.append(_read(path))
        except (DsoptError, OSError) as error:
            passed_over.append(PassedOver(name=path.name, why=str(error).rstrip(".")))
    return experiments, passed_over


def chosen_config(folder: Path, metric: str, *, maximize: bool) -> tuple[dict[str, Any], str]:
    """The configuration that DeepSpeed's autotuner has chosen, and where it stands.

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
        DsoptError: it is none, it is not whole, or it came to nothing.
    """
    files = RunDir(folder)
    if not files.description.exists():
        raise DsoptError("holds no exp.json: it is no experiment")
    content = read_json(files.description)
    if "round" in content:
        raise DsoptError("is a run of dsopt, not of DeepSpeed's autotuner")
    config = content.get("ds_config")
    if not isinstance(config, dict):
        raise DsoptError(f"{files.description}: ds_config: {config!r}. Expected DeepSpeed's configuration")
    try:
        json.dumps(config, ensure_ascii=False).encode("utf-8")
    except ValueError:
        raise DsoptError(f"{files.description}: ds_config holds what is no valid text") from None
    section = config.get("autotuning")
    if isinstance(section, dict) and "model_info_path" in section:
        raise DsoptError("is the profile of the model, no experiment")
    if not files.command.exists():
        raise DsoptError("holds no cmd.txt: it was not launched")
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
        raise DsoptError(f"was not measured: it holds no metrics.json{said}")
    return Experiment(name=folder.name, folder=folder, run=run, figures=figures, out_of_memory=out_of_memory)


def _count(content: Mapping[str, Any], key: str, path: Path) -> int:
    value = content.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise DsoptError(f"{path}: {key}: {value!r}. Expected a whole number of at least 1")
    return value


def _figures(path: Path) -> dict[str, float]:
    content = parse_json(read_text(path, "metrics of an experiment"), str(path))
    found = {metric: _figure(content.get(key)) for metric, (key, _) in _METRICS.items()}
    figures = {metric: value * _METRICS[metric][1] for metric, value in found.items() if value is not None}
    if not figures:
        keys = ", ".join(key for key, _ in _METRICS.values())
        raise DsoptError(f"{path}: holds no figure. Expected one of {keys} as a number above 0")
    return figures


def _figure(value: object) -> float | None:
    """A measured number; 0 stands for a failure there, and for operations that were not counted."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number > 0 else None


def _read_stderr(path: Path) -> tuple[str | None, str]:
    """The first line that says that memory ran out, if one does, and the last line that says anything."""
    last = ""
    if path.exists():
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                text = line.strip()[:_LINE_LENGTH]
                if says_out_of_memory(text):
                    return text, text
                last = text or last
    return None, last
