"""A trial as dsopt's own tables keep it: what it was to run, and what came of it. Decisions read nothing else.

The same is written into Optuna's tables in the same transaction, for people, dashboards and Optuna's own tools. Nobody
who changes anything there changes what a study runs, or what it finds.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from optuna.trial import FrozenTrial, TrialState

from dsopt.errors import DsoptError
from dsopt.store.queries import Row
from dsopt.study.part import Part
from dsopt.study.spec import StudySpec
from dsopt.study.trial_attributes import ORDER, TrialAttributes

_OVER: Final = ("COMPLETE", "PRUNED", "FAIL")


def begun(trial: FrozenTrial) -> str:
    """What is known of a trial when it is claimed."""
    return json.dumps({"params": dict(trial.params), "attributes": dict(trial.user_attrs)})


def ended(state: TrialState, value: float | None, attributes: Mapping[str, Any], at: datetime | None = None) -> str:
    """What is known of a trial when it is over; `at` is when that was, if not now."""
    seconds = (at or datetime.now()).timestamp()
    return json.dumps({"state": state.name, "value": value, "at": seconds, "attributes": dict(attributes)})


def ended_by(trial: FrozenTrial) -> str | None:
    """The same of a trial that is over when it is claimed; None: it is not."""
    return ended(trial.state, trial.value, {}, trial.datetime_complete) if trial.state.is_finished() else None


def trial_of(row: Row) -> FrozenTrial:
    """The trial that a claim keeps, with the row's id and its place in the study's order, and without distributions.

    Raises:
        DsoptError: the row is not one that dsopt writes.
    """
    try:
        Part(row["stage"]).stage  # noqa: B018 - raises if there is no such part
        first = json.loads(row["begun"])
        last = {"state": "RUNNING", "value": None, "at": None, "attributes": {}} | json.loads(row["ended"] or "{}")
        if not isinstance(first["params"], dict) or (row["ended"] is not None and last["state"] not in _OVER):
            raise ValueError("params or state")
        trial = FrozenTrial(
            number=row["trial"],
            state=TrialState[last["state"]],
            value=None if last["value"] is None else float(last["value"]),
            values=None,
            datetime_start=None,
            datetime_complete=None if last["at"] is None else datetime.fromtimestamp(last["at"]),
            params=first["params"],
            distributions={},
            user_attrs={**first["attributes"], **last["attributes"]},
            system_attrs={ORDER: row["changed_in"]},
            intermediate_values={},
            trial_id=row["id"],
        )
    except (ValueError, KeyError, TypeError, OverflowError, OSError, RecursionError) as error:
        raise DsoptError(
            f"the table of claims has a row (id {row['id']}) that dsopt cannot read ({error!r}). Somebody else has "
            "written to the database. Restore it, or create the study under another name."
        ) from error
    return trial


def attributes_of_place(spec: StudySpec, row: Row | Mapping[str, Any]) -> TrialAttributes:
    """On which nodes an attempt was, by its row, as attributes of its trial; none of a dry run."""
    return {} if spec.is_simulated else {"ran_on": ", ".join(sorted(nodes_of(row)))}


def nodes_of(row: Row | Mapping[str, Any]) -> set[str]:
    """On which nodes an attempt was, by its row."""
    return {*json.loads(row["devices"])} if row["devices"] else {row["node"]}
