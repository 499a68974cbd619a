"""The charts of a study's page show the figures that its table has."""

import re

from dsopt.experiment.outcome import Measured
from dsopt.report.rows import rows_of
from dsopt.report.standing import standing_of
from dsopt.report.summarize import summarize
from dsopt.store.optuna_notes import trial_note
from dsopt.study.quantity import gib
from dsopt.study.space import Candidate
from dsopt.web import plots
from tests.made_up import GIB, facts, history, observation, spec
from tests.store.ledger import measured

SHOWN = {"peak_memory_bytes": 9 * GIB, "peak_allocated_bytes": 5 * GIB, "outside_bytes": GIB}


def test_memory_is_one_number_in_table_chart_and_note() -> None:
    run = observation(
        Candidate(stage=1, micro_batch=2, gas=1), 120.0, facts=facts(zero_stage=1, micro_batch=2, **SHOWN)
    )
    known, study = history(run, baseline=facts(**SHOWN)), spec()
    summary = summarize(study, known, [], state="searching", note=None, duration_seconds=None)
    standing = standing_of(study, known, summary, ())
    [row] = [row for row in rows_of(study, known, None) if row.name == run.name]
    chart = plots.memory(study, known.facts_for(study), known, standing)
    assert chart is not None and row.needed_bytes == 6 * GIB
    assert re.findall(r"measured (\d+\.\d+ GiB)", chart) == [gib(row.needed_bytes)]
    seen = measured()
    outcome = Measured(
        measurement=seen.measurement, step_seconds=seen.step_seconds, engine=seen.engine, activation_bytes=5,
        flops_per_step=None, **SHOWN,
    )  # fmt: skip
    note = trial_note(outcome, "throughput", "samples/s", None)
    assert f"the fullest rank needed {gib(row.needed_bytes)} of memory." in note


def test_signs_of_a_chart_are_explained_where_it_has_them() -> None:
    ran = observation(Candidate(stage=1, micro_batch=2, gas=1), 120.0, facts=facts(zero_stage=1, micro_batch=2))
    full = observation(Candidate(stage=1, micro_batch=4, gas=1))
    told = []
    for runs in ([ran], [ran, full]):
        summary = summarize(spec(), history(*runs), [], state="searching", note=None, duration_seconds=None)
        chart = plots.by_micro_batch(standing_of(spec(), history(*runs), summary, ()))
        assert chart is not None
        told.append(plots.key_of(chart))
    assert told == ["", "× ran out of memory; ┆ the smallest size of a stage that ran out of memory"]
