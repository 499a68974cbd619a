"""Dry runs: whole studies on the simulated cluster, without the user's script and without GPUs."""

import json

import yaml

from dsopt.store.studies import Store
from tests.conftest import Dsopt
from tests.store.ledger import begin, ledger_of, new_task, spec

STUDY = {
    "name": "dry",
    "command": "deepspeed --num_nodes 2 --num_gpus 8 no-such-script.py --deepspeed_config ds.json",
    "simulation": {"gpu": "A100-80GB", "model": "gpt2-xl", "seed": 3},
    "autotuning": {"num_tuning_micro_batch_sizes": 1, "max_train_batch_size": 512},
    "confirmation": {"finalists": 1, "rounds": 2},
}


ONE_STAGE = {
    "train_micro_batch_size_per_gpu": [2, 4],
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": [1]},
}


def create(dsopt: Dsopt, **keys: object) -> None:
    (dsopt.cwd / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true}}')
    (dsopt.cwd / "study.yaml").write_text(yaml.safe_dump({**STUDY, **keys}))
    dsopt("study", "create", "study.yaml")


def test_a_dry_run_from_create_to_best(dsopt: Dsopt) -> None:
    create(dsopt, ds_config={**ONE_STAGE, "zero_optimization": {"stage": [1, 2]}})
    output = dsopt("worker", "dry", "--devices", "cpu:1")
    assert "A dry run: gpt2-xl on 16 simulated A100-80GB. No figure is measured." in output
    assert "times as fast as your configuration" in output

    best = dsopt.json("study", "best", "dry")
    assert best["ds_config"]["train_micro_batch_size_per_gpu"] == 4
    assert "Simulated" in (dsopt.cwd / "autotuning_results" / "summary.txt").read_text()
    engine = json.loads((dsopt.cwd / "autotuning_results" / "baseline" / "metrics.json").read_text())["engine"]
    assert (engine["device"], engine["world_size"], engine["dtype"]) == ("simulated A100-80GB", 16, "bf16")


def test_a_dry_run_needs_no_device(dsopt: Dsopt) -> None:
    create(dsopt, ds_config=ONE_STAGE)
    store = Store.open(dsopt.environment["DSOPT_STORAGE"])
    other, _ = store.create(spec("other"))
    begin(ledger_of(store), other, new_task(), store, count=3)  # a real run would hold them as this attempt does
    dsopt("worker", "dry", "--devices", "cpu:1")
    assert store.get("dry").state == "finished"
    store.close()


def test_flags_resources_and_a_memory_cap_are_simulated_too(dsopt: Dsopt) -> None:
    create(
        dsopt,
        command="deepspeed no-such-script.py --deepspeed_config ds.json",
        simulation={**STUDY["simulation"], "gpus": 8},
        autotuning={"num_gpus": [4, 8]},
        ds_config={**ONE_STAGE, "train_micro_batch_size_per_gpu": [1]},
        search={"args": {"--gradient_checkpointing": [None, ""]}},
        memory_per_device="24GiB",
        stage_order="sequential",
    )
    dsopt("worker", "dry", "--devices", "cpu:1")
    results = dsopt.cwd / "autotuning_results"
    engine = json.loads((results / "baseline" / "metrics.json").read_text())["engine"]
    assert engine["device_memory_bytes"] == 24 * 2**30
    told = [json.loads(path.read_text()) for path in results.glob("*/simulation.json")]
    assert {(run["checkpointing"], run["run_gpus"]) for run in told} >= {(False, 4), (False, 8), (True, 4), (True, 8)}


def test_a_dry_run_can_be_had_again(dsopt: Dsopt) -> None:
    steps = []
    for name in ("dry", "again"):
        create(dsopt, name=name, ds_config=ONE_STAGE, autotuning={"results_dir": name})
        dsopt("worker", name, "--devices", "cpu:1")
        metrics = json.loads((dsopt.cwd / name / "z1_gas1_tmbspg4" / "metrics.json").read_text())
        steps.append(metrics["step_seconds"])
    assert steps[0] == steps[1]
