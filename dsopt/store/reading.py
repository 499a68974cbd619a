"""Reads what others could have written: Optuna's trials, and which of them dsopt's tables give to a candidate."""

from collections.abc import Mapping

import optuna
from optuna.trial import FrozenTrial, TrialState

from dsopt.errors import DsoptError
from dsopt.search.sifting import Claimed
from dsopt.store import queries
from dsopt.store.studies import Store, StoredStudy
from dsopt.study.part import Part


def trials_of(study: optuna.Study, *states: TrialState) -> list[FrozenTrial]:
    """The trials of an Optuna study, or those in some states.

    Raises:
        DsoptError: Optuna cannot read one of them; neither dsopt nor Optuna writes such a trial.
    """
    try:
        return study.get_trials(deepcopy=False, states=states or None)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise DsoptError(
            f"Optuna's study '{study.study_name}' has a trial that Optuna cannot read ({error!r}). "
            "Somebody else has written to the database. Restore it, or create the study under another name."
        ) from error


def claims_by_part(store: Store, study: StoredStudy) -> Mapping[Part, Mapping[int, Claimed]]:
    """What each claimed trial of a study is, by its part and number. Without its claim, a trial does not count."""
    found: dict[Part, dict[int, Claimed]] = {part: {} for part in study.parts}
    with store.engine.connect() as connection:
        for row in queries.claims_of(connection, study.id):
            claimed = Claimed(name=row["candidate"], round=row["round"])
            found.setdefault(Part(row["stage"]), {})[row["trial"]] = claimed
    return found
