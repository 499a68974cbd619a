"""`dsopt diff` on whole simulated studies, and on what is none."""

import json

import pytest

from tests.conftest import Dsopt
from tests.studies import write_study

MICRO_BATCH, STAGE = "train_micro_batch_size_per_gpu", "zero_optimization.stage"


def test_a_study_says_what_its_best_changes(dsopt: Dsopt) -> None:
    write_study(dsopt.cwd, stage_order="sequential")  # which measures the best of stage 0, too
    dsopt("study", "create", "study.yaml")
    assert "error: study 'simulated' has no result yet: its state is 'created'" in dsopt("diff", "simulated", code=1)
    dsopt("worker", "simulated", "--devices", "cpu:2")

    told = dsopt.json("diff", "simulated")
    best = dsopt.json("study", "best", "simulated")
    assert told["comparison"] == best["comparison"]
    changes = {change["key"]: change for change in told["changes"]}
    assert {key: (change["old"], change["new"]) for key, change in changes.items()} == {
        MICRO_BATCH: (4, 16),
        STAGE: (0, 1),
    }
    # stage 1 takes 0.9 of the time of stage 0
    stage = changes[STAGE]["worth"]
    assert (stage["best"], stage["other"]) == ("z1_gas1_tmbspg16", "z0_gas1_tmbspg16")
    assert stage["factor"] == pytest.approx(1 / 0.9, rel=0.01)
    assert [(f["key"], f["old"], f["new"], f["because"]) for f in told["following"]] == [
        ("train_batch_size", 8, 32, [MICRO_BATCH])
    ]

    lines = dsopt("diff", "simulated").splitlines()
    assert lines[0].split() == ["key", "yours", "best", "worth"]
    assert lines[0].index("worth") == lines[1].index(lines[1].split()[3])
    [line] = [line for line in lines if line.split()[:3] == [STAGE, "0", "1"]]
    assert line.endswith("against ZeRO 0 · 16 × 1")
    assert told["sentence"] == lines[-1]


def test_a_best_that_is_the_users_own_changes_nothing(dsopt: Dsopt) -> None:
    write_study(dsopt.cwd)
    (dsopt.cwd / "ds.json").write_text(
        json.dumps({MICRO_BATCH: [16, 4], "zero_optimization": {"stage": [1]}, "gradient_accumulation_steps": 1})
    )
    dsopt("study", "create", "study.yaml")
    dsopt("worker", "simulated", "--devices", "cpu:2")
    assert dsopt("diff", "simulated") == "Nothing to change: your own configuration is the best.\n"
    assert dsopt.json("diff", "simulated")["changes"] == []


def test_where_nothing_else_was_measured_nothing_is_called_the_best(dsopt: Dsopt) -> None:
    write_study(dsopt.cwd)
    (dsopt.cwd / "ds.json").write_text(json.dumps({MICRO_BATCH: [16, 4], "zero_optimization": {"stage": [1]}}))
    dsopt.environment["SIMULATED_FAILURES"] = "z1*:0"
    dsopt("study", "create", "study.yaml")
    dsopt("worker", "simulated", "--devices", "cpu:2")
    assert "Nothing to compare: only your own configuration was measured" in dsopt("diff", "simulated")


def test_what_is_no_finished_study_is_refused(dsopt_at_first: Dsopt) -> None:
    assert "there is no study yet" in dsopt_at_first("diff", "nothing", code=1)
    write_study(dsopt_at_first.cwd)
    dsopt_at_first("study", "create", "study.yaml")
    assert "nothing" in dsopt_at_first("diff", "nothing", code=1)
    assert "has no result yet" in dsopt_at_first("diff", "simulated", "--json", code=1)
    dsopt_at_first("study", "stop", "simulated")
    assert "its state is 'stopped'" in dsopt_at_first("diff", "simulated", code=1)
    assert "Missing argument 'STUDY'" in dsopt_at_first("diff", code=2)
