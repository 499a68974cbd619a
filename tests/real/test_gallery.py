"""The gallery `studies/` with real runs on the CPU: every study is created and worked on as its README says."""

import json
import re

import pytest
import yaml

from tests.conftest import Dsopt
from tests.gallery import copy_gallery

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("real")]  # one at a time: they use all cores

# of what the best's batch means, and of a machine that has other work to do: neither says anything of the study
EXPECTED = ("a global batch of", "which is more than launches differ by")
WINDOW = {"start_profile_step": 3, "end_profile_step": 9, "tuner_num_trials": 2, "tuner_early_stopping": 1}
SHORT = {"max_steps": 12, "max_seconds": 4, "race": False}


def work_on(dsopt: Dsopt, folder: str, *, ranks: int = 1) -> dict:
    """Works on a folder's study with few, short and small runs; gives the runs of its search by candidate."""
    path = copy_gallery(dsopt) / folder / "study.yaml"
    study = yaml.safe_load(path.read_text())
    study["command"] = re.sub(r"(--num_gpus|--num_processes) 2 ", rf"\1 {ranks} ", study["command"])
    study["autotuning"] = {**study.get("autotuning", {}), **WINDOW}
    study |= {"measurement": SHORT, "confirmation": {"finalists": 1, "rounds": 1}}
    path.write_text(yaml.safe_dump(study))
    dsopt("study", "create", str(path))
    output = dsopt("worker", study["name"], "--devices", f"cpu:{ranks}")
    warned = [line for line in output.splitlines() if "WARNING" in line]
    assert [line for line in warned if not any(words in line for words in EXPECTED)] == [], output
    assert dsopt.json("study", "best", study["name"])["comparison"] is not None
    runs = {run["candidate"]: run for run in dsopt.json("study", "show", study["name"])["runs"] if run["round"] == 0}
    assert {run["state"] for run in runs.values()} == {"measured"}, output
    assert len(runs) > 1
    return runs


def engine_of(dsopt: Dsopt, folder: str, candidate: str = "baseline") -> dict:
    """What dsopt saw of a run."""
    metrics = dsopt.cwd / "studies" / folder / "autotuning_results" / candidate / "metrics.json"
    return json.loads(metrics.read_text())["engine"]


@pytest.mark.parametrize("folder", ["tiny-gpt", "hf-trainer", "accelerate"])
def test_a_study_finds_runs(dsopt: Dsopt, folder: str) -> None:
    runs = work_on(dsopt, folder)
    engines = [engine_of(dsopt, folder, candidate) for candidate in runs]
    assert len({engine["micro_batch"] for engine in engines}) > 1  # the script takes its size from the configuration
    assert {engine["own_settings"] for engine in engines} == {""}  # and all else, whatever libraries fill in


def test_a_pipeline_has_two_stages_and_one_replica(dsopt: Dsopt) -> None:
    work_on(dsopt, "pipeline", ranks=2)
    engine = engine_of(dsopt, "pipeline")
    assert (engine["pipeline_stages"], engine["micro_batch"], engine["gas"]) == (2, 8, 4)
    assert engine["num_params"] == 4_227_850  # of both stages


def test_offload_is_a_dimension(dsopt: Dsopt) -> None:
    runs = work_on(dsopt, "offload")
    assert any("oonone" in candidate for candidate in runs)


def test_adapters_train_few_parameters(dsopt: Dsopt) -> None:
    work_on(dsopt, "lora")
    engine = engine_of(dsopt, "lora")
    assert engine["trainable_params"] < engine["num_params"] / 10
