"""Keys that change while a worker works: it begins no run that no key of its node vouches for."""

import pytest

from tests.api.test_ending import write_gated_study
from tests.cli.test_keys import keys_of, node
from tests.conftest import Dsopt
from tests.worker.test_protocol_runs import wait_for_a_run


@pytest.mark.parametrize("is_signed_again", [False, True])
def test_a_key_that_is_removed_ends_its_studies_at_the_next_run(dsopt: Dsopt, is_signed_again: bool) -> None:
    here = node(dsopt, "here")
    here.environment["SIMULATED_SECONDS"] = "0"
    write_gated_study(dsopt.cwd)
    here("key", "create", "--name", "old")
    here("study", "create", "study.yaml")
    worker = here.start("worker", "simulated", "--devices", "cpu:2")
    wait_for_a_run(dsopt.cwd)
    here("key", "create", "--name", "new")
    if is_signed_again:
        here("key", "sign", "simulated")
    (keys_of(here) / "old.key").unlink()
    (dsopt.cwd / "go").touch()
    output, _ = worker.communicate(timeout=120)
    here("key", "sign", "simulated", "--unsigned", "--yes")
    runs = here.json("study", "show", "simulated")["runs"]
    if is_signed_again:
        assert (worker.returncode, len(runs) > 1) == (0, True), output
    else:
        assert worker.returncode == 1 and "which this node does not trust" in output
        assert [(run["candidate"], run["state"]) for run in runs] == [("baseline", "measured")]
