"""Workers while the world around them fails: nothing is lost, nothing is false, nobody waits for good."""

import contextlib
import signal
import socket
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
from optuna.trial import TrialState, create_trial

import dsopt
from dsopt.experiment.outcome import Failed
from dsopt.launch.processes import is_stopped, processes_of
from dsopt.store import workers
from dsopt.store.attempts import Attempt, NewTask, Task
from dsopt.store.ledger import Ledger
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.store.transactions import StudyChanged, writing
from dsopt.study.part import REFERENCE
from dsopt.study.trial_attributes import TrialAttributes
from dsopt.worker import heart
from dsopt.worker.history import load_history
from tests.conftest import SCRIPTS, Dsopt
from tests.outages import Server, on_node
from tests.store.ledger import begin
from tests.studies import (
    STUDY,
    check_nothing_lost_nothing_doubled,
    runs_of,
    until,
    wait_until_nothing_runs,
    write_study,
)
from tests.worker.test_protocol_runs import wait_for_a_run

pytestmark = pytest.mark.slow

BEST = "z1_gas1_tmbspg16"


def create(dsopt: Dsopt, seconds: float = 0.2, **keys: object) -> None:
    dsopt.environment["SIMULATED_SECONDS"] = str(seconds)
    write_study(dsopt.cwd, **keys)
    dsopt("study", "create", "study.yaml")


def test_a_restart_of_the_database_ends_no_worker_and_no_run(server: Server, tmp_path: Path) -> None:
    """A run ends while the server is down: its figure is told when it is back."""
    dsopt = Dsopt(tmp_path, server.url)
    create(dsopt, seconds=4)
    worker = dsopt.start("worker", "simulated", "--devices", "cpu:2")
    wait_for_a_run(tmp_path)
    server.stop()
    until(lambda: (tmp_path / "autotuning_results" / "baseline" / "metrics.json").exists())
    time.sleep(1)
    assert worker.poll() is None
    dsopt.environment["SIMULATED_SECONDS"] = "0.1"
    server.start()
    output, _ = worker.communicate(timeout=120)
    assert worker.returncode == 0, output
    assert output.count("Waiting: the database cannot be used now") == 1
    assert "Going on." in output
    check_nothing_lost_nothing_doubled(dsopt)
    runs = runs_of(dsopt)
    assert [run["state"] for run in runs if run["candidate"] == "baseline" and run["round"] == 0] == ["measured"]


def test_a_worker_that_cannot_beat_ends_its_run_before_its_lease_is_over_and_goes_on(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease is seconds here, so that others may start the candidate soon: until then, its processes are gone."""
    for name, value in (("LEASE_SECONDS", 8.0), ("MARGIN_SECONDS", 4.0), ("HEARTBEAT_SECONDS", 0.5)):
        monkeypatch.setattr(heart, name, value)
    dsopt_command = Dsopt(tmp_path, server.url)
    create(dsopt_command, seconds=60)
    monkeypatch.setenv("SIMULATED_SECONDS", "60")
    study = dsopt.load_study("simulated", storage=server.url)
    with study.start_worker("cpu:2") as worker:
        wait_for_a_run(tmp_path)
        [run_dir] = (tmp_path / "autotuning_results").glob("*/")
        until(lambda: processes_of(run_dir))
        server.stop()
        stopped = time.monotonic()
        until(lambda: not processes_of(run_dir), 30)
        assert 2 < time.monotonic() - stopped < 8
        monkeypatch.setenv("SIMULATED_SECONDS", "0.1")
        server.start()
        worker.join()
    study.close()
    check_nothing_lost_nothing_doubled(dsopt_command)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_ends_at_once_though_its_connection_is_silent(server: Server, tmp_path: Path, number: int) -> None:
    dsopt = Dsopt(tmp_path, server.url)
    create(dsopt, seconds=30)
    worker = dsopt.start("worker", "simulated", "--devices", "cpu:2")
    wait_for_a_run(tmp_path)
    server.freezer.frozen.set()
    time.sleep(6.5)  # longer than a heartbeat: it waits for an answer now
    started = time.monotonic()
    worker.send_signal(number)
    worker.communicate(timeout=100)
    assert time.monotonic() - started < 30  # 2 on a quiet machine; a silent connection is cut after 90
    assert worker.returncode == 130
    wait_until_nothing_runs(tmp_path)
    server.freezer.frozen.clear()
    dsopt.environment["SIMULATED_SECONDS"] = "0.1"
    dsopt("worker", "simulated", "--devices", "cpu:2")
    check_nothing_lost_nothing_doubled(dsopt)


def test_more_lanes_than_connections(dsopt_on: Dsopt) -> None:
    """Twenty runs side by side, and all of them begin and end."""
    dsopt_on.environment["SIMULATED_SECONDS"] = "0.1"
    write_study(
        dsopt_on.cwd,
        command=STUDY["command"].replace("--num_gpus 2", "--num_gpus 1"),
        ds_config={
            "train_micro_batch_size_per_gpu": [4, 8],
            "zero_optimization": {"stage": 1, "reduce_bucket_size": list(range(1, 11))},
        },
        autotuning={"tuner_type": "random", "tuner_early_stopping": 50},
        measurement={"max_steps": 15},
        stage_order="sequential",
    )
    dsopt_on("study", "create", "study.yaml")
    dsopt_on("worker", "simulated", "--devices", "cpu:20")
    check_nothing_lost_nothing_doubled(dsopt_on)


def test_a_revived_worker_writes_nothing_into_a_study_created_anew(dsopt_on: Dsopt) -> None:
    """The attack's case: SQLite gave the new study the number of the old one, and the old figure to its baseline.

    Mostly, the old worker has the log of its run open when it is stopped, and kept the devices with that.
    """
    create(dsopt_on, seconds=8)
    store = Store.open(dsopt_on.environment["DSOPT_STORAGE"])
    old = dsopt_on.start("worker", "simulated", "--devices", "cpu:2")
    until(lambda: list(dsopt_on.cwd.glob("autotuning_results/*/stdout.log")), 120, look_seconds=0.001)
    with writing(store.engine):  # so it does not hold SQLite's lock, for which a person would wait in vain
        old.send_signal(signal.SIGSTOP)
        until(lambda: is_stopped(old.pid))
    store.close()
    dsopt_on("study", "stop", "simulated")
    dsopt_on("study", "delete", "simulated", "--yes")
    create(dsopt_on, ds_config={"train_micro_batch_size_per_gpu": 2}, autotuning={"results_dir": "new"})
    new = dsopt_on.start("worker", "simulated", "--devices", "cpu:2")
    until(lambda: (dsopt_on.cwd / "new" / "baseline" / "metrics.json").exists(), 120)
    old.send_signal(signal.SIGCONT)
    said, _ = old.communicate(timeout=60)
    assert old.returncode == 1, said
    assert "study 'simulated' was deleted while this worker was working on it" in said
    output, _ = new.communicate(timeout=200)
    assert new.returncode == 0, output
    check_nothing_lost_nothing_doubled(dsopt_on)
    [baseline] = [r for r in runs_of(dsopt_on) if r["candidate"] == "baseline" and r["round"] == 0]
    assert baseline["metric"] == pytest.approx(4 / 0.012, rel=0.02)  # two samples on each of two ranks


def test_a_study_deleted_under_its_worker_is_no_crash(dsopt_on: Dsopt) -> None:
    create(dsopt_on, seconds=30)
    worker = dsopt_on.start("worker", "simulated", "--devices", "cpu:2")
    wait_for_a_run(dsopt_on.cwd)
    dsopt_on("study", "stop", "simulated")
    dsopt_on("study", "delete", "simulated", "--yes")
    output, _ = worker.communicate(timeout=60)
    assert "Traceback" not in output
    assert (worker.returncode, "was deleted" in output or "is stopped" in output) in ((1, True), (0, True))
    wait_until_nothing_runs(dsopt_on.cwd)


BAD = """#!/bin/sh
[ "$(hostname)" = bad ] && { echo the driver is broken >&2; exit 1; }
exec %s "$@"
"""


def check_nobody_is_charged_with_a_bad_node(dsopt: Dsopt, launcher: str, says: str) -> None:
    """A study on the nodes "good" and "bad" finds the best; `says`: what of this launcher sets the bad one aside."""
    path = dsopt.cwd / "bin" / "deepspeed"
    path.parent.mkdir()
    path.write_text(launcher)
    path.chmod(0o755)
    command = f"{path} --num_gpus 2 train.py --deepspeed_config ds.json"
    sizes = {"train_micro_batch_size_per_gpu": [4, 8, 16], "zero_optimization": {"stage": [1, 2]}}
    create(dsopt, seconds=1, command=command, ds_config=sizes, stage_order="sequential")
    good = on_node(dsopt, "good", "worker", "simulated", "--devices", "cpu:2")
    wait_for_a_run(dsopt.cwd)
    bad = on_node(dsopt, "bad", "worker", "simulated", "--devices", "cpu:2")
    output, _ = good.communicate(timeout=200)
    assert good.returncode == 0, output
    said, _ = bad.communicate(timeout=100)
    check_nothing_lost_nothing_doubled(dsopt)
    runs = runs_of(dsopt)
    measured = {run["candidate"] for run in runs if run["state"] == "measured"}
    assert {run["candidate"] for run in runs} == measured, "a candidate was charged with the node's fault"
    if bad.returncode:  # it saw three candidates before the study was finished
        assert "this node is set aside" in said and says in said
    assert dsopt.json("study", "best", "simulated")["comparison"]["best"] == BEST


def test_a_bad_node_is_set_aside_and_charged_to_nobody(dsopt_on: Dsopt) -> None:
    """The attack's case: a launcher that fails on one node ended with "keep your own", though others were faster."""
    check_nobody_is_charged_with_a_bad_node(dsopt_on, BAD % (SCRIPTS / "deepspeed"), "the driver is broken")


def test_what_a_node_that_computes_wrongly_refuses_runs_elsewhere(dsopt_on: Dsopt) -> None:
    """Every loss on it was NaN, and what met it alone was left out: 2.39 times was told where 4.49 was to be had."""
    source, step = (SCRIPTS / "deepspeed").read_text(), '"step", step=step,'
    assert step in source
    wrong = source.replace(step, f'{step} nonfinite_loss=os.uname().nodename == "bad",')
    check_nobody_is_charged_with_a_bad_node(dsopt_on, wrong, "was NaN")


def test_an_outage_of_all_nodes_sets_none_aside(dsopt: Dsopt) -> None:
    """Each ended, since three candidates had died there and others lived, who ended for the same reason."""
    create(dsopt, seconds=1, confirmation=None)
    workers_ = [on_node(dsopt, node, "worker", "simulated", "--devices", "cpu:2") for node in ("n1", "n2")]
    until((dsopt.cwd / "autotuning_results" / "baseline" / "metrics.json").exists, 120)
    (dsopt.cwd / "outage").write_text("* dies")
    until(lambda: [run["state"] for run in runs_of(dsopt)].count("failed") >= 6, 120, look_seconds=0.3)
    (dsopt.cwd / "outage").unlink()
    for worker in workers_:
        output, _ = worker.communicate(timeout=150)
        assert worker.returncode == 0, output
    check_nothing_lost_nothing_doubled(dsopt)
    runs = runs_of(dsopt)
    assert {run["candidate"] for run in runs} == {run["candidate"] for run in runs if run["state"] == "measured"}


def test_a_node_that_lacks_what_scripts_need_charges_nobody(dsopt: Dsopt) -> None:
    """Whatever it ran was told as failed, also a further run of the user's own: the result was not confirmed."""
    create(dsopt, seconds=1)
    good = on_node(dsopt, "good", "worker", "simulated", "--devices", "cpu:2")
    until((dsopt.cwd / "autotuning_results" / "baseline" / "metrics.json").exists, 120)
    bad = on_node(dsopt, "bad", "worker", "simulated", "--devices", "cpu:2", SIMULATED_FAILURES="*")
    output, _ = good.communicate(timeout=150)
    assert good.returncode == 0, output
    bad.communicate(timeout=100)
    check_nothing_lost_nothing_doubled(dsopt)
    runs = runs_of(dsopt)
    assert "failed" in {run["state"] for run in runs}
    assert {run["candidate"] for run in runs} == {run["candidate"] for run in runs if run["state"] == "measured"}
    assert dsopt.json("study", "best", "simulated")["comparison"]["best"] == BEST


def begun_beside(
    other: Ledger, study: StoredStudy, task: NewTask, store: Store, run_dir: Path
) -> tuple[Task, Attempt] | None:
    """What begins beside a worker that is at work; None where that has just decided something, too."""
    with contextlib.suppress(StudyChanged):
        return begin(other, study, task, store, run_dir=str(run_dir))
    return None


def test_a_proof_that_another_worker_has_in_hand_ends_with_the_study(
    dsopt_on: Dsopt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its trial stayed open for good, as its run failed just then, and was left to be tried again by nobody."""
    create(dsopt_on, seconds=1)
    worker = dsopt_on.start("worker", "simulated", "--devices", "cpu:2")
    store = Store.open(dsopt_on.environment["DSOPT_STORAGE"])
    study = store.get("simulated")
    until(lambda: len(load_history(store, study).verdicts) == len(study.spec.stages), 120)  # then rounds begin
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(socket, "gethostname", lambda: "another")
        other = Ledger(store, workers.register(store.engine))
    attrs = {"candidate": "baseline", "round": 9, "why": "to see whether the machine is well: others failed"}
    proof = NewTask(
        part=REFERENCE, name="baseline", round=9, frozen=create_trial(state=TrialState.RUNNING, user_attrs=attrs)
    )
    task, attempt = until(lambda: begun_beside(other, study, proof, store, dsopt_on.cwd))
    output, _ = worker.communicate(timeout=60)
    assert worker.returncode == 0, output
    failed = Failed(reason="exited", message="exit code 1", retryable=True)
    other.end(study, task, attempt, failed, TrialAttributes(), is_told=False, is_left=True)
    store.close()
    check_nothing_lost_nothing_doubled(dsopt_on)


def test_what_another_node_should_try_is_tried_here_when_that_node_leaves(
    dsopt_on: Dsopt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for good, and said nothing: the other worker had left before it took the trial."""
    broken = dsopt_on.cwd / "broken"
    launcher = dsopt_on.cwd / "bin" / "deepspeed"
    launcher.parent.mkdir()
    launcher.write_text(f'#!/bin/sh\n[ -e {broken} ] && exit 1\nexec {SCRIPTS / "deepspeed"} "$@"\n')
    launcher.chmod(0o755)
    broken.touch()
    create(dsopt_on, command=f"{launcher} --num_gpus 2 train.py --deepspeed_config ds.json", stage_order="sequential")
    store = Store.open(dsopt_on.environment["DSOPT_STORAGE"])
    monkeypatch.setattr(socket, "gethostname", lambda: "another")
    another = workers.register(store.engine)
    workers.beat(store.engine, another, store.get("simulated").id, None)
    worker = dsopt_on.start("worker", "simulated", "--devices", "cpu:2")
    until(lambda: [run for run in runs_of(dsopt_on) if run["state"] == "failed"])
    broken.unlink()
    workers.leave(store.engine, another)
    store.close()
    output, _ = worker.communicate(timeout=100)
    assert worker.returncode == 0, output
    check_nothing_lost_nothing_doubled(dsopt_on)
    runs = runs_of(dsopt_on)
    assert {run["candidate"] for run in runs} == {run["candidate"] for run in runs if run["state"] == "measured"}


def test_a_full_disk_is_waited_for_and_charged_to_nobody(dsopt_on: Dsopt, small_disk: Path) -> None:
    create(dsopt_on, autotuning={**STUDY["autotuning"], "results_dir": str(small_disk / "results")})
    (small_disk / "rest").write_bytes(bytes(30 << 20))
    worker = dsopt_on.start("worker", "simulated", "--devices", "cpu:2")
    assert worker.stdout is not None
    lines: list[str] = []
    while "is full" not in (lines[-1] if lines else ""):
        lines.append(worker.stdout.readline())
        assert lines[-1], "".join(lines)
    (small_disk / "rest").unlink()
    output, _ = worker.communicate(timeout=200)
    assert worker.returncode == 0, output
    assert "Going on." in output
    check_nothing_lost_nothing_doubled(dsopt_on)
    assert {run["state"] for run in runs_of(dsopt_on)} == {"measured"}


def test_a_spooled_figure_is_counted_by_whoever_adopts_the_trial(dsopt_on: Dsopt) -> None:
    """A worker dies after its run has written its figures and before it could record them."""
    create(dsopt_on)
    worker = dsopt_on.start("worker", "simulated", "--devices", "cpu:2")
    metrics = dsopt_on.cwd / "autotuning_results" / "baseline" / "metrics.json"
    until(metrics.exists)
    worker.kill()
    worker.communicate()
    store = Store.open(dsopt_on.environment["DSOPT_STORAGE"])
    was = [row["state"] for row in store.runs(store.get("simulated")) if row["candidate"] == "baseline"]
    store.close()
    dsopt_on("worker", "simulated", "--devices", "cpu:2")
    check_nothing_lost_nothing_doubled(dsopt_on)
    runs = [run for run in runs_of(dsopt_on) if run["candidate"] == "baseline" and run["round"] == 0]
    assert len({run["run_dir"] for run in runs if run["state"] == "measured"}) == 1
    if was == ["running"]:  # it was killed in time
        assert runs[-1]["run_dir"] == str(metrics.parent)


def test_what_a_killed_worker_left_is_taken_up_by_one_that_does_not_wait(dsopt_on: Dsopt) -> None:
    create(dsopt_on, seconds=60)
    worker = dsopt_on.start("worker", "simulated", "--devices", "cpu:2")
    wait_for_a_run(dsopt_on.cwd)
    worker.kill()
    worker.communicate()
    dsopt_on.environment["SIMULATED_SECONDS"] = "0.1"
    output = dsopt_on("worker", "simulated", "--devices", "cpu:2", "--until-idle")
    assert "is not finished" not in output
    check_nothing_lost_nothing_doubled(dsopt_on)


def test_marks_that_somebody_has_broken_end_no_worker(dsopt_on: Dsopt) -> None:
    create(dsopt_on, seconds=0.1)
    store = Store.open(dsopt_on.environment["DSOPT_STORAGE"])
    with writing(store.engine) as connection:
        connection.execute(sa.text("UPDATE dsopt_studies SET marks = '{'"))
    store.close()
    assert "Traceback" not in dsopt_on("worker", "simulated", "--devices", "cpu:2")
    check_nothing_lost_nothing_doubled(dsopt_on)
