"""Whole studies with a launcher that speaks the run protocol: everything around a run, quickly, on both databases."""

import itertools
import json
import os
import platform
import re
import signal
import time
from collections import Counter
from pathlib import Path

import optuna
import pytest
import yaml

from dsopt.store.studies import Store
from dsopt.worker.history import load_history
from tests.conftest import SCRIPTS, Dsopt
from tests.studies import (
    STUDY,
    check_nothing_lost_nothing_doubled,
    wait_for_a_run,
    wait_until_nothing_runs,
    write_study,
)


@pytest.fixture
def study(dsopt_on: Dsopt) -> Dsopt:
    """The command in a folder with a created study."""
    write_study(dsopt_on.cwd)
    dsopt_on("study", "create", "study.yaml")
    return dsopt_on


def test_a_study_from_create_to_best(study: Dsopt) -> None:
    output = study("worker", "simulated", "--devices", "cpu:2")
    assert "times as fast as your configuration (95 % interval" in output
    check_nothing_lost_nothing_doubled(study)

    best = study.json("study", "best", "simulated")
    assert best["comparison"]["best"] == "z1_gas1_tmbspg16"
    assert best["ds_config"]["train_micro_batch_size_per_gpu"] == 16
    # 32 samples in 23.4 ms against 8 in 14 ms
    assert best["comparison"]["speedup"] == pytest.approx((32 / 0.0234) / (8 / 0.014), rel=0.01)

    results = study.cwd / "autotuning_results"
    assert json.loads((results / "ds_config_optimal.json").read_text()) == best["ds_config"]
    assert (results / "cmd_optimal.txt").read_text().startswith(f"cd {study.cwd} && ")
    assert "| global " in (results / "summary.txt").read_text()
    run = results / "z1_gas1_tmbspg16"
    written = {path.name for path in run.iterdir()} - {".beside"}  # which tells of runs that other tests have beside it
    assert written == {
        ".dsopt-run", "cmd.txt", "ds_config.json", "exp.json", "metrics.json", "stdout.log", "stderr.log",
        "events-rank0.jsonl", f".undone-{platform.node()}", "before.json", "outside.json",
    }  # fmt: skip
    assert json.loads((study.cwd / "autotuning_exps" / "z1_gas1_tmbspg16.json").read_text())

    started = time.monotonic()
    again = study("worker", "simulated")
    assert "is finished" in again
    assert output[output.index("╭─") :] == again[again.index("╭─") :]
    assert time.monotonic() - started < 30
    (study.cwd / "train.py").touch()  # by another date alone
    assert "was changed" not in study("study", "create", "study.yaml")
    with (study.cwd / "train.py").open("a") as script:
        script.write("# faster\n")
    assert "train.py was changed: " in study("study", "create", "study.yaml")
    check_stage_studies_make_sense_in_optuna(study)


def check_stage_studies_make_sense_in_optuna(study: Dsopt) -> None:
    store = Store.open(study.environment["DSOPT_STORAGE"])
    z1 = store.optuna_study(store.get("simulated"), "z1")
    assert z1.metric_names == ["throughput (samples/s)"]
    assert z1.user_attrs["verdict"].startswith("explored")
    [trial] = [t for t in z1.trials if t.user_attrs["candidate"] == "z1_gas1_tmbspg16"]
    assert trial.params == {"train_micro_batch_size_per_gpu": 16, "gradient_accumulation_steps": 1}
    assert trial.value == pytest.approx(trial.user_attrs["samples_per_second"])
    observed = next(o for o in load_history(store, store.get("simulated")).stages[1] if o.trial == trial.number)
    assert observed.half_width == pytest.approx(trial.user_attrs["interval_percent"] / 100)
    assert observed.seconds is not None
    assert 0.2 < observed.seconds < 60
    assert observed.facts is not None
    assert observed.facts.peak_allocated_bytes == observed.facts.peak_memory_bytes > 0
    assert all(isinstance(v, str | int | float | bool) for v in trial.user_attrs.values())
    store.close()


def test_out_of_memory_is_knowledge(dsopt: Dsopt) -> None:
    """The simulated device takes 56 samples; without a limit on the batch the search goes up to that and no further."""
    write_study(dsopt.cwd, autotuning={"num_tuning_micro_batch_sizes": 1}, measurement={"max_steps": 20})
    dsopt("study", "create", "study.yaml")
    dsopt("worker", "simulated", "--devices", "cpu:2")
    store = Store.open(dsopt.environment["DSOPT_STORAGE"])
    study = store.get("simulated")
    trials = [t for stage in range(4) for t in store.optuna_study(study, f"z{stage}").trials]
    sizes = [t.params["train_micro_batch_size_per_gpu"] for t in trials if t.state == optuna.trial.TrialState.COMPLETE]
    assert 46 <= max(sizes) <= 56  # the last few samples are worth less than their risk
    refused = [t for t in trials if t.state == optuna.trial.TrialState.PRUNED]
    assert all(t.values is None or "reason" in t.user_attrs for t in refused)
    store.close()


def test_a_configuration_that_does_not_fit_still_gets_its_best(dsopt: Dsopt) -> None:
    """100 samples do not fit the simulated device: the least-memory profile stands in for the baseline."""
    write_study(dsopt.cwd)
    ds_config = {"train_micro_batch_size_per_gpu": 100, "zero_optimization": {"stage": 1}}
    (dsopt.cwd / "ds.json").write_text(json.dumps(ds_config))
    autotuning = {"max_train_micro_batch_size_per_gpu": 100, "num_tuning_micro_batch_sizes": 1}
    (dsopt.cwd / "study.yaml").write_text(yaml.safe_dump({**STUDY, "autotuning": autotuning}))
    dsopt("study", "create", "study.yaml")
    output = dsopt("worker", "simulated", "--devices", "cpu:2")
    assert "Your configuration does not run here; this one does, with " in output
    assert "rank 0: tried to allocate" in dsopt("study", "show", "simulated", "--why")
    runs = dsopt.json("study", "show", "simulated")["runs"]
    assert [(run["candidate"], run["state"]) for run in runs[:2]] == [
        ("baseline", "infeasible"),
        ("profile", "measured"),
    ]
    best = dsopt.json("study", "best", "simulated")
    assert 46 <= best["ds_config"]["train_micro_batch_size_per_gpu"] <= 56


@pytest.mark.chaos
def test_ten_kills_at_different_moments_lose_and_double_nothing(dsopt_on: Dsopt) -> None:
    """The grid has 24 points, each a run of a second at least: it cannot end within the twenty seconds of kills."""
    write_study(
        dsopt_on.cwd,
        ds_config={
            "train_micro_batch_size_per_gpu": list(range(1, 9)),
            "zero_optimization": {"stage": [0, 1, 2]},
        },
        autotuning={"tuner_type": "gridsearch"},
    )
    dsopt_on.environment["SIMULATED_SECONDS"] = "1"
    dsopt_on("study", "create", "study.yaml")
    for kill in range(10):
        worker = dsopt_on.start("worker", "simulated", "--devices", "cpu:2")
        time.sleep(1.2 + 0.17 * kill)
        worker.kill()
        worker.communicate()
        assert worker.returncode == -signal.SIGKILL
        wait_until_nothing_runs(dsopt_on.cwd)
    dsopt_on.environment["SIMULATED_SECONDS"] = "0"
    dsopt_on("worker", "simulated", "--devices", "cpu:2")
    check_nothing_lost_nothing_doubled(dsopt_on)
    runs = dsopt_on.json("study", "show", "simulated")["runs"]
    assert len({run["candidate"] for run in runs if run["state"] == "measured"}) == 24  # the first is the baseline


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_worker_gives_its_claim_back_and_says_how_to_go_on(study: Dsopt, number: int) -> None:
    study.environment["SIMULATED_SECONDS"] = "30"
    worker = study.start("worker", "simulated", "--devices", "cpu:2")
    wait_for_a_run(study.cwd)
    worker.send_signal(number)
    output, _ = worker.communicate(timeout=60)
    assert worker.returncode == 130, output
    assert "continue with: dsopt worker simulated" in output
    wait_until_nothing_runs(study.cwd)
    store = Store.open(study.environment["DSOPT_STORAGE"])
    [run] = store.runs(store.get("simulated"))
    assert run["state"] == "cancelled"
    [trial] = store.optuna_study(store.get("simulated"), "reference").trials
    assert trial.state == optuna.trial.TrialState.FAIL
    store.close()


def test_a_stopped_study_leaves_its_workers_and_resumes(study: Dsopt) -> None:
    study.environment["SIMULATED_SECONDS"] = "30"
    worker = study.start("worker", "simulated", "--devices", "cpu:2")
    wait_for_a_run(study.cwd)
    study("study", "stop", "simulated")
    output, _ = worker.communicate(timeout=30)
    assert worker.returncode == 0, output
    assert "is stopped" in output
    assert "is stopped" in study("worker", "simulated")
    study.environment["SIMULATED_SECONDS"] = "0.1"
    study("study", "resume", "simulated")
    study("worker", "simulated", "--devices", "cpu:2")
    check_nothing_lost_nothing_doubled(study)


def test_two_workers_share_a_study_and_never_a_device(dsopt_on: Dsopt) -> None:
    """A grid of knobs, which is explored side by side: four slots for runs of two."""
    write_study(
        dsopt_on.cwd,
        ds_config={
            "train_micro_batch_size_per_gpu": [4, 8],
            "zero_optimization": {"stage": 1, "reduce_bucket_size": [1, 2, 3, 4, 5]},
        },
        autotuning={"tuner_type": "random", "tuner_early_stopping": 50},
        measurement={"max_steps": 30},
    )
    dsopt_on("study", "create", "study.yaml")
    workers = [dsopt_on.start("worker", "simulated", "--devices", "cpu:4") for _ in range(2)]
    outputs = [worker.communicate(timeout=200)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], "\n".join(outputs)
    check_nothing_lost_nothing_doubled(dsopt_on)
    store = Store.open(dsopt_on.environment["DSOPT_STORAGE"])
    runs = store.runs(store.get("simulated"))
    store.close()
    spans = sorted((run["started_at"], run["finished_at"]) for run in runs)
    overlapping = sum(start < end for (_, end), (start, _) in itertools.pairwise(spans))
    assert overlapping >= 1
    ports = [read_port(Path(run["run_dir"])) for run in runs]
    for (start, _), port, (next_start, _), next_port in zip(spans, ports, spans[1:], ports[1:], strict=False):
        assert start <= next_start
        assert port != next_port


def read_port(run_dir: Path) -> str:
    words = (run_dir / "cmd.txt").read_text().split()
    return words[words.index("--master_port") + 1]


def test_a_run_that_dies_silently_is_tried_again_and_then_left(dsopt: Dsopt) -> None:
    write_study(dsopt.cwd)
    launcher = dsopt.cwd / "bin" / "deepspeed"
    launcher.parent.mkdir()
    launcher.write_text("#!/bin/sh\necho going down >&2\nkill -9 $$\n")
    launcher.chmod(0o755)
    command = f"{launcher} --num_gpus 2 train.py --deepspeed_config ds.json"
    (dsopt.cwd / "study.yaml").write_text(yaml.safe_dump({**STUDY, "command": command}))
    dsopt("study", "create", "study.yaml")
    output = dsopt("worker", "simulated", "--devices", "cpu:2", code=1)
    assert "ended by signal 9" in output
    assert "out-of-memory killer" in output
    assert "going down" in output
    runs = dsopt.json("study", "show", "simulated")["runs"]
    assert Counter(run["candidate"] for run in runs) == {"baseline": 2, "profile": 2}
    assert os.path.isdir(runs[0]["run_dir"])


def test_runs_go_side_by_side_when_devices_allow(dsopt: Dsopt) -> None:
    """Two accumulations of three sizes on two ranks each: four slots run them two at a time, none twice."""
    write_study(
        dsopt.cwd,
        ds_config={
            "train_micro_batch_size_per_gpu": [1, 2, 4], "gradient_accumulation_steps": [1, 2],
            "zero_optimization": {"stage": 1},
        },
        stage_order="sequential",  # which leaves nothing out
    )  # fmt: skip
    dsopt.environment["SIMULATED_SECONDS"] = "1"
    dsopt("study", "create", "study.yaml")
    dsopt("worker", "simulated", "--devices", "cpu:4")
    check_nothing_lost_nothing_doubled(dsopt)
    everything = dsopt.json("study", "show", "simulated")["runs"]
    runs = [run for run in everything if run["stage"] == "z1"]
    assert len(runs) == 5  # one of them is the baseline
    overlapping = [
        (one, other)
        for one, other in itertools.combinations(everything, 2)
        if one["started_at"] < other["finished_at"] and other["started_at"] < one["finished_at"]
    ]
    assert overlapping
    assert {run["round"] for pair in overlapping for run in pair} == {0}  # what confirms runs alone
    most = max(sum(run["started_at"] <= moment["started_at"] < run["finished_at"] for run in runs) for moment in runs)
    assert most == 2


def test_numbers_of_gpus_are_a_dimension(dsopt: Dsopt) -> None:
    write_study(
        dsopt.cwd,
        ds_config={"train_micro_batch_size_per_gpu": [4], "zero_optimization": {"stage": 1}},
        autotuning={"num_gpus": [2, 4]},
    )
    dsopt("study", "create", "study.yaml")
    dsopt("worker", "simulated", "--devices", "cpu:4")
    best = dsopt.json("study", "best", "simulated")
    assert best["comparison"]["best"] == "z1_ng4_gas1_tmbspg4"
    assert "--num_gpus 4" in best["command"]
    assert best["batch_advice"]["best"] == 16
    run = json.loads((dsopt.cwd / "autotuning_results" / "z1_ng4_gas1_tmbspg4" / "exp.json").read_text())
    assert (run["num_gpus"], run["num_nodes"]) == (4, 1)
    write_study(dsopt.cwd, name="larger", autotuning={"num_gpus": [2, 8]})
    dsopt("study", "create", "study.yaml")
    assert "--num_gpus 8: this worker has 4 CPU slots" in dsopt("worker", "larger", "--devices", "cpu:4", code=1)


@pytest.mark.parametrize(
    ("metric", "gpus", "unit"), [("throughput", 8, "samples/s"), ("throughput_per_gpu", 2, "samples/s/GPU")]
)
def test_the_number_of_gpus_that_wins_follows_the_metric(dsopt: Dsopt, metric: str, gpus: int, unit: str) -> None:
    """A dry run: eight GPUs train faster than two, and each of them more slowly."""
    write_study(
        dsopt.cwd,
        ds_config={"train_micro_batch_size_per_gpu": [4, 8], "zero_optimization": {"stage": 0}},
        autotuning={"num_gpus": [2, 8], "metric": metric},
        simulation={"gpu": "A100-80GB", "model": "gpt2-xl"},
        price_per_gpu_hour=2.0,
    )
    dsopt("study", "create", "study.yaml")
    dsopt("worker", "simulated", "--devices", "cpu:1")
    best = dsopt.json("study", "best", "simulated")
    assert f"--num_gpus {gpus}" in best["command"]
    assert best["unit"] == unit
    samples_per_dollar = 1e6 / best["cost"]["best"]
    of_one = best["comparison"]["value"] / (gpus if metric == "throughput" else 1)
    assert samples_per_dollar == pytest.approx(of_one * 3600 / 2.0)


@pytest.mark.parametrize("tuner", ["tpe", "gp", "cmaes", "random", "gridsearch"])
def test_every_tuner_finishes_a_study(dsopt: Dsopt, tuner: str) -> None:
    write_study(
        dsopt.cwd,
        ds_config={"train_micro_batch_size_per_gpu": [2, 8], "zero_optimization": {"stage": [1, 2]}},
        autotuning={"tuner_type": tuner, "fast": False, "tuner_num_trials": 5, "tuner_early_stopping": 3},
    )
    dsopt("study", "create", "study.yaml")
    dsopt("worker", "simulated", "--devices", "cpu:2")
    check_nothing_lost_nothing_doubled(dsopt)
    own, other = (stage["num_experiments"] for stage in dsopt.json("study", "show", "simulated")["stages"])
    assert 3 <= own - 1 <= 5  # the baseline is one of ZeRO 1
    assert 3 <= other <= 5


def test_metrics_of_a_part_of_the_step_are_minimised(dsopt: Dsopt) -> None:
    write_study(
        dsopt.cwd,
        ds_config={"train_micro_batch_size_per_gpu": [2, 8], "zero_optimization": {"stage": 1}},
        autotuning={"metric": "backward"},
        stage_order="sequential",
    )
    dsopt("study", "create", "study.yaml")
    dsopt("worker", "simulated", "--devices", "cpu:2")
    summary = dsopt.json("study", "show", "simulated")
    assert (summary["unit"], summary["maximize"]) == ("ms/step", False)
    rows = {row["best_exp_name"]: row["best_metric_val"] for row in summary["stages"]}
    # a third of 0.9 × (10 + 2) ms
    assert rows == {"z1_gas1_tmbspg2": pytest.approx(3.6, rel=0.01)}


def test_a_run_that_cannot_win_is_stopped(dsopt: Dsopt) -> None:
    """Steps at ZeRO 3 take 1.44 times as long as at 1. A start takes so long that a run would have 60 of them."""
    write_study(
        dsopt.cwd,
        ds_config={"train_micro_batch_size_per_gpu": [8, 16], "zero_optimization": {"stage": [1, 3]}},
        autotuning={"tuner_type": "gridsearch"},
        measurement={"max_steps": 60},
    )
    dsopt.environment |= {"SIMULATED_NOISE": "0.2", "SIMULATED_SECONDS": "2"}
    dsopt("study", "create", "study.yaml")
    output = dsopt("worker", "simulated", "--devices", "cpu:2")
    assert "slow: " in output, dsopt("study", "show", "simulated", "--why")
    check_nothing_lost_nothing_doubled(dsopt)

    runs = {run["candidate"]: run for run in dsopt.json("study", "show", "simulated")["runs"] if run["round"] == 0}
    slow = runs["z3_gas1_tmbspg16"]
    assert slow["state"] == "slow"
    best = re.search(r"samples/s, cannot beat (\d+)$", slow["message"])
    assert best is not None
    assert float(best[1]) == pytest.approx(runs["z1_gas1_tmbspg16"]["metric"], rel=0.02)  # as all runs have it
    assert slow["metric"] == pytest.approx(32 / 0.0338, rel=0.05)
    metrics = json.loads((Path(slow["run_dir"]) / "metrics.json").read_text())
    assert 12 < len(metrics["step_seconds"]) < 60
    assert metrics["throughput"] == pytest.approx(slow["metric"])
    assert dsopt.json("study", "best", "simulated")["comparison"]["best"] == "z1_gas1_tmbspg16"

    store = Store.open(dsopt.environment["DSOPT_STORAGE"])
    found = store.get("simulated")
    z3 = store.optuna_study(found, "z3").trials
    [trial] = [t for t in z3 if t.user_attrs["candidate"] == "z3_gas1_tmbspg16"]
    assert trial.state == optuna.trial.TrialState.PRUNED
    assert trial.constraints == {}
    [observed] = [o for o in load_history(store, found).stages[3] if o.trial == trial.number]
    assert (observed.state, observed.reason, observed.value) == ("slow", "slow", None)
    assert observed.value_so_far == pytest.approx(slow["metric"])
    assert observed.facts is not None
    assert observed.half_width is not None
    assert observed.launched
    store.close()


def test_a_confirmation_that_fails_is_no_result_and_is_tried_again_when_asked(dsopt_on: Dsopt) -> None:
    """The attack's case: a launcher that fails for the first round of anything but the baseline."""
    write_study(dsopt_on.cwd)
    dsopt_on("study", "create", "study.yaml")
    dsopt_on.environment["SIMULATED_FAILURES"] = "z*:1"
    output = dsopt_on("worker", "simulated", "--devices", "cpu:2", code=1)
    assert "Not confirmed. In the search ZeRO 1 · 16 × 1 had 13" in output
    assert "(round 1): rank 0: RuntimeError: the disk is full." in output
    assert "error: study 'simulated': the result is not confirmed" in output
    assert "keep it" not in output
    results = dsopt_on.cwd / "autotuning_results"
    (results / "cmd_optimal.txt").write_text("of an earlier study of this name")
    dsopt_on("study", "resume", "simulated")
    dsopt_on("worker", "simulated", "--devices", "cpu:2", code=1)
    assert (results / "cmd_optimal.txt.earlier").read_text() == "of an earlier study of this name"
    assert not (results / "cmd_optimal.txt").exists()
    assert "Not confirmed." in (results / "summary.txt").read_text()
    assert not (results / "ds_config_optimal.json").exists()
    assert "is not confirmed" in dsopt_on("study", "best", "simulated", code=1)
    so_far = dsopt_on("study", "best", "simulated", "--so-far")
    assert "Failed when measured again: ZeRO 1 · 16 × 1: " in so_far and "16 × 1, " not in so_far
    assert "is not confirmed" in dsopt_on("worker", "simulated", code=1)

    del dsopt_on.environment["SIMULATED_FAILURES"]
    assert "Resumed study" in dsopt_on("study", "resume", "simulated")
    again = dsopt_on("worker", "simulated", "--devices", "cpu:2")
    assert "times as fast as your configuration" in again
    assert json.loads((results / "ds_config_optimal.json").read_text())["train_micro_batch_size_per_gpu"] == 16
    assert "is finished" in dsopt_on("study", "resume", "simulated")


def test_the_next_finalist_is_tried_when_one_fails(dsopt: Dsopt) -> None:
    # a search would stop where no more runs are worth their time, which is the clock's to say
    write_study(dsopt.cwd, autotuning={**STUDY["autotuning"], "tuner_type": "gridsearch"})
    dsopt("study", "create", "study.yaml")
    dsopt.environment["SIMULATED_FAILURES"] = "z1_gas1_tmbspg16:*[12]"
    output = dsopt("worker", "simulated", "--devices", "cpu:2")
    best = dsopt.json("study", "best", "simulated")
    assert best["comparison"]["best"] not in ("baseline", "z1_gas1_tmbspg16")
    [doubt] = best["warnings_and_doubts"]
    assert doubt.startswith("Left out: ZeRO 1 · 16 × 1 failed when dsopt measured it again (round 1): ")
    assert "times as fast as your configuration" in output


@pytest.mark.parametrize("order", ["joint", "sequential"])
def test_a_batch_size_of_the_scripts_own_is_refused_once(dsopt: Dsopt, order: str) -> None:
    """The launcher feeds four rows whatever it is told: one run shows it, and no other size is tried."""
    write_study(
        dsopt.cwd,
        command=f"{SCRIPTS / 'deepspeed'} --num_gpus 2 train.py --batch-size 4 --deepspeed_config ds.json",
        ds_config={"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": [1, 2]},
        stage_order=order,
        autotuning={"tuner_type": "gridsearch"},  # a search would stop where no more runs are worth their time
    )
    dsopt.environment["SIMULATED_ROWS"] = "4"
    dsopt("study", "create", "study.yaml")
    output = dsopt("worker", "simulated", "--devices", "cpu:2")
    shown = dsopt.json("study", "show", "simulated")
    runs = [run for run in shown["runs"] if run["round"] == 0]
    [refused] = [run for run in runs if run["state"] != "measured" and run["state"] != "slow"]
    assert refused["reason"] == "fixed_batch"
    line = '"autotuning": {"arg_mappings": {"train_micro_batch_size_per_gpu": "--batch-size"}}'
    assert f"'--batch-size 4' in your command has that value. Map it: {line}" in refused["message"]
    others = {run["candidate"] for run in runs if run is not refused} - {"baseline"}
    assert len(others) >= 2
    assert all(name.endswith("_tmbspg4") for name in others)
    [said] = [text for text in output.splitlines() if text.startswith("Not all sizes could be tried: the script fed")]
    assert line in said
    assert shown["fixed_sizes"] == refused["message"]


def test_an_aio_section_of_the_users_own_with_a_disk_that_cannot_be_used_is_a_refusal(dsopt: Dsopt) -> None:
    (dsopt.cwd / "disk").write_text("no folder\n")
    offload = {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "disk"}}
    write_study(dsopt.cwd, ds_config={"train_micro_batch_size_per_gpu": 4, "zero_optimization": offload, "aio": {}})
    dsopt("study", "create", "study.yaml")
    output = dsopt("worker", "simulated", "--devices", "cpu:2", code=1)
    assert "nvme_path: cannot use 'disk': Not a directory" in output
    assert "Traceback" not in output
    assert {run["state"] for run in dsopt.json("study", "show", "simulated")["runs"]} == {"infeasible"}
