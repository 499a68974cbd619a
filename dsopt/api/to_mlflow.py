"""A study in MLflow, which is an extra: a run for the study, and a nested one per launch."""

import contextlib
import logging
import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from dsopt.api.trackers import TrackedStudy, without_user

if TYPE_CHECKING:
    from mlflow import MlflowClient

_EXPERIMENT: Final = "dsopt"  # unless MLFLOW_EXPERIMENT_NAME says another one
_STUDY_ID: Final = "dsopt.study_id"
_FORBIDDEN: Final = re.compile(r"[^\w./ -]")  # in names
_LONGEST: Final = 500  # characters of a parameter, in every version
_LONGEST_TAG: Final = 5000
_MOST_PARAMS: Final = 100  # in one request
_TEXTS: Final = ("stage", "state", "reason", "message", "round", "run_dir", "why", "taken_over", "metric_unit")
_NUMBERS: Final = (
    "step_seconds",
    "half_width_seconds",
    "samples_per_second",
    "peak_memory_bytes",
    "needed_memory_bytes",
    "run_seconds",
)
_STATUS: Final = {
    "measured": "FINISHED", "slow": "FINISHED", "infeasible": "FAILED", "failed": "FAILED", "cancelled": "KILLED",
    "finished": "FINISHED", "unconfirmed": "FAILED", "stopped": "KILLED",
}  # fmt: skip


def send(study: TrackedStudy) -> str:
    """Writes a study to the tracking server, or the file, that MLflow is configured with.

    Returns:
        Where it is.

    Raises:
        ImportError: MLflow is not installed.
        Exception: whatever MLflow raises.
    """
    from mlflow import MlflowClient, get_tracking_uri

    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or _EXPERIMENT
    with _quiet("mlflow", "alembic"):  # which MLflow lets speak when it makes a database
        run = _send(MlflowClient(), name, study)
    return f"run {run} of experiment '{name}' at {without_user(get_tracking_uri())}"


@contextlib.contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """Only warnings of these loggers."""
    levels = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def _send(client: "MlflowClient", name: str, study: TrackedStudy) -> str:
    """Writes the study's run, then its launches, then deletes what an earlier export left; returns the run's id."""
    found = client.get_experiment_by_name(name)
    experiment = client.create_experiment(name) if found is None else found.experiment_id
    earlier = _earlier(client, experiment, study.id)
    words = {f"dsopt.{key}": value for key, value in study.words.items()}
    words["mlflow.note.content"] = study.outcome.sentence
    parent = _begin(client, experiment, study, study.name, study.created_at, words)
    _log(client, parent, study.config, study.figures, study.ended_at)
    for row in study.table.rows:
        _send_run(client, experiment, study, parent, row)
    status = _STATUS.get(study.outcome.state)
    if status is not None:
        client.set_terminated(parent, status, end_time=_ms(study.ended_at))
    for run in earlier:  # last: a failure before this loses nothing
        client.delete_run(run)
    return parent


def _send_run(
    client: "MlflowClient", experiment: str, study: TrackedStudy, parent: str, row: Mapping[str, Any]
) -> None:
    """Writes a launch as a run that is nested in the study's."""
    tags = {f"dsopt.{key}": str(row[key]) for key in _TEXTS if row[key] is not None}
    label = f"{row['candidate']} (round {row['round']})" if row["round"] else row["candidate"]
    run = _begin(client, experiment, study, label, row["started_at"], {**tags, "mlflow.parentRunId": parent})
    params = {key.removeprefix("params_"): value for key, value in row.items() if key.startswith("params_")}
    if row.get("zero_stage") is not None:
        params["zero_stage"] = row["zero_stage"]
    numbers = {study.metric: row["metric"], **{key: row[key] for key in _NUMBERS}}
    _log(client, run, params, numbers, row["finished_at"] or row["started_at"])
    status = _STATUS.get(row["state"])
    if status is not None:
        client.set_terminated(run, status, end_time=_ms(row["finished_at"] or row["started_at"]))


def _begin(
    client: "MlflowClient", experiment: str, study: TrackedStudy, name: str, at: float, tags: Mapping[str, str]
) -> str:
    """A new run, which is running; returns its id."""
    short = {key: value[:_LONGEST_TAG] for key, value in tags.items()}
    run = client.create_run(experiment, start_time=_ms(at), run_name=name, tags={**short, _STUDY_ID: study.id})
    run_id: str = run.info.run_id
    return run_id


def _log(
    client: "MlflowClient", run: str, params: Mapping[str, Any], numbers: Mapping[str, float | None], at: float
) -> None:
    """Writes parameters and figures of a run."""
    from mlflow.entities import Metric, Param

    given = [Param(_FORBIDDEN.sub("_", key), str(value)[:_LONGEST]) for key, value in params.items()]
    metrics = [Metric(key, value, _ms(at), 0) for key, value in numbers.items() if value is not None]
    client.log_batch(run, metrics=metrics, params=given[:_MOST_PARAMS])
    for begin in range(_MOST_PARAMS, len(given), _MOST_PARAMS):
        client.log_batch(run, params=given[begin : begin + _MOST_PARAMS])


def _earlier(client: "MlflowClient", experiment: str, study_id: str) -> list[str]:
    """The runs of an earlier export of this study."""
    found: list[str] = []
    token = None
    while True:
        page = client.search_runs([experiment], f"tags.`{_STUDY_ID}` = '{study_id}'", page_token=token)
        found += [run.info.run_id for run in page]
        token = page.token
        if not token:
            return found


def _ms(at: float) -> int:
    return round(1000 * at)
