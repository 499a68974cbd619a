"""A launch that something made slow is stopped as too slow, and launched again: by a worker, from end to end."""

import json

import pytest

from tests.conftest import Dsopt
from tests.studies import write_study


@pytest.mark.parametrize("rounds", [None, {"finalists": 1, "rounds": 1}])
def test_what_was_stopped_runs_again_and_may_win(dsopt: Dsopt, rounds: dict | None) -> None:
    """The worker took the further launch for somebody else's, and ended."""
    dsopt.environment |= {
        "SIMULATED_DISTURBED": "z1_gas1_tmbspg16:0 3", "SIMULATED_NOISE": "0.1", "SIMULATED_SECONDS": "1",
    }  # fmt: skip
    write_study(
        dsopt.cwd, ds_config={"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": [0, 1]}},
        autotuning={"max_train_batch_size": 32}, measurement={"max_steps": 60}, confirmation=rounds,
    )  # fmt: skip
    dsopt("study", "create", "study.yaml")
    dsopt("worker", "simulated", "--devices", "cpu:2")
    best = dsopt.json("study", "best", "simulated")
    assert best["comparison"]["best"] == "z1_gas1_tmbspg16"
    low, high = best["comparison"]["interval"]
    assert low < (14 * 16) / (0.9 * 26 * 4) < high
    told = dsopt("study", "show", "simulated", "--why")
    assert "its first launch was stopped: at most" in told
    assert "launched again, round 1: " in told and "launched again, round 2: " in told
    assert "WARNING: launches of ZeRO 1 · 16 × 1 came to" in told
    config = json.loads((dsopt.cwd / "autotuning_results" / "ds_config_optimal.json").read_text())
    assert config["train_micro_batch_size_per_gpu"] == 16
