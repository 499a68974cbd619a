"""The best of a study that goes on."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dsopt.api.results import save_config
from dsopt.api.study import Study
from dsopt.errors import DsoptError
from dsopt.report.batch_size import batches_text
from dsopt.report.goal import times_text
from dsopt.report.numbers import number
from dsopt.report.readable import readable_name
from dsopt.report.rows import best_row, factor_of, rows_of
from dsopt.search.global_batch import global_batch, own_batch
from dsopt.search.unconfirmed import failures
from dsopt.study.candidate_run import candidate_command, run_config
from dsopt.study.command_secrets import shown
from dsopt.worker.history import load_history
from dsopt.worker.results import check_is_search


@dataclass(frozen=True, slots=True, kw_only=True)
class SoFar:
    """The best that a search has measured so far; nothing confirms it yet.

    Attributes:
        name, label: its name, and the same for people; `baseline` is the user's own configuration.
        metric, value, unit: the metric, by all its runs if it ran more than once.
        factor: how many times as good as the user's own configuration it was; None if that was not measured as often,
            or is the best itself.
        is_repeated: whether it ran more than once.
        failed: the runs that failed when the best of the search were measured again, in words.
        ds_config: DeepSpeed's configuration.
        file, command: where it was written, if that was asked for, and the command that goes with it.
        is_imported: whether DeepSpeed's autotuner measured it, and not this study.
        batch, own_batch: its global batch in samples, and that of the user's own configuration; None if not known.
    """

    name: str
    label: str
    metric: str
    value: float
    unit: str
    factor: float | None
    is_repeated: bool
    failed: Sequence[str]
    ds_config: Mapping[str, Any]
    file: Path | None
    command: str | None
    is_imported: bool
    batch: int | None
    own_batch: int | None

    def to_json(self) -> dict[str, Any]:
        """All of it as data."""
        return {**asdict(self), "file": str(self.file) if self.file else None}

    def __str__(self) -> str:
        times = "" if self.factor is None else f", {times_text(self.metric, self.factor, 'yours')}"
        how = "by all its runs" if self.is_repeated else "single runs of the search"
        how = "imported, not measured here" if self.is_imported else how
        told = f"So far: {self.label}, {number(self.value)} {self.unit}{times} ({how})"
        if self.failed:
            told = f"{told}. Failed when measured again: {'; '.join(self.failed)}"
        if self.batch is None or self.own_batch in (None, self.batch):
            return told
        return f"{told}. {batches_text(self.batch, self.own_batch)}"


def best_so_far(study: Study, output: Path | None = None, *, force: bool = False) -> SoFar:
    """The best that a search has measured so far.

    Args:
        study: the study.
        output: a file for DeepSpeed's configuration.
        force: whether it is replaced if it is there.

    Raises:
        DsoptError: it has measured nothing, or the study is a comparison; or the file cannot be written.
    """
    stored = study._stored
    stored.check_trust()
    check_is_search(stored)
    history, spec = load_history(study._store, stored), stored.spec
    rows = rows_of(spec, history, None)
    row, own = best_row(rows), next((row for row in rows if row.is_own), None)
    best = history.searched(row.name) if row is not None else None
    if row is None or best is None or row.value is None:
        raise DsoptError(f"study '{study.name}' has measured nothing yet. See: dsopt study show {study.name}")
    facts, labels = history.facts_for(spec), {row.name: row.label for row in rows}
    config = run_config(spec, best.candidate, history.aio)
    command = None
    if output is not None:
        own_command = candidate_command(spec, best.candidate)
        command = shown(own_command.with_config(str(save_config(spec, output, config, force=force))))
    return SoFar(
        name=best.name,
        label=readable_name(best.name, best.candidate),
        metric=spec.autotuning.metric,
        value=row.value,
        unit=spec.autotuning.unit,
        factor=factor_of(row, own, maximize=history.maximize),
        is_repeated=row.estimate is not None,
        failed=[f"{labels.get(o.name, o.name)}: {o.message}" for o in failures(history)],
        ds_config=config,
        file=output.absolute() if output else None,
        command=command,
        is_imported=best.imported is not None and row.estimate is None,
        batch=global_batch(spec, facts, best.candidate) if facts and best.candidate else None,
        own_batch=own_batch(spec, history, facts) if facts else None,
    )
