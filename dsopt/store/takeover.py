"""Runs of another study that count in this one: their records, and how they are stored here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from dsopt.experiment.outcome import Infeasible, Measured, Slow
from dsopt.store import claims, queries
from dsopt.store.attempts import measurement_row
from dsopt.store.keeping import keep_unclaimed
from dsopt.store.records import trial_of
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.store.trials import finished_trial, recorded_outcome
from dsopt.study.own_sources import Sources, changed_files, sources_in, sources_now
from dsopt.study.part import REFERENCE, Part
from dsopt.study.trial_attributes import TrialAttributes, attributes_of, place_attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """A run that says something about its configuration, as another study recorded it.

    Attributes:
        part, name: the part, and the candidate's name there.
        attempt: the id of the attempt that counts.
        trial: its trial.
        outcome: how it ended.
        run_dir, started_at, seconds: its run directory, its start since the epoch, and its wall clock.
    """

    part: Part
    name: str
    attempt: str
    trial: FrozenTrial
    outcome: Measured | Slow | Infeasible
    run_dir: str
    started_at: float
    seconds: float

    @property
    def sources(self) -> Sources:
        """Digests of its script's own files, by their names; empty if nobody knows."""
        return sources_in(attributes_of(self.trial).get("sources", ""))

    @property
    def ran_on(self) -> str:
        """The names of its nodes, separated by commas; empty if nobody knows."""
        return attributes_of(self.trial).get("ran_on", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunToKeep:
    """What an earlier run becomes in the study that takes it over.

    Attributes:
        run: the earlier run.
        part, candidate: the part of this study, and the candidate's name in it.
        params, distributions: of the part's trials in Optuna.
    """

    run: EarlierRun
    part: Part
    candidate: str
    params: Mapping[str, Any]
    distributions: Mapping[str, BaseDistribution]


def earlier_runs(store: Store, study: StoredStudy) -> list[EarlierRun]:
    """The runs of a study's baseline, profile and search that were measured, slow, or out of memory, oldest first."""
    with store.engine.connect() as connection:
        claimed = [claim for claim in claims.all_of(connection, study.id) if claim["round"] == 0]
        attempts = [queries.attempts_for(connection, study.id, claim["stage"], claim["trial"]) for claim in claimed]
    newest = sorted((of_trial[-1] for of_trial in attempts if of_trial), key=lambda row: row["started_at"])
    trials = {(claim["stage"], claim["trial"]): trial_of(claim) for claim in claimed}
    found = []
    for row in newest:
        outcome, trial = recorded_outcome(row), trials.get((row["stage"], row["trial"]))
        if trial is None or (isinstance(outcome, Infeasible) and outcome.reason != "oom"):
            continue
        if trial.state.is_finished() and isinstance(outcome, Measured | Slow | Infeasible):
            found.append(
                EarlierRun(
                    part=Part(row["stage"]),
                    name=row["candidate"],
                    attempt=row["id"],
                    trial=trial,
                    outcome=outcome,
                    run_dir=row["run_dir"],
                    started_at=row["started_at"],
                    seconds=row["finished_at"] - row["started_at"],
                )
            )
    return found


def keep_taken_over(
    store: Store, study: StoredStudy, source: StoredStudy, runs: Sequence[RunToKeep]
) -> list[RunToKeep]:
    """Stores runs whose candidates nobody has claimed yet, each with a copy of its attempt.

    Returns:
        Those that it stored.
    """

    def copy_attempt(connection: sa.Connection, known: RunToKeep, number: int) -> None:
        outcome = known.run.outcome
        own = {"study_id": study.id, "stage": known.part, "trial": number, "candidate": known.candidate}
        copy = queries.copy_attempt(connection, known.run.attempt, own)
        if isinstance(outcome, Measured | Slow):
            queries.insert_measurement(connection, copy, measurement_row(outcome, study.spec.autotuning.metric))

    in_place = _saves_in_place(store, study, source)
    return keep_unclaimed(store, study, runs, lambda known: _trial(study, source, known, in_place), copy_attempt)


def _saves_in_place(store: Store, study: StoredStudy, source: StoredStudy) -> bool:
    """Whether a run of the source, with the script as it is now, has shown that runs would meet in a folder.

    Also one that is not taken over: the new study does not run again what showed it.
    """
    with store.engine.connect() as connection:
        known = [attributes_of(trial_of(claim)) for claim in claims.all_of(connection, source.id)]
    shown = {attrs.get("sources", "") for attrs in known if attrs.get("saves_in_place", False)}
    return any(not changed_files(of_it, sources_now(study.spec, of_it)) for of_it in map(sources_in, shown))


def _trial(study: StoredStudy, source: StoredStudy, known: RunToKeep, in_place: bool) -> FrozenTrial:
    """The trial as this study's own run would have left it, with the time of the earlier run."""
    run = known.run
    ran_in = attributes_of(run.trial).get("taken_over", source.name)  # it may have been taken over before
    attrs = TrialAttributes(candidate=known.candidate, run_dir=run.run_dir, taken_over=ran_in)
    if known.part == REFERENCE:
        attrs["round"] = 0
    else:
        attrs["phase"] = "range"
    attrs.update(place_attributes(attributes_of(run.trial)))
    if in_place:
        attrs["saves_in_place"] = True
    if outside := attributes_of(run.trial).get("wrote_outside"):
        attrs["wrote_outside"] = outside
    trial = finished_trial(
        run.outcome,
        study.spec.autotuning.metric,
        run.seconds,
        attrs=attrs,
        params=known.params,
        distributions=known.distributions,
    )
    trial.datetime_complete = run.trial.datetime_complete
    trial.datetime_start = datetime.fromtimestamp(run.started_at)
    return trial
