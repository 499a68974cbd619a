"""Exports a study's launches to a file: CSV, which needs nothing else, or Parquet."""

import csv
import datetime
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dsopt.api.output import refuse_existing, write_whole
from dsopt.api.run_table import TIMES, RunTable, run_table
from dsopt.api.study import Study
from dsopt.errors import DsoptError
from dsopt.worker.history import load_history

_SUFFIXES: Final[Mapping[str, str]] = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}
_WHOLE: Final = ("trial", "round", "zero_stage")
_NUMBERS: Final = (
    "metric", "step_seconds", "half_width_seconds", "samples_per_second", "peak_memory_bytes", "needed_memory_bytes",
    "run_seconds",
)  # fmt: skip


def export_runs(study: Study, file: str | Path, *, file_format: str | None = None, force: bool = False) -> int:
    """Writes every launch of a study to a file, a row each: the columns of `Study.trials_dataframe`, with `id` first.

    The file appears whole or not at all, and only its owner can read it.

    Args:
        study: the study, finished or not.
        file: the file to write.
        file_format: `csv` or `parquet`; None: by the file's name.
        force: whether to replace the file if there is one; its permissions stay.

    Returns:
        How many launches it wrote.

    Raises:
        DsoptError: the file exists or cannot be written, its name does not tell the format, or Parquet is asked for
            and pyarrow is not installed.
    """
    path = Path(file)
    to_bytes = _writer(path, file_format)
    refuse_existing(path, example="runs.csv", force=force)
    table = table_of(study)
    write_whole(path, to_bytes(table), example="runs.csv", force=force)
    return len(table.rows)


def table_of(study: Study) -> RunTable:
    """Every launch of a study."""
    return run_table(study.spec, study.runs, load_history(study._store, study._stored))


def to_csv(table: RunTable) -> bytes:
    """The table as CSV: a header, UTF-8, times in UTC as ISO 8601 writes them, nothing where a value is missing."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    for row in table.rows:
        writer.writerow(with_times(row, table.columns))
    return text.getvalue().encode()


def with_times(row: Mapping[str, Any], columns: Sequence[str]) -> list[Any]:
    """The cells of a row, in order, with times as ISO 8601 writes them."""
    times = {key: _time(row[key]).isoformat(timespec="microseconds") for key in TIMES if row[key] is not None}
    return [{**row, **times}.get(key) for key in columns]


def to_parquet(table: RunTable) -> bytes:
    """The table as Parquet. A fixed column has the same type in every study; mixed values of a knob become text.

    Raises:
        DsoptError: pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise DsoptError(
            "Parquet needs pyarrow, which is not installed. Install it with: pip install 'dsopt[parquet]', or export "
            "CSV, which needs nothing."
        ) from None
    columns = {}
    for name in table.columns:
        values = table.column(name)
        if name in TIMES:
            values, kind = [None if at is None else _time(at) for at in values], pyarrow.timestamp("us", tz="UTC")
        elif name in _WHOLE:
            kind = pyarrow.int64()
        elif name in _NUMBERS:
            kind = pyarrow.float64()
        else:
            values, kind = _same_type(values), None
            kind = pyarrow.string() if all(isinstance(value, str | None) for value in values) else None
        columns[name] = pyarrow.array(values, type=kind)
    target = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(columns), target)
    content: bytes = target.getvalue().to_pybytes()
    return content


def _same_type(values: Sequence[Any]) -> list[Any]:
    """Values of one type: whole numbers among others become floats, anything else that is mixed becomes text."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1:
        return list(values)
    change = float if kinds == {int, float} else str
    return [None if value is None else change(value) for value in values]


def _time(at: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at, tz=datetime.timezone.utc)


def _writer(path: Path, file_format: str | None) -> Callable[[RunTable], bytes]:
    """What makes the file's content."""
    chosen = file_format or _SUFFIXES.get(path.suffix.lower())
    if chosen not in ("csv", "parquet"):
        given = f"the format '{chosen}' is not known" if chosen else "its name does not tell the format"
        raise DsoptError(
            f"{path}: {given}. Expected a name that ends in .csv or .parquet, or the format csv or parquet."
        )
    return to_csv if chosen == "csv" else to_parquet
