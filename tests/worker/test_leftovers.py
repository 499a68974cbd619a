"""What interrupted runs have left in the working folder is known all the same: a training would go on from it."""

import pytest

from dsopt.errors import DsoptError
from dsopt.store.studies import Store
from dsopt.study.command import LaunchCommand
from dsopt.worker.final_training import check_leftovers
from dsopt.worker.history import load_history
from tests.conftest import SCRIPTS, Dsopt
from tests.studies import until, wait_until_nothing_runs, write_study

LEAVES = """#!/bin/sh
[ -e checkpoint-100 ] || {{ mkdir checkpoint-100; echo weights > checkpoint-100/weights; }}
exec {launcher} "$@"
"""


@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_what_an_interrupted_run_has_left_keeps_the_training_from_beginning(dsopt: Dsopt, how: str) -> None:
    launcher = dsopt.cwd / "deepspeed"
    launcher.write_text(LEAVES.format(launcher=SCRIPTS / "deepspeed"))
    launcher.chmod(0o755)
    write_study(dsopt.cwd, command=f"{launcher} --num_gpus 2 train.py --deepspeed_config ds.json")
    dsopt("study", "create", "study.yaml")
    dsopt.environment["SIMULATED_SECONDS"] = "60"
    worker = dsopt.start("worker", "simulated", "--devices", "cpu:2")
    until((dsopt.cwd / "checkpoint-100" / "weights").exists)
    getattr(worker, how)()
    worker.communicate(timeout=60)
    wait_until_nothing_runs(dsopt.cwd)
    dsopt.environment["SIMULATED_SECONDS"] = "0.1"
    dsopt("worker", "simulated", "--devices", "cpu:2")
    assert "checkpoint-100" in dsopt("study", "show", "simulated", "--why")

    store = Store.open(dsopt.environment["DSOPT_STORAGE"])
    study = store.get("simulated")
    history, training = load_history(store, study), LaunchCommand.parse("deepspeed t.py", "test")
    with pytest.raises(DsoptError, match="while experiments ran, checkpoint-100 appeared or changed"):
        check_leftovers(study.spec, history, store.read("simulated").finished_at, training)
    store.close()
