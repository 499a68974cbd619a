"""Experiments beside the user's own checkpoints, with real runs: those stay byte for byte as they were."""

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
import yaml

from dsopt.launch.program import path_with
from dsopt.launch.undone import undo
from dsopt.protocol.run_dir import RunDir
from dsopt.study.isolation import quiet_environment
from tests.conftest import SCRIPTS, Dsopt

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("real")]  # one at a time: they use all cores

# libraries that have a function of another by a name of their own, or as a default; and one that writes figures
MODULES = {
    "aliased_saving.py": """
from safetensors.torch import save_file as safe_save_file
def save_by_default(tensors, path, how=safe_save_file):
    how(tensors, path)
""",
    "wandb.py": """
def init(project=None, mode=None):
    with open("told-to-wandb", "w") as file:
        print(mode, file=file)
""",
    "mlflow.py": """
def set_tracking_uri(uri):
    with open("told-to-mlflow", "w") as file:
        print(uri, file=file)
""",
    "tensorboardX/__init__.py": "from tensorboardX.writer import SummaryWriter",
    "tensorboardX/writer.py": """
import os
class SummaryWriter:
    def __init__(self, logdir=None, comment=""):
        os.makedirs(logdir, exist_ok=True)
        with open(os.path.join(logdir, "events"), "a") as file:
            print("written", file=file)
""",
}
SHORT = {"measurement": {"max_steps": 10, "max_seconds": 4}, "confirmation": {"finalists": 1, "rounds": 1}}


def contents(*folders: Path) -> dict[str, str]:
    files = [path for folder in folders for path in ([folder] if folder.is_file() else folder.rglob("*"))]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files if path.is_file()}


def train(folder: Path, *words: str) -> None:
    """The user's own training, before there was a dsopt."""
    launcher = [str(Path(sys.executable).with_name("deepspeed")), "--num_accelerators", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*launcher, *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_trainers_checkpoints_are_neither_resumed_from_nor_touched(dsopt: Dsopt) -> None:
    shutil.copy(SCRIPTS / "run_example.py", dsopt.cwd)
    ds_config = {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "torch_adam": True}},
        "zero_optimization": {"stage": 1},
        "csv_monitor": {"enabled": True, "output_path": "csv"},
        "autotuning": {"max_train_micro_batch_size_per_gpu": 4},
    }
    (dsopt.cwd / "ds.json").write_text(json.dumps(ds_config))
    words = "run_example.py --deepspeed ds.json --use_cpu --output_dir out --save_steps 4 --save_total_limit 1".split()
    words += ["--per_device_train_batch_size", "2", "--max_steps"]
    train(dsopt.cwd, *words, "8")
    own = contents(dsopt.cwd / "out", dsopt.cwd / "csv")
    assert any("checkpoint-8/global_step8" in path for path in own)

    command = " ".join(["deepspeed --num_accelerators 2", *words, "24"])
    (dsopt.cwd / "study.yaml").write_text(yaml.safe_dump({"command": command, **SHORT}))
    created = dsopt("study", "create", "study.yaml")
    assert "each experiment has its own folder for --output_dir" in created
    output = dsopt("worker", "study", "--devices", "cpu:2")
    assert contents(dsopt.cwd / "out", dsopt.cwd / "csv") == own
    assert "Study 'study' is finished." in output
    assert "They look like checkpoints" not in output
    logs = list((dsopt.cwd / "autotuning_results").glob("*/stdout.log"))
    assert len(logs) >= 4
    for log in logs:  # each began anew, with a folder of its own
        assert f"output_dir {log.parent / 'own' / 'output_dir'}, last checkpoint None" in log.read_text()
    assert not list((dsopt.cwd / "autotuning_results").rglob("*.safetensors"))

    best = (dsopt.cwd / "autotuning_results" / "cmd_optimal.txt").read_text()
    assert "--output_dir out " in best
    assert "--save_steps 4 " in best
    environment = {**dsopt.environment, "PATH": path_with(os.environ, Path(sys.executable))}
    final = subprocess.run(best, shell=True, capture_output=True, text=True, env=environment)
    assert final.returncode == 0, final.stderr
    assert "output_dir out, last checkpoint out/checkpoint-8" in final.stdout
    assert "trained 24 steps" in final.stdout
    assert (dsopt.cwd / "out" / "checkpoint-24" / "global_step24").is_dir()


@pytest.mark.slow
def test_a_script_that_saves_to_a_fixed_place_saves_nothing_there(dsopt: Dsopt) -> None:
    shutil.copy(SCRIPTS / "saves.py", dsopt.cwd / "train.py")
    ds_config = {
        "train_micro_batch_size_per_gpu": [2, 4],
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": 1},
    }
    (dsopt.cwd / "ds.json").write_text(json.dumps({**ds_config, "train_micro_batch_size_per_gpu": 2}))
    train(dsopt.cwd, "train.py", "--deepspeed_config", "ds.json", "--steps", "4")
    places = [dsopt.cwd / "ckpt", dsopt.cwd / "model.pt"]
    own, folders = contents(*places), os.listdir(dsopt.cwd / "ckpt")
    assert len(own) >= 4

    (dsopt.cwd / "ds.json").write_text(json.dumps(ds_config))
    command = "deepspeed --num_accelerators 2 train.py --deepspeed_config ds.json --steps 1000 --fresh"
    (dsopt.cwd / "study.yaml").write_text(yaml.safe_dump({"command": command, **SHORT}))
    dsopt("study", "create", "study.yaml")
    output = dsopt("worker", "study", "--devices", "cpu:2")
    assert contents(*places) == own and os.listdir(dsopt.cwd / "ckpt") == folders
    assert "ZeRO 1 · 4 × 1 " in output
    assert not (dsopt.cwd / "fresh.pt").exists()  # what each run saved anew went with it
    assert "appeared, changed or disappeared" not in output
    assert output.count("The script writes to files that were there before: loss.txt. ") == 1
    log = (dsopt.cwd / "autotuning_results" / "baseline" / "stderr.log").read_text()
    assert "skipped in an experiment: DeepSpeedEngine.save_checkpoint (ckpt)" in log
    assert "torch.save" not in log  # it was saved, and yours came back
    reference = optuna.load_study(study_name="study/reference", storage=dsopt.environment["DSOPT_STORAGE"])
    assert {trial.user_attrs["resumes_from"] for trial in reference.trials} == {"ckpt"}
    assert "begins at step 0" in (dsopt.cwd / "autotuning_results" / "baseline" / "stdout.log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("is_warm", [False, True])
def test_what_a_script_does_by_other_ways_than_flags(tmp_path: Path, is_warm: bool) -> None:
    """The Trainer's rotation would delete the user's checkpoints; a fork has its modules from before."""
    for name in ("checkpoint-100", "checkpoint-200"):
        (tmp_path / "mine" / name).mkdir(parents=True)
        (tmp_path / "mine" / name / "trainer_state.json").write_text(json.dumps({"global_step": 100}))
    (tmp_path / "mine.pt").write_text("mine")
    for name in ("adapter.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "mine" / name).write_text("mine")
    (tmp_path / "mine" / "runs").mkdir()
    (tmp_path / "mine" / "runs" / "events").write_text("mine\n")
    for name, text in MODULES.items():
        (tmp_path / "modules" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "modules" / name).write_text(text)
    own = contents(tmp_path / "mine", tmp_path / "mine.pt")
    run_dir = RunDir.create(tmp_path, "run")
    program = "from dsopt.probe.__main__ import Isolation, main; "
    program += "isolation = Isolation(); import accelerate, aliased_saving; main(isolation)" if is_warm else "main()"
    environment = {**os.environ, "DSOPT_RUN_DIR": str(tmp_path / "run"), "PYTHONPATH": str(tmp_path / "modules")}
    environment |= quiet_environment(tmp_path / "run")
    done = subprocess.run(
        [sys.executable, "-c", program, str(SCRIPTS / "saves_oddly.py")],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    undo(run_dir)
    assert contents(tmp_path / "mine", tmp_path / "mine.pt") == own
    boards = tmp_path / "run" / "own" / "tensorboard"
    assert (boards / "runs" / "events").read_text() == "written\nwritten\n"
    assert (boards / "other" / "events").read_text() == "written\n"
    assert (tmp_path / "told-to-wandb").read_text() == "disabled\n"
    assert (tmp_path / "told-to-mlflow").read_text() == f"file://{tmp_path}/run/mlruns\n"
    told = json.loads((tmp_path / "run" / "told.json").read_text())
    assert told == {
        "steps": 6,
        "finds_batch_sizes": False,
        "read_back": "GPT2LMHeadModel",
        "tokens": 1,
        "saved": 1,
        "saved_again": 2,
    }


SAVES_IN_PLACE = """
import os, shutil, sys, time
import deepspeed, torch
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)])
config = sys.argv[sys.argv.index("--deepspeed_config") + 1]
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for step in range(100_000):
    engine.backward(engine(torch.randn(engine.train_micro_batch_size_per_gpu(), 256)).square().mean())
    engine.step()
    time.sleep(0.05)
    if step % 3 == 2:
        folder = f"best.tmp{os.getpid()}"
        os.makedirs(folder)
        torch.save(model.state_dict(), f"{folder}/model.pt")
        if os.path.exists("best"):
            shutil.rmtree("best")
        os.rename(folder, "best")
"""


@pytest.mark.slow
def test_runs_that_save_to_one_folder_go_one_after_the_other(dsopt: Dsopt) -> None:
    """Side by side, one was undone while the other saved, and weights of experiments stayed."""
    (dsopt.cwd / "train.py").write_text(SAVES_IN_PLACE)
    ds_config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": [0, 1]},
        "autotuning": {"max_train_micro_batch_size_per_gpu": 2},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": True}},
    }
    (dsopt.cwd / "ds.json").write_text(json.dumps(ds_config))
    (dsopt.cwd / "best").mkdir()
    (dsopt.cwd / "best" / "model.pt").write_text("mine")
    command = "deepspeed --num_accelerators 1 train.py --deepspeed_config ds.json"
    (dsopt.cwd / "study.yaml").write_text(yaml.safe_dump({"command": command, **SHORT}))
    dsopt("study", "create", "study.yaml")
    output = dsopt("worker", "study", "--devices", "cpu:2")
    assert output.count("saves outside of its own folder, where runs would meet each other's files") == 1
    assert [path.name for path in dsopt.cwd.glob("best*/*")] == ["model.pt"]
    assert (dsopt.cwd / "best" / "model.pt").read_text() == "mine"
    assert not [path for path in dsopt.cwd.rglob("*.pt") if path.parent.name != "best"]
    with contextlib.closing(sqlite3.connect(dsopt.cwd / "storage" / "dsopt.db")) as connection:
        times = connection.execute("SELECT started_at, finished_at FROM dsopt_attempts ORDER BY started_at").fetchall()
    assert len(times) > 2
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(times)), times
