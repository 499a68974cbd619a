"""A study's launches as a table of pandas, which is an extra: `pip install 'dsopt[pandas]'`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dsopt.api.results import Run
from dsopt.errors import DsoptError
from dsopt.search.history import History
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec

if TYPE_CHECKING:
    import pandas

_TIMES = ("started_at", "finished_at")
_LAST = ("run_dir", "message", "why", "taken_over")


def trials_dataframe(spec: StudySpec, runs: Sequence[Run], history: History) -> "pandas.DataFrame":
    """One row per launch, in order, indexed by its number.

    `metric` is in the unit that `attrs["unit"]` names. Times are UTC; seconds and bytes are in the columns that say
    so. `params_…` are the values of the candidate's dimensions, missing for the user's own configuration.

    Raises:
        DsoptError: pandas is not installed.
    """
    try:
        import pandas
    except ModuleNotFoundError:
        raise DsoptError(
            "trials_dataframe needs pandas, which is not installed. Install it with: pip install 'dsopt[pandas]'"
        ) from None
    params = {o.name: o.candidate for o in history.observations if o.candidate is not None}
    rows = [_row(run, params.get(run.candidate)) for run in runs]
    names = list(dict.fromkeys(key for row in rows for key in row)) or list(Run.__dataclass_fields__)
    columns = [*(key for key in names if key not in _LAST), *(key for key in _LAST if key in names)]
    frame = pandas.DataFrame(rows, columns=columns).set_index("id")
    for key in _TIMES:
        frame[key] = pandas.to_datetime(frame[key], unit="s", utc=True)
    frame.attrs = {"study": spec.name, "metric": spec.autotuning.metric, "unit": spec.autotuning.unit}
    return frame


def _row(run: Run, candidate: Candidate | None) -> dict[str, Any]:
    row = run.to_json()
    row["run_seconds"] = None if run.finished_at is None else run.finished_at - run.started_at
    if candidate is not None:
        row["zero_stage"] = candidate.stage
        row |= {f"params_{key}": value for key, value in candidate.params.items()}
    return row
