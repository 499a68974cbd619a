"""`dsopt export --to`: what the real MLflow and Weights & Biases hold afterwards, offline.

`make test-trackers` installs them. Elsewhere, the tests that need one of them are skipped.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import dsopt as api
from dsopt.api.trackers import _tracked
from tests.api.dry import dry_run
from tests.conftest import Dsopt, make_cache

with_mlflow = pytest.mark.skipif(
    importlib.util.find_spec("mlflow") is None, reason="mlflow is not installed: pip install 'dsopt[mlflow]'"
)
with_wandb = pytest.mark.skipif(
    importlib.util.find_spec("wandb") is None, reason="wandb is not installed: pip install 'dsopt[wandb]'"
)
READ = """
import json, sys
from mlflow import MlflowClient
client = MlflowClient()
experiment = client.get_experiment_by_name(sys.argv[1])
runs = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time ASC"])
print(json.dumps([
    {"id": r.info.run_id, "name": r.info.run_name, "status": r.info.status, "ended": r.info.end_time,
     "params": r.data.params, "metrics": r.data.metrics, "tags": r.data.tags} for r in runs
]))
"""


@pytest.fixture
def study(dsopt: Dsopt) -> api.Study:
    """A study that nothing has run for, whose trackers have no settings but those of a test."""
    dsopt.environment = {k: v for k, v in dsopt.environment.items() if not k.startswith(("MLFLOW_", "WANDB_"))}
    dsopt.environment |= {
        "MLFLOW_TRACKING_URI": f"sqlite:///{dsopt.cwd / 'mlflow.db'}", "MLFLOW_DISABLE_TELEMETRY": "true",
        "WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false", "HOME": str(dsopt.cwd), "DO_NOT_TRACK": "true",
        "XDG_CACHE_HOME": str(make_cache(dsopt.cwd / "cache")),
    }  # fmt: skip
    (dsopt.cwd / "dry.yaml").write_text(yaml.safe_dump(dry_run(dsopt.cwd)))
    dsopt("study", "create", "dry.yaml")
    return api.load_study("dry", storage=dsopt.environment["DSOPT_STORAGE"])


def in_mlflow(dsopt: Dsopt, experiment: str = "dsopt") -> list[dict]:
    done = subprocess.run([sys.executable, "-c", READ, experiment], cwd=dsopt.cwd, env=dsopt.environment, check=True,
                          capture_output=True, text=True)  # fmt: skip
    return json.loads(done.stdout)


@with_mlflow
def test_mlflow_has_a_run_for_the_study_and_one_nested_in_it_per_launch(dsopt: Dsopt, study: api.Study) -> None:
    dsopt("worker", "dry", "--devices", "cpu:1")
    told = dsopt("export", "dry", "--to", "mlflow")
    assert f"at sqlite:///{dsopt.cwd / 'mlflow.db'}" in told and len(told.splitlines()) == 1
    parent, *nested = in_mlflow(dsopt)
    assert parent["id"] in told
    found = study.summary.comparison
    assert (parent["name"], parent["status"]) == ("dry", "FINISHED")
    assert parent["metrics"] == {
        "best_throughput": found.value, "factor": found.speedup, "factor_low": found.interval[0],
        "factor_high": found.interval[1], "own_global_batch": study.summary.batch_advice.own,
        "best_global_batch": study.summary.batch_advice.best,
    }  # fmt: skip
    assert parent["params"]["zero_optimization.stage"] == "1" and parent["params"]["bf16.enabled"] == "True"
    assert parent["tags"]["dsopt.sentence"] == study.summary.sentence()

    runs = study.runs
    assert len(nested) == len(runs) > 3
    for run, kept in zip(runs, nested, strict=True):
        assert kept["tags"]["mlflow.parentRunId"] == parent["id"]
        assert kept["name"] == run.candidate + (f" (round {run.round})" if run.round else "")
        assert (kept["status"], kept["ended"]) == ("FINISHED", round(1000 * run.finished_at))
        assert kept["metrics"]["throughput"] == run.metric
        assert kept["metrics"]["peak_memory_bytes"] == run.peak_memory_bytes
    best = next(kept for kept in nested if kept["name"] == "z1_gas1_tmbspg4")
    assert best["params"] == {
        "train_micro_batch_size_per_gpu": "4", "gradient_accumulation_steps": "1", "zero_stage": "1",
    }  # fmt: skip


@with_mlflow
def test_another_export_to_mlflow_replaces_the_earlier_one(dsopt: Dsopt, study: api.Study) -> None:
    dsopt.environment["MLFLOW_EXPERIMENT_NAME"] = "mine"
    dsopt("export", "dry", "--to", "mlflow")
    [so_far] = in_mlflow(dsopt, "mine")
    assert (so_far["status"], so_far["ended"], so_far["metrics"], so_far["params"]) == ("RUNNING", None, {}, {})
    dsopt("worker", "dry", "--devices", "cpu:1")
    told = dsopt.json("export", "dry", "--to", "mlflow")
    assert (told["study"], told["tracker"]) == ("dry", "mlflow")
    kept = in_mlflow(dsopt, "mine")
    assert len(kept) == 1 + len(study.runs) and so_far["id"] not in [run["id"] for run in kept]


@with_mlflow
@pytest.mark.parametrize(
    ("uri", "said"),
    [("http://me:hunter2@127.0.0.1:9", "Connection refused"), ("gopher://x", "mlflow did not take study 'dry'")],
)
def test_mlflow_that_cannot_be_reached_is_an_error_without_its_password(
    dsopt: Dsopt, study: api.Study, uri: str, said: str
) -> None:
    dsopt.environment |= {"MLFLOW_TRACKING_URI": uri, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    told = dsopt("export", "dry", "--to", "mlflow", code=1)
    assert said in told and "Check mlflow's settings" in told
    assert "hunter2" not in told


@with_wandb
def test_wandb_has_a_run_with_the_best_and_a_table_of_every_launch(dsopt: Dsopt, study: api.Study) -> None:
    dsopt("worker", "dry", "--devices", "cpu:1")
    told = dsopt("export", "dry", "--to", "wandb")
    [folder] = dsopt.cwd.glob("wandb/offline-run-*")
    assert told == f"Exported study 'dry' to wandb: {folder}; upload it with: wandb sync {folder}\n"
    [file] = folder.glob("files/media/table/*.json")
    table = json.loads(file.read_text())
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    runs = study.runs
    assert [(row["id"], row["metric"], row["state"]) for row in rows] == [(r.id, r.metric, r.state) for r in runs]
    assert next(row["params_train_micro_batch_size_per_gpu"] for row in rows if row["candidate"] != "baseline") == 4
    [record] = folder.glob("*.wandb")
    content = record.read_bytes()
    factor = study.summary.comparison.speedup
    for expected in ("zero_optimization.stage", "factor_low", repr(factor), "z1_gas1_tmbspg4"):
        assert expected.encode() in content, expected


@with_wandb
def test_wandb_without_a_login_is_an_error(dsopt: Dsopt, study: api.Study) -> None:
    dsopt.environment["WANDB_MODE"] = "online"
    told = dsopt("export", "dry", "--to", "wandb", code=1)
    assert "error: wandb did not take study 'dry': " in told and "WANDB_…" in told and "Traceback" not in told


@pytest.mark.parametrize("tracker", ["mlflow", "wandb"])
def test_a_tracker_that_is_not_installed_is_named(dsopt: Dsopt, study: api.Study, tracker: str) -> None:
    program = (
        f"import sys; sys.modules['{tracker}'] = None; sys.argv = ['dsopt', 'export', 'dry', '--to', '{tracker}']; "
        "from dsopt.cli.main import main; main()"
    )
    Path(dsopt.cwd / tracker).mkdir()  # a folder of its runs is no module
    done = subprocess.run([sys.executable, "-c", program], cwd=dsopt.cwd, env=dsopt.environment, check=False,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 1
    assert f"error: {tracker} is not installed" in done.stderr
    assert f"pip install 'dsopt[{tracker}]'" in done.stderr


WRONG = [
    (["dry", "--to", "tensorboard"], 2, "'tensorboard' is not one of 'mlflow', 'wandb'"),
    (["dry", "--to", "mlflow", "-o", "runs.csv"], 2, "--to takes neither -o nor --format nor --force"),
    (["dry", "--to", "mlflow", "--force"], 2, "--to takes neither"),
    (["dry", "--to", "wandb", "--format", "csv"], 2, "--to takes neither"),
    (["nothing", "--to", "mlflow"], 1, "no study 'nothing'"),
    (["dry", "--to"], 2, "requires an argument"),
    (["--to", "mlflow"], 2, "Missing argument 'STUDY'"),
]


def test_what_is_refused_writes_nothing(dsopt: Dsopt, study: api.Study) -> None:
    before = sorted(dsopt.cwd.iterdir())
    for args, code, said in WRONG:
        assert said in dsopt("export", *args, code=code), args
    assert sorted(dsopt.cwd.iterdir()) == before
    with pytest.raises(api.DsoptError, match="'tensorboard' is not a tracker that dsopt knows"):
        api.export_to(study, "tensorboard")


def test_a_tracker_gets_no_secrets(dsopt: Dsopt, sqlite_url: str) -> None:
    config = {
        "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": [1]},
        "comet": {"enabled": True, "api_key": "k3y-of-comet-0123456789"},
    }  # fmt: skip
    content = dry_run(dsopt.cwd, ds_config=config)
    content["command"] = [*content["command"], "--hub_token", "hf_0123456789abcdef"]
    study = api.create_study(content, storage=sqlite_url)
    study.run("cpu:1")
    tracked = _tracked(study)
    assert tracked.config["comet.enabled"] is True and tracked.config["comet.api_key"] == "***"
    assert "--hub_token" in tracked.command
    assert "hf_0123456789abcdef" not in str(tracked) and "k3y-of-comet" not in str(tracked)
