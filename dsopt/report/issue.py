"""A report for an issue: versions, settings, states of runs, and the last failure; no secrets."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsopt.launch.machine import gpus, versions
from dsopt.protocol.run_dir import RunDir
from dsopt.protocol.tail import tail
from dsopt.report.secrets import shown_command, without_secrets
from dsopt.report.secrets_of_runs import secrets_of_runs, unhidden
from dsopt.study.folders import is_run_directory
from dsopt.study.secrets import shown_settings
from dsopt.study.spec import StudySpec

_MOST_RUNS = 100
_TAIL_LINES = 60
_TAIL_BYTES = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyReport:
    """What a report says about a study.

    Attributes:
        spec, state, note: of the study.
        runs: its attempts, oldest first: `candidate`, `round`, `state`, `reason`, `message`, `run_dir`.
    """

    spec: StudySpec
    state: str
    note: str | None
    runs: Sequence[Mapping[str, Any]]


def issue_report(storage: str, study: StudyReport | None) -> str:
    """The report as Markdown.

    Args:
        storage: the kind of database, or why it cannot be read.
        study: the study it is about, if there is one.
    """
    sections = [_versions(storage)]
    if study is not None:
        sections += [_settings(study), _runs(study), *_last_failure(study.spec, study.runs)]
    return without_secrets("\n\n".join(sections) + "\n", secrets_of_runs(study.spec) if study else ())


def _versions(storage: str) -> str:
    lines = [f"- {name}: {version}" for name, version in versions().items()]
    lines += [f"- GPU {index}: {gpu}" for index, gpu in enumerate(gpus())]
    return "\n".join(["## Versions", *lines, f"- storage: {storage}"])


def _settings(study: StudyReport) -> str:
    content = json.loads(study.spec.to_json())
    # because parts of it may be secrets, and base64 would hide those in a configuration from every search
    content["command"] = shown_command(study.spec.launch.with_config("ds_config.json"))
    return f"## Study\n{_fenced(json.dumps(shown_settings(content), indent=2), 'json')}"


def _runs(study: StudyReport) -> str:
    lines = [f"{_label(run)}  {run['state']}  {run['reason'] or ''}".rstrip() for run in study.runs]
    left_out = len(lines) - _MOST_RUNS
    shown = lines if left_out <= 0 else [f"({left_out} more)", *lines[-_MOST_RUNS:]]
    note = f": {study.note}" if study.note else ""
    return f"## Runs\nThe study is {study.state}{note}.\n{_fenced(shown or ['none'])}"


def _last_failure(spec: StudySpec, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The last run that failed, with the last lines it wrote; empty if there is none."""
    failed = [
        run
        for run in runs
        if (run["state"] == "failed" or run["reason"] == "invalid_config") and is_run_directory(spec, run["run_dir"])
    ]
    if not failed:
        return []
    run, folder = failed[-1], RunDir(failed[-1]["run_dir"])
    known, unset = secrets_of_runs(spec), unhidden(spec, folder)
    left_out = (
        f"left out: not set here, or too short, so that no value of it could be hidden: {', '.join(unset)}. "
        "Set it as where the run was, and report again."
    )
    logs = {path: [left_out] if unset else _tail(path, known) for path in (folder.stdout, folder.stderr)}
    parts = {path: _tail(path, known) for path in (folder.command, folder.ds_config)} | logs
    return [
        f"## Last failure\n{_label(run)}: {run['reason']}\n{_fenced([run['message'] or ''])}",
        *(f"### {path.name}\n{_fenced(lines)}" for path, lines in parts.items()),
    ]


def _label(run: Mapping[str, Any]) -> str:
    return f"{run['candidate']} (round {run['round']})" if run["round"] else str(run["candidate"])


def _tail(path: Path, secrets: Iterable[str]) -> list[str]:
    """The last lines of a file, without secrets: a secret of several lines cannot be told by its last ones."""
    if not path.is_file():
        return ["cannot be read: there is no such file"]
    return without_secrets(tail(path, _TAIL_BYTES), secrets).splitlines()[-_TAIL_LINES:] or ["(empty)"]


def _fenced(content: str | Iterable[str], kind: str = "text") -> str:
    """A block of code that no line of its content can end."""
    text = content if isinstance(content, str) else "\n".join(content)
    return f"~~~~~{kind}\n{text}\n~~~~~"
