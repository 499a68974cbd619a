"""A study's launches as a table: one row each, flat columns, units in their names."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dsopt.api.results import Run
from dsopt.search.history import History
from dsopt.search.run_cost import whole_seconds
from dsopt.study.part import REFERENCE, Part
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec

TIMES: Final = ("started_at", "finished_at")  # in seconds since the epoch
_LAST: Final = ("devices", "beside", "run_dir", "message", "why", "taken_over")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTable:
    """Every launch of a study.

    Attributes:
        columns: their names; `params_…` are the values of the candidate's dimensions.
        rows: one per launch, oldest first. What a row lacks is missing, such as the `params_…` of the user's own
            configuration.
    """

    columns: Sequence[str]
    rows: Sequence[Mapping[str, Any]]

    def column(self, name: str) -> list[Any]:
        """The values of a column, None where a row has none."""
        return [row.get(name) for row in self.rows]


def run_table(spec: StudySpec, runs: Sequence[Run], history: History) -> RunTable:
    """The table of a study's launches."""
    candidates = {o.name: o.candidate for o in history.observations if o.candidate is not None}
    rows = [_row(run, candidates.get(run.candidate), spec.autotuning.unit) for run in runs]
    if spec.simulation is not None:  # here they took no time
        on_cluster = dict(_on_cluster(spec, history))
        for row in rows:
            row["run_seconds"] = on_cluster.get((row["stage"], row["trial"], row["state"]))
    fields = [key for key in Run.__dataclass_fields__ if key not in _LAST]
    fields.insert(fields.index("metric") + 1, "metric_unit")
    params = dict.fromkeys(key for row in rows for key in row if key.startswith("params_"))
    return RunTable(columns=[*fields, "run_seconds", "zero_stage", *params, *_LAST], rows=rows)


def _on_cluster(spec: StudySpec, history: History) -> Iterator[tuple[tuple[str, int, str], float]]:
    """The seconds that each run of a dry run would have taken on the cluster, by part, trial and how it ended."""
    stages = ((Part.of(stage), seen) for stage, seen in history.stages.items())
    for part, seen in ((REFERENCE, history.reference), *stages):
        for o in seen:
            if o.seconds is not None:
                yield (part, o.trial, o.state), whole_seconds(spec, o)


def _row(run: Run, candidate: Candidate | None, unit: str) -> dict[str, Any]:
    row = run.to_json() | {"metric_unit": unit}
    row["run_seconds"] = None if run.finished_at is None else run.finished_at - run.started_at
    if candidate is not None:
        row["zero_stage"] = candidate.stage
        row |= {f"params_{key}": value for key, value in candidate.params.items()}
    return row
