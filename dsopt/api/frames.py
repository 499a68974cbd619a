"""A study's launches as a table of pandas, which is an extra: `pip install 'dsopt[pandas]'`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dsopt.api.results import Run
from dsopt.api.run_table import TIMES, run_table
from dsopt.errors import DsoptError
from dsopt.search.history import History
from dsopt.study.spec import StudySpec

if TYPE_CHECKING:
    import pandas


def trials_dataframe(spec: StudySpec, runs: Sequence[Run], history: History) -> "pandas.DataFrame":
    """One row per launch, oldest first, indexed by its id.

    `metric` is in the unit that `metric_unit` and `attrs["unit"]` name. Times are UTC; seconds and bytes are in the
    columns that say so. `params_…` are the values of the candidate's dimensions, missing for the user's own
    configuration.

    Raises:
        DsoptError: pandas is not installed.
    """
    try:
        import pandas
    except ModuleNotFoundError:
        raise DsoptError(
            "trials_dataframe needs pandas, which is not installed. Install it with: pip install 'dsopt[pandas]'"
        ) from None
    table = run_table(spec, runs, history)
    frame = pandas.DataFrame(table.rows, columns=list(table.columns)).set_index("id")
    for key in TIMES:
        frame[key] = pandas.to_datetime(frame[key], unit="s", utc=True)
    frame.attrs = {"study": spec.name, "metric": spec.autotuning.metric, "unit": spec.autotuning.unit}
    return frame
