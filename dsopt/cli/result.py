"""A study's result, put together from store, search and report."""

from collections.abc import Sequence
from pathlib import Path

from dsopt.cli.options import run_label
from dsopt.errors import DsoptError
from dsopt.report.compare import ComparisonTable, comparison_table
from dsopt.report.doubts import RunQuality
from dsopt.report.files import write_files, write_summary
from dsopt.report.summary import Summary, summarize
from dsopt.store.studies import Store, StoredStudy
from dsopt.worker.knowledge import load_history


def summary_of(store: Store, study: StoredStudy, *, finished: bool | None = None) -> Summary:
    """The summary of a study as it stands now.

    `finished` is given while the study is being finished, when its state does not say so yet.
    """
    state = "finished" if finished else store.state(study) or study.state
    return summarize(
        study.spec,
        load_history(store, study),
        qualities_of(store, study),
        state=state,
        note=study.note,
        duration_seconds=store.duration_seconds(study) if state == "finished" else None,
    )


def qualities_of(store: Store, study: StoredStudy) -> list[RunQuality]:
    """How good the numbers of every measured run are."""
    return [
        RunQuality(
            name=run_label(attrs.get("candidate", "?"), attrs.get("round", 0)),
            interval_percent=attrs["interval_percent"],
            drifting=attrs.get("drifting", False),
            skipped_percent=attrs.get("skipped_percent", 0.0),
            nonfinite_loss_percent=attrs.get("nonfinite_loss_percent", 0.0),
            dtype=attrs.get("dtype", "fp32"),
        )
        for attrs in store.measured_attrs(study)
    ]


def finished_summary(store: Store, study: StoredStudy) -> Summary:
    """The summary of a study that has a result.

    Raises:
        DsoptError: it has none yet.
    """
    if study.spec.compare:
        raise DsoptError(f"study '{study.name}' is a comparison, without a search. See: dsopt study show {study.name}")
    summary = summary_of(store, study)
    if summary.unconfirmed is not None:
        raise not_confirmed([study.name])
    if summary.comparison is None and study.state == "finished":
        raise DsoptError(f"study '{study.name}' has no result: {summary.sentence()} Why: dsopt study show {study.name}")
    if summary.comparison is None:
        raise DsoptError(
            f"study '{study.name}' has no result yet: its state is '{study.state}'. "
            f"Go on with: dsopt worker {study.name} (after 'dsopt study resume {study.name}' when it was stopped)."
        )
    return summary


def not_confirmed(names: Sequence[str]) -> DsoptError:
    """The error that ends a command whose studies have ended without a confirmed result."""
    listed = ", ".join(f"'{name}'" for name in names)
    return DsoptError(
        f"study {listed}: the result is not confirmed, and no configuration is called best. "
        f"What failed, and what to do: dsopt study show {names[0]}"
    )


def reopen(store: Store, study: StoredStudy) -> bool:
    """Lets a study go on that was stopped, or whose confirmation failed, which is tried again. False: it is neither."""
    return store.resume(study, was_finished=is_unconfirmed(store, study))


def is_unconfirmed(store: Store, study: StoredStudy) -> bool:
    """Whether a study has ended without a confirmed result. A comparison says of each row whether it was measured."""
    return not study.spec.compare and summary_of(store, study).unconfirmed is not None


def result_text(store: Store, study: StoredStudy) -> str:
    """What a study has come to, for people: its summary, or the table of a comparison."""
    if study.spec.compare:
        return table_of(store, study).text()
    return summary_of(store, study).text()


def table_of(store: Store, study: StoredStudy, *, finished: bool = False) -> ComparisonTable:
    """The table of a comparison as it stands now; `finished` as for `summary_of`."""
    state = "finished" if finished else store.state(study) or study.state
    return comparison_table(study.spec, load_history(store, study), state)


def write_results(store: Store, study: StoredStudy, *, scale_lr: bool = False) -> list[Path]:
    """Writes the result files of a study that is finished or just about to be; of a comparison, its table."""
    if study.spec.compare:
        return [write_summary(study.spec, table_of(store, study, finished=True).text())]
    return write_files(
        study.spec, load_history(store, study), summary_of(store, study, finished=True), scale_lr=scale_lr
    )
