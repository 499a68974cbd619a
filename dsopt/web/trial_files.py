"""The files of a trial that optuna-dashboard shows: they are made when somebody opens them, so no worker writes any.

What the database knows is there on any machine. The log is where its run was.
"""

import csv
import io
import json
import math
from collections.abc import Collection, Mapping
from typing import Any, Final

from optuna.trial import FrozenTrial

from dsopt.errors import DsoptError
from dsopt.protocol.run_dir import RunDir
from dsopt.protocol.tail import tail
from dsopt.protocol.text import plain_text
from dsopt.report.secrets import without_secrets
from dsopt.report.secrets_of_runs import secrets_of_runs, unhidden
from dsopt.search.history import BASELINE
from dsopt.store.attempts import Task
from dsopt.store.reading import marks_of
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.study.candidate_run import run_config
from dsopt.study.folders import is_run_directory
from dsopt.study.part import AIO, REFERENCE, Part
from dsopt.study.secrets import shown_settings
from dsopt.study.trial_attributes import attributes_of
from dsopt.web.chart import Chart, Mark
from dsopt.web.render import standing_alone
from dsopt.worker.history import load_history

_CONFIG: Final = "ds_config.json"
_TIMES: Final = "step_times.csv"
_PLOT: Final = "step_times.svg"
_LOG: Final = "log.txt"
_KINDS: Final = {
    _CONFIG: "application/json",
    _TIMES: "text/csv; charset=utf-8",
    _PLOT: "image/svg+xml; charset=utf-8",
    _LOG: "text/plain; charset=utf-8",
}
_ELSEWHERE: Final = {"measured_as", "imported", "taken_over"}  # attributes of trials that were not run here
_MOST_BYTES: Final = 2**16  # of each log
_MOST_LINES: Final = 300
_MOST_MARKS: Final = 300


class TrialFiles:
    """Lists and makes the files of trials."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def listed(self, trial: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The files of a trial, as optuna-dashboard lists artifacts.

        Args:
            trial: as the dashboard's `/api/studies/ID` has it.
        """
        keys = {attribute["key"] for attribute in trial["user_attrs"]}
        return [
            {"artifact_id": f"{trial['trial_id']:x}-{index}", "filename": name, "mimetype": kind.partition(";")[0]}
            for index, (name, kind) in enumerate(_KINDS.items())
            if _has(keys, name, is_over=trial["state"] not in ("Running", "Waiting"))
        ]

    def read(self, optuna_study: int, trial_id: int, file_id: str) -> tuple[str, str, bytes] | None:
        """Name, type and content of a file; None if there is none.

        Args:
            optuna_study, trial_id: Optuna's ids.
            file_id: as `listed` gives it.
        """
        index = file_id.partition("-")[2]
        name = dict(enumerate(_KINDS)).get(int(index)) if index.isdecimal() else None
        try:
            full_name = self._store.optuna_storage.get_study_name_from_id(optuna_study)
            trials = self._store.optuna_storage.get_all_trials(optuna_study, deepcopy=False)
            study = self._store.read(full_name.rpartition("/")[0])
        except (KeyError, DsoptError):
            return None
        trial = next((trial for trial in trials if trial._trial_id == trial_id), None)
        part = Part(full_name.rpartition("/")[2])
        if name is None or trial is None or part not in study.parts:
            return None
        if not _has(trial.user_attrs.keys(), name, is_over=trial.state.is_finished()):
            return None
        return name, _KINDS[name], self._content(study, part, trial, name).encode()

    def _content(self, study: StoredStudy, part: Part, trial: FrozenTrial, name: str) -> str:
        if name == _CONFIG:
            return self._config(study, part, trial)
        attributes = attributes_of(trial)
        ran = Task(part=part, trial=trial.number, name=attributes["candidate"], round=attributes.get("round", 0))
        runs = self._store.attempts_for(study, ran)
        if name == _LOG:
            began, node = (runs[-1]["run_dir"], runs[-1]["node"]) if runs else ("", None)
            return _log(study, attributes.get("run_dir", began), node)
        details: dict[str, Any] = next((json.loads(run["details"]) for run in reversed(runs) if run["details"]), {})
        return _plot(details) if name == _PLOT else _table(details)

    def _config(self, study: StoredStudy, part: Part, trial: FrozenTrial) -> str:
        aio = marks_of(self._store, study, REFERENCE).get(AIO)
        if part.stage is not None:
            candidate = part.candidate(trial.params)
        else:
            name = attributes_of(trial).get("candidate", BASELINE)
            known = {o.name: o.candidate for o in load_history(self._store, study).everything if o.candidate}
            candidate = known.get(name)
            if candidate is None and name != BASELINE:
                return json.dumps({"reason": f"No run has told what configuration {name!r} is."}, indent=2) + "\n"
        return json.dumps(shown_settings(run_config(study.spec, candidate, aio)), indent=2) + "\n"


def _has(keys: Collection[str], name: str, *, is_over: bool) -> bool:
    """Whether a trial with these attributes has a file of this name; they name the run's folder when it is over."""
    if name == _CONFIG:
        return "candidate" in keys
    if name == _LOG:
        return "candidate" in keys and ("run_dir" in keys or not is_over)
    return {"candidate", "step_milliseconds"} <= set(keys) and not _ELSEWHERE & set(keys)


def _table(details: Mapping[str, Any]) -> str:
    """The time of each step as CSV, and of its passes where they are known."""
    steps, warmup = _steps(details)
    passes = {name: times for name, times in details.get("pass_seconds", {}).items() if len(times) == len(steps)}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ["optimizer" if name == "step" else name for name in passes]
    writer.writerow(["step", "is_warmup", "step_milliseconds", *(f"{name}_milliseconds" for name in names)])
    for index, seconds in enumerate(steps):
        parts = [f"{1000 * times[index]:.6g}" for times in passes.values()]
        writer.writerow([index + 1, int(index < warmup), f"{1000 * seconds:.6g}", *parts])
    return text.getvalue()


def _plot(details: Mapping[str, Any]) -> str:
    """The time of each step as a picture that stands alone."""
    steps, warmup = _steps(details)
    every = max(1, math.ceil(len(steps) / _MOST_MARKS))
    marks = [
        Mark(
            x=index + 1, y=1000 * steps[index], kind="own" if index < warmup else "z1", says=f"step {index + 1}"
        )
        for index in range(0, len(steps), every)
    ]  # fmt: skip
    label = f"steps (the first {warmup} are warm-up)"
    return standing_alone(Chart(title="Time of each step", x_label=label, y_label="ms", marks=marks))


def _steps(details: Mapping[str, Any]) -> tuple[list[float], int]:
    """The seconds of each step, and how many of them are warm-up."""
    return details.get("step_seconds", []), details.get("measurement", {}).get("warmup_steps", 0)


def _log(study: StoredStudy, path: str, node: str | None) -> str:
    """The last lines of a run's log without secrets, or why there are none."""
    folder = RunDir(path)
    if not path:
        return "No run has begun.\n"
    if not (is_run_directory(study.spec, path) and folder.mark.is_file()):
        where = f" on node {node}" if node else ""
        return (
            f"The log cannot be read here. The run's folder is {path}{where}. It is not on the machine of this "
            "dashboard, was removed, or belongs to another study. Read it there.\n"
        )
    unset = unhidden(study.spec, folder)
    if unset:
        return (
            "The log is left out: not set where this dashboard runs, or too short, so that no value of it could be "
            f"hidden: {', '.join(unset)}. Set it there, or read the log on that machine with: dsopt trial logs\n"
        )
    known, parts = secrets_of_runs(study.spec), []
    for file in (folder.stdout, folder.stderr):
        text = "" if file.is_symlink() else plain_text(tail(file, _MOST_BYTES))
        lines = without_secrets(text, known).splitlines()[-_MOST_LINES:]
        parts.append("\n".join([f"==> the end of {file.name} <==", *(lines or ["(nothing)"])]))
    return "\n\n".join(parts) + "\n"
