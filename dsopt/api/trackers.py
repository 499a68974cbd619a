"""Exports a study to an experiment tracker: one run of it for the study, with the best, and one record per launch."""

import importlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from dsopt.api.exporting import table_of
from dsopt.api.outcome import StudyOutcome, outcome_of
from dsopt.api.run_table import RunTable
from dsopt.api.study import Study
from dsopt.errors import DsoptError
from dsopt.report.optimal import optimum
from dsopt.report.secrets import secrets_of, without_secrets
from dsopt.study.command_secrets import shown
from dsopt.study.secrets import shown_settings
from dsopt.worker.history import load_history

TRACKERS: Final = ("mlflow", "wandb")
_USER_IN_URL: Final = re.compile(r"(?<=://)[^/\s@]*@")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedStudy:
    """What a tracker gets of a study, without secrets.

    Attributes:
        id: the study's own, which no other study ever has.
        name, metric, unit, outcome: what it is about.
        command: the user's own command.
        storage: URL of the database, without the password.
        created_at, ended_at: in seconds since the epoch; it ended with its last run if it is not finished.
        config: DeepSpeed's configuration of the best, flat: `zero_optimization.stage`; empty if there is no best.
        table: every launch.
    """

    id: str
    name: str
    metric: str
    unit: str
    outcome: StudyOutcome
    command: str
    storage: str
    created_at: float
    ended_at: float
    config: Mapping[str, Any]
    table: RunTable

    @property
    def figures(self) -> dict[str, float]:
        """The result as numbers."""
        low, high = self.outcome.interval or (None, None)
        found = {
            f"best_{self.metric}": self.outcome.value, "factor": self.outcome.factor, "factor_low": low,
            "factor_high": high, "own_global_batch": self.outcome.own_global_batch,
            "best_global_batch": self.outcome.best_global_batch,
        }  # fmt: skip
        return {key: value for key, value in found.items() if value is not None}

    @property
    def words(self) -> dict[str, str]:
        """The result, and where it is from, as texts."""
        return {
            "study": self.name,
            "state": self.outcome.state,
            "sentence": self.outcome.sentence,
            "best": self.outcome.best or "",
            "metric_unit": self.unit,
            "command": self.command,
            "storage": self.storage,
        }


def export_to(study: Study, tracker: str) -> str:
    """Exports a study to an experiment tracker, which its own variables configure (`MLFLOW_…`, `WANDB_…`).

    An export replaces an earlier one of the same study.

    Args:
        study: the study, finished or not.
        tracker: `mlflow` or `wandb`.

    Returns:
        Where it is now, in words.

    Raises:
        DsoptError: the tracker is not known or not installed, or refuses the study.
    """
    if tracker not in TRACKERS:
        raise DsoptError(f"'{tracker}' is not a tracker that dsopt knows. Expected one of: {', '.join(TRACKERS)}.")
    sender = importlib.import_module(f"dsopt.api.to_{tracker}")
    tracked = _tracked(study)
    try:
        place: str = sender.send(tracked)
    except ImportError as error:
        raise DsoptError(
            f"{tracker} is not installed, or not whole ({error}). Install it with: pip install 'dsopt[{tracker}]'"
        ) from None
    except Exception as error:  # whatever a library, its server and its files do
        said = " ".join(without_user(str(error)).split())[:500]
        raise DsoptError(
            f"{tracker} did not take study '{study.name}': {type(error).__name__}: {said} Check {tracker}'s settings "
            f"({tracker.upper()}_…), then export again."
        ) from None
    return place


def without_user(text: str) -> str:
    """A text without the user and the password of the URLs in it."""
    return _USER_IN_URL.sub("", text)


def _tracked(study: Study) -> TrackedStudy:
    outcome, stored, table = outcome_of(study), study._stored, table_of(study)
    config: dict[str, Any] = {}
    if outcome.best is not None and not study.is_comparison:
        best = optimum(study.spec, load_history(study._store, stored))
        config = dict(_flat(shown_settings(best.ds_config)))
    ends = [row["finished_at"] or row["started_at"] for row in table.rows]
    secrets = secrets_of(study.spec.launch)
    rows = [{**row, "message": row["message"] and without_secrets(row["message"], secrets)} for row in table.rows]
    outcome = replace(outcome, sentence=without_secrets(outcome.sentence, secrets))
    ended_at = stored.finished_at or max([stored.created_at, *ends])
    return TrackedStudy(
        id=stored.id, name=study.name, metric=study.spec.autotuning.metric, unit=study.spec.autotuning.unit,
        outcome=outcome, command=shown(study.spec.launch), storage=study.storage, created_at=stored.created_at,
        ended_at=ended_at, config=config, table=RunTable(columns=table.columns, rows=rows),
    )  # fmt: skip


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their paths; a list is JSON."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value) if isinstance(value, list | Mapping) else value
