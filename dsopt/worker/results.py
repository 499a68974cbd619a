"""A study's result, assembled from store, search and report; and the files that a finished study leaves."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dsopt.errors import DsoptError
from dsopt.report.compare import ComparisonTable, comparison_table
from dsopt.report.doubts import qualities_of
from dsopt.report.durations import covered_seconds
from dsopt.report.files import FilesOf, write_files, write_table, written_files
from dsopt.report.left import launches_in_seconds
from dsopt.report.standing import Now
from dsopt.report.summarize import summarize
from dsopt.report.summary import Summary
from dsopt.search.history import History
from dsopt.store.engine import exclusive
from dsopt.store.heartbeat import SILENT_SECONDS
from dsopt.store.queries import Row, other_workers
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.store.who_works import running_attempts
from dsopt.study.part import REFERENCE, Part
from dsopt.worker.compared_later import contradiction
from dsopt.worker.history import load_history


def summary_of(store: Store, study: StoredStudy, history: History | None = None) -> Summary:
    """The summary of a study so far; `history` saves reading it again.

    Raises:
        DsoptError: it was deleted; another one may have its name.
    """
    now = store.read(study.name)
    if now.id != study.id:
        raise DsoptError(f"study '{study.name}' was deleted and created anew: this one's results are gone.")
    history = history or load_history(store, now)
    finished_at = now.finished_at if now.state == "finished" else None
    summary = summarize(
        now.spec,
        history,
        qualities_of(history),
        state=now.state,
        note=now.note,
        duration_seconds=None if finished_at is None else finished_at - now.created_at,
        worked_seconds=None if finished_at is None else worked_seconds(store, now, history),
        launches=_launches(store, now, history) if now.spec.price_per_gpu_hour else (),
    )
    warning = contradiction(store, now, summary, history)
    return replace(summary, unlike_runs=[*summary.unlike_runs, warning]) if warning else summary


def running_now(store: Store, study: StoredStudy) -> list[Now]:
    """The runs of a study that go on."""
    with store.engine.connect() as connection:
        rows = running_attempts(connection, study.id)
        silent = {row["id"]: row["silent_seconds"] for row in other_workers(connection, None)}
    return [
        Now(
            name=row["candidate"],
            round=row["round"],
            node=row["node"] or "?",
            seconds=max(0.0, row["running_seconds"]),
            is_silent=silent.get(row["worker_id"], math.inf) > SILENT_SECONDS,
        )
        for row in rows
    ]


def worked_seconds(store: Store, study: StoredStudy, history: History) -> float:
    """How long at least one run of a study was running.

    Runs that were taken over do not count: they were another study's. Lost runs do not count either, because only the
    time at which they were missed is known.
    """
    ended = _ended_launches(store, study, history)
    return covered_seconds([(run["started_at"], run["finished_at"]) for run in ended if run["reason"] != "lost"])


def _launches(store: Store, study: StoredStudy, history: History) -> list[tuple[str, float]]:
    """What each launch ran, and for how many seconds it held its devices: a lost one, until it was missed.

    Those of a dry run would have held the cluster's.
    """
    if study.spec.simulation is not None:
        return [(o.name, seconds) for o, seconds in launches_in_seconds(study.spec, history)]
    ended = _ended_launches(store, study, history)
    return [(run["candidate"], max(0.0, run["finished_at"] - run["started_at"])) for run in ended]


def _ended_launches(store: Store, study: StoredStudy, history: History) -> list[Row]:
    """The launches of a study that ended, without those that were taken over from another one."""
    others = {(Part.of(stage), o.trial) for stage, tried in history.stages.items() for o in tried if o.taken_over}
    others |= {(REFERENCE, o.trial) for o in history.reference if o.taken_over}
    runs = store.runs(study)
    return [run for run in runs if run["finished_at"] is not None and (run["stage"], run["trial"]) not in others]


def check_is_search(study: StoredStudy) -> None:
    """Raises a DsoptError if a study is a comparison, which has no best configuration."""
    if study.spec.compare:
        raise DsoptError(f"study '{study.name}' is a comparison, not a search. See: dsopt study show {study.name}")


def confirmed_summary(store: Store, study: StoredStudy, history: History | None = None) -> Summary:
    """The summary of a study that has a result; `history` saves reading it again.

    Raises:
        DsoptError: it has none, or none yet; the message says what to do.
    """
    check_is_search(study)
    summary = summary_of(store, study, history)
    if summary.unconfirmed is not None:
        raise not_confirmed([study.name])
    if summary.comparison is None and summary.state == "finished":
        raise DsoptError(f"study '{study.name}' has no result: {summary.sentence()} Why: dsopt study show {study.name}")
    if summary.comparison is None:
        raise DsoptError(
            f"study '{study.name}' has no result yet: its state is '{summary.state}'. "
            f"Continue with: dsopt worker {study.name} (after 'dsopt study resume {study.name}' if it was stopped)."
        )
    return summary


def not_confirmed(names: Sequence[str]) -> DsoptError:
    """The error for studies that ended without a confirmed result."""
    listed = ", ".join(f"'{name}'" for name in names)
    return DsoptError(
        f"study {listed}: the result is not confirmed, so dsopt calls no configuration the best. "
        f"For what failed and what to do, see: dsopt study show {names[0]}"
    )


def is_unconfirmed(store: Store, study: StoredStudy) -> bool:
    """Whether a study ended without a confirmed result; never for a comparison, whose rows say this one by one."""
    return not study.spec.compare and summary_of(store, study).unconfirmed is not None


def reopen(store: Store, study: StoredStudy) -> bool:
    """Resumes a study that was stopped, or whose confirmation failed and is then tried again. False: it is neither."""
    return store.resume(study, was_finished=is_unconfirmed(store, study))


def table_of(store: Store, study: StoredStudy, history: History | None = None) -> ComparisonTable:
    """The table of a comparison so far; `history` saves reading it again."""
    history = history or load_history(store, study)
    return comparison_table(study.spec, history, store.state(study) or study.state)


def ensure_results(store: Store, study: StoredStudy, *, scale_lr: bool | None = None) -> list[Path]:
    """Writes the files of a finished study, unless they are there.

    It holds a lock of its own, so that one process writes at a time. Each file appears as a
    whole. The note about what was written comes last, so that the next caller makes up for an interruption.

    Args:
        store: the storage.
        study: a finished study.
        scale_lr: whether the learning rate in them follows the batch; None: as in the existing files, else not.

    Returns:
        The files, absolute; for a comparison, only its table.

    Raises:
        OSError: they cannot be written.
        DsoptError: the study was deleted.
    """
    now = store.get(study.name)
    if now.id != study.id:
        raise DsoptError(f"study '{study.name}' was deleted and created anew before its files were written.")
    about = FilesOf(created_at=now.created_at, finished_at=now.finished_at, is_scaled=bool(scale_lr))
    with exclusive(store.engine, f"results-{study.id}"):
        there = written_files(now.spec, about, any_scaling=scale_lr is None)
        if there is not None:
            return there
        if now.spec.compare:
            return write_table(now.spec, about, table_of(store, now).text())
        history = load_history(store, now)
        return write_files(now.spec, about, history, summary_of(store, now, history))
