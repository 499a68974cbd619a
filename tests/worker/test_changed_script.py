"""A script that somebody edits while its study goes on: figures of two versions are told as such."""

import os
from dataclasses import replace
from pathlib import Path

from dsopt.report.changed_script import changed_script, runs_of_others
from dsopt.search.history import BASELINE, History
from dsopt.study.compared import ComparedRun
from tests.conftest import Dsopt
from tests.made_up import facts, observation, spec
from tests.studies import wait_for_a_run, write_study


def test_the_worker_warns_and_so_does_the_result(dsopt: Dsopt) -> None:
    write_study(
        dsopt.cwd,
        ds_config={"train_micro_batch_size_per_gpu": [4, 5, 6, 7, 8, 9], "zero_optimization": {"stage": 1}},
        autotuning={"tuner_type": "gridsearch"},
        confirmation={"finalists": 1, "rounds": 1},
    )
    dsopt("study", "create", "study.yaml")
    dsopt.environment["SIMULATED_SECONDS"] = "1"
    worker = dsopt.start("worker", "simulated", "--devices", "cpu:2")
    wait_for_a_run(dsopt.cwd, "z1_gas1_tmbspg5")  # the baseline was measured before
    dsopt("study", "stop", "simulated")
    worker.communicate(timeout=60)
    with (dsopt.cwd / "train.py").open("a") as script:
        script.write("# faster\n")
    dsopt.environment["SIMULATED_SECONDS"] = "0.1"
    dsopt("study", "resume", "simulated")
    output = dsopt("worker", "simulated", "--devices", "cpu:2")
    assert output.count("WARNING: train.py was changed: 1 run before had another version") == 1, output
    assert "WARNING: train.py was changed during the study: 1 of 8 runs had another version than the last" in output
    told = dsopt("study", "show", "simulated")
    assert "WARNING: train.py was changed during the study: 1 of 8 runs had another version than the last" in told


def test_each_configuration_of_a_comparison_has_a_script_of_its_own() -> None:
    study = spec().model_copy(update={"compare": [ComparedRun(name="other", command="deepspeed u.py")]})
    own = replace(observation(None, 400.0, facts=facts()), name=BASELINE, round=1, sources={"u.py": "a"}, order=0.0)
    other = replace(own, name="other", sources={"u.py": "b"}, order=1.0)
    assert changed_script(study, History(reference=[own, other], stages={})) == []
    again = replace(other, round=2, sources={"u.py": "c"}, order=2.0)
    [told] = changed_script(study, History(reference=[own, other, again], stages={}))
    assert told.startswith("WARNING: u.py was changed during the runs of other: 1 of 2 runs had another version")


def test_a_module_counts_and_what_only_some_runs_import_does_not() -> None:
    first = replace(
        observation(None, 400.0, facts=facts()), name=BASELINE, order=0.0, sources={"t.py": "a", "model.py": "b"}
    )
    with_more = replace(first, round=1, order=1.0, sources={**first.sources, "late.py": "c"})
    assert changed_script(spec(), History(reference=[first, with_more], stages={})) == []
    edited = replace(first, round=2, order=2.0, sources={"t.py": "a", "model.py": "d"})
    [told] = changed_script(spec(), History(reference=[first, with_more, edited], stages={}))
    assert told.startswith("WARNING: model.py was changed during the study: 2 of 3 runs had another version")


def test_what_somebody_wrote_into_the_database_names_no_pipe_that_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    study = spec().model_copy(update={"cwd": str(tmp_path)})
    run = replace(observation(None, 400.0, facts=facts()), name=BASELINE, order=0.0, sources={"pipe.py": "a"})
    assert runs_of_others(study, History(reference=[run], stages={})) == (["pipe.py"], 1)
