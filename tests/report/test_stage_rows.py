"""The user's own configuration in the table of stages: it is a run of its stage, and may be the best of it."""

from dataclasses import replace

import pytest

from dsopt.report.summarize import summarize
from dsopt.report.summary import Summary
from dsopt.search import plan, steps
from dsopt.search.history import History
from dsopt.study.space import Candidate
from tests.made_up import facts, history, observation, spec

OWN = {"train_micro_batch_size_per_gpu": [4], "gradient_accumulation_steps": 1, "zero_optimization": {"stage": [1]}}
KNOWN = facts(zero_stage=1, micro_batch=4)


def at(stage: int, micro_batch: int) -> Candidate:
    return Candidate(stage=stage, micro_batch=micro_batch, gas=1)


def summary_of(known: History, ds_config: dict | None = None) -> Summary:
    return summarize(spec(ds_config or OWN), known, [], state="searching", note=None, duration_seconds=None)


@pytest.mark.parametrize(
    ("tried", "count", "name", "value"),
    [
        pytest.param([], 1, "baseline", 100.0, id="its only candidate"),
        pytest.param([observation(at(1, 2), 90.0)], 2, "baseline", 100.0, id="the best of it"),
        pytest.param([observation(at(1, 8), 130.0)], 2, "z1_gas1_tmbspg8", 130.0, id="not the best"),
        pytest.param([observation(at(1, 64))], 2, "baseline", 100.0, id="the others run out of memory"),
        pytest.param([observation(at(1, 4), 100.0)], 1, "z1_gas1_tmbspg4", 100.0, id="tried under another name"),
    ],
)
def test_the_baseline_stands_in_its_stages_row(tried: list, count: int, name: str, value: float) -> None:
    summary = summary_of(history(*tried, baseline=KNOWN))
    [row] = summary.stages
    assert (row.num_experiments, row.best_exp_name, row.best_metric_val) == (count, name, value)
    assert summary.experiments == count
    stage, total = summary.text().splitlines()[2:4]
    assert stage.split("|")[2:] == total.split("|")[2:]


def test_it_stands_in_no_other_stages_row_and_in_none_where_it_does_not_run() -> None:
    own = {**OWN, "zero_optimization": {"stage": [1, 2]}}
    rows = summary_of(history(baseline=KNOWN), own).stages
    assert [(row.num_experiments, row.best_exp_name) for row in rows] == [(1, "baseline"), (0, None)]
    broken = replace(history(), reference=[observation(None)])
    assert [row.best_exp_name for row in summary_of(broken, own).stages] == [None, None]


def test_a_stage_that_holds_nothing_else_is_closed_with_that() -> None:
    step = plan.next_step(spec(OWN), history(baseline=KNOWN))
    assert step == steps.CloseStage(stage=1, verdict="your own configuration is its only candidate")
