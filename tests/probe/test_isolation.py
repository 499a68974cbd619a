"""What an experiment is started with: nothing of the user's is resumed from, saved to or reported to."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from dsopt.errors import DsoptError
from dsopt.launch.outside import new_traces, traces
from dsopt.launch.undone import undo
from dsopt.probe.isolation import Isolation
from dsopt.protocol.run_dir import RunDir
from dsopt.search.history import History
from dsopt.study.command import LaunchCommand
from dsopt.study.isolation import config_notes, isolated_command, isolated_config, isolation_notes, quiet_environment
from dsopt.study.load import build_spec
from dsopt.worker.final_training import check_leftovers
from tests.made_up import observation


def isolated(arguments: str, *isolate: str) -> str:
    command = LaunchCommand.parse(f"deepspeed t.py {arguments}", "test")
    changed = isolated_command(command, isolate, lambda flag, given: Path("/run") / flag.lstrip("-"))
    return " ".join(changed.script_args)


@pytest.mark.parametrize(
    ("typed", "run"),
    [
        ("--output_dir out --lr 1", "--output_dir /run/output_dir --lr 1"),
        ("--output-dir=out", "--output-dir=/run/output_dir"),
        ("--output_dir a --logging_dir a/logs", "--output_dir /run/output_dir --logging_dir /run/logging_dir"),
        ("--resume_from_checkpoint out/checkpoint-5 --lr 1", "--lr 1"),
        ("--resume_from_checkpoint=out --lr 1", "--lr 1"),
        ("--save_strategy steps --save_steps 5", "--save_strategy no --save_steps 5"),
        ("--report_to wandb", "--report_to none"),
        ("--push_to_hub --lr 1", "--lr 1"),
        ("--push_to_hub True --lr 1", "--lr 1"),
        ("--push_to_hub data.txt", "data.txt"),
        ("--with_tracking --checkpointing_steps epoch", ""),
        ("--load_best_model_at_end True --lr -1", "--lr -1"),
        ("--save-dir out", "--save-dir out"),
        ("--lr 1", "--lr 1"),
    ],
)
def test_known_flags(typed: str, run: str) -> None:
    assert isolated(typed) == run


@pytest.mark.parametrize(
    ("typed", "run"),
    [
        ("--save-dir out --lr 1", "--save-dir /run/save-dir --lr 1"),
        ("--save_dir=out", "--save_dir=/run/save-dir"),
        ("--lr 1", "--lr 1 --save-dir /run/save-dir"),  # the script's default would be the user's folder
    ],
)
def test_a_flag_that_the_user_names(typed: str, run: str) -> None:
    assert isolated(typed, "--save-dir") == run


def test_deepspeeds_own_reports_are_off_and_its_profile_is_the_runs() -> None:
    config = {
        "tensorboard": {"enabled": True, "output_path": "tb"},
        "wandb": {"enabled": False},
        "flops_profiler": {"enabled": True, "output_file": "profile.txt"},
    }
    assert isolated_config(config, lambda name, given: Path("/run") / given) == {
        "tensorboard": {"enabled": False, "output_path": "tb"},
        "wandb": {"enabled": False},
        "flops_profiler": {"enabled": True, "output_file": "/run/profile.txt"},
    }
    assert config["tensorboard"]["enabled"] is True


def test_curricula_are_at_their_end_and_write_to_the_runs_folder() -> None:
    """Of 15,000 steps with longer and longer samples a run sees the first: they said 20.9 times for 2.2."""
    sampling = {
        "enabled": True, "data_cluster_path": "/mine/cluster",
        "curriculum_metrics": {
            "seqlen": {"min_difficulty": 8, "max_difficulty": 512, "schedule_type": "fixed_linear"},
            "rarity": {"min_difficulty": 7, "max_difficulty": 7},
        },
    }  # fmt: skip
    tokens = {"enabled": True, "random_ltd_schedule": {"min_value": 128, "max_value": 2048}}
    efficiency = {
        "enabled": True,
        "data_sampling": {"curriculum_learning": sampling},
        "data_routing": {"random_ltd": tokens},
    }
    config = {
        "data_efficiency": efficiency,
        "curriculum_learning": {"enabled": False, "min_difficulty": 1, "max_difficulty": 2},
    }
    run = isolated_config(config, lambda name, given: Path("/run") / name)
    metrics = run["data_efficiency"]["data_sampling"]["curriculum_learning"]["curriculum_metrics"]
    assert (metrics["seqlen"]["min_difficulty"], metrics["rarity"]["min_difficulty"]) == (512, 7)
    assert run["data_efficiency"]["data_routing"]["random_ltd"]["random_ltd_schedule"]["min_value"] == 2048
    clusters = run["data_efficiency"]["data_sampling"]["curriculum_learning"]["data_cluster_path"]
    assert clusters == "/run/data_clusters"
    assert run["curriculum_learning"]["min_difficulty"] == 1  # it is off
    assert sampling["curriculum_metrics"]["seqlen"]["min_difficulty"] == 8
    notes = config_notes(config)
    assert [note.partition(": ")[0].rpartition(".")[2] for note in notes] == ["seqlen", "random_ltd_schedule"]
    tokens["enabled"] = False
    assert len(config_notes(config)) == 1
    legacy = {"curriculum_learning": {"enabled": True, "min_difficulty": 8, "max_difficulty": 64}}
    assert isolated_config(legacy, lambda name, given: Path())["curriculum_learning"]["min_difficulty"] == 64


@pytest.mark.parametrize(
    ("given", "own"), [("out", ""), ("out/v1.0", ""), ("out.d/", ""), ("", ""), ("a/model.pt", "model.pt")]
)
def test_a_run_has_a_path_of_its_own_for_each_flag(tmp_path: Path, given: str, own: str) -> None:
    path = RunDir(tmp_path).own_path("--save-dir", given)
    assert path == tmp_path / "own" / "save-dir" / own
    assert (tmp_path / "own" / "save-dir").is_dir()


def test_what_differs_is_said() -> None:
    command = LaunchCommand.parse("deepspeed t.py --output_dir o --push_to_hub --report_to none", "test")
    assert isolation_notes(command, ["--save"]) == [
        "each experiment has its own folder for --output_dir, --save",
        "experiments neither resume, save nor report, whatever --push_to_hub says",
    ]
    assert isolation_notes(LaunchCommand.parse("deepspeed t.py", "test"), []) == []


@pytest.mark.parametrize(
    ("typed", "suspected"),
    [
        ("--save-dir o", ["--save-dir"]),
        ("--checkpoint_path=o --ckpt-dir p --log_dir q", ["--checkpoint_path", "--ckpt-dir", "--log_dir"]),
        ("--save o --output o", ["--save", "--output"]),
        ("--output_dir o --save_steps 5 --data_dir d --model_path m --log_level info", []),
    ],
)
def test_flags_that_seem_to_name_what_is_written_are_pointed_out(typed: str, suspected: list[str]) -> None:
    command = LaunchCommand.parse(f"deepspeed t.py {typed}", "test")
    notes = [note for note in isolation_notes(command, []) if "seems to name" in note]
    assert [note.split()[0] for note in notes] == suspected
    assert isolation_notes(command, suspected) != notes or not suspected


@pytest.mark.parametrize(
    ("isolate", "message"),
    [
        ("--save", r"isolate: '--save'. Expected a list of the script's flags, such as \[--save-dir\]"),
        (["a b"], "isolate: '--a b' is not a flag"),
        (["--deepspeed"], "dsopt sets --deepspeed"),
        (["--batch"], "isolate: the search sets --batch, too"),
        (["--lr"], None),
    ],
)
def test_flags_that_cannot_be_isolated(tmp_path: Path, isolate: object, message: str | None) -> None:
    (tmp_path / "t.py").touch()
    study = {
        "name": "s",
        "command": "deepspeed t.py --lr 1",
        "cwd": str(tmp_path),
        "ds_config": {"train_micro_batch_size_per_gpu": 1},
        "isolate": isolate,
        "autotuning": {"arg_mappings": {"train_micro_batch_size_per_gpu": "--batch"}},
    }
    if message is None:
        assert build_spec(study, "study.yaml")[0].isolate == isolate
        return
    with pytest.raises(DsoptError, match=message):
        build_spec(study, "study.yaml")


def test_new_checkpoints_in_the_working_folder_are_noticed(tmp_path: Path) -> None:
    results = tmp_path / "autotuning_results"
    for folder in ("checkpoint-4", "data", "autotuning_results/z0", ".cache", "far/far/far/far"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "checkpoint-4" / "model.safetensors").write_text("mine")
    (tmp_path / "model.pt").write_text("mine")
    before = traces(tmp_path, (results,))
    assert new_traces(before, traces(tmp_path, (results,))) == []

    (tmp_path / "ckpt" / "global_step5").mkdir(parents=True)
    (tmp_path / "ckpt" / "latest").write_text("global_step5")
    (tmp_path / "model.pt").write_text("an experiment's")
    os.utime(tmp_path / "model.pt", ns=(1, 1))  # another time, however coarse the file system's clock
    (results / "z0" / "model.pt").touch()
    (tmp_path / ".cache" / "model.pt").touch()
    (tmp_path / "data" / "rows.csv").touch()
    (tmp_path / "far/far/far/far" / "model.pt").touch()
    assert new_traces(before, traces(tmp_path, (results,))) == [tmp_path / "ckpt", tmp_path / "model.pt"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"search": {"args": {"--output_dir": ["a", "b"]}}}, "--output_dir .*dsopt sets it for each experiment"),
        ({"autotuning": {"arg_mappings": {"zero_optimization.stage": "--report_to"}}}, "--report_to .*dsopt sets it"),
        ({"isolate": ["--save-dir", "--save_dir"]}, "isolate: --save_dir appears twice"),
    ],
)
def test_what_isolation_sets_is_no_dimension(tmp_path: Path, keys: dict, message: str) -> None:
    (tmp_path / "t.py").touch()
    study = {"name": "s", "command": "deepspeed t.py", "cwd": str(tmp_path), "ds_config": {"train_batch_size": 2}}
    with pytest.raises(DsoptError, match=message):
        build_spec({**study, **keys}, "study.yaml")


def test_early_stopping_of_transformers_4_may_begin(tmp_path: Path) -> None:
    class EarlyStoppingCallback:
        def on_train_begin(self, args: SimpleNamespace) -> None:
            assert args.load_best_model_at_end, "EarlyStoppingCallback requires load_best_model_at_end = True"

    module = ModuleType("transformers.trainer_callback")
    module.EarlyStoppingCallback = EarlyStoppingCallback  # type: ignore[attr-defined]
    isolation = Isolation.__new__(Isolation)  # without hooks into this process
    isolation._run_dir = None
    isolation._isolate_callbacks(module)
    off = SimpleNamespace(load_best_model_at_end=False)
    with pytest.raises(AssertionError):
        EarlyStoppingCallback().on_train_begin(off)
    isolation._run_dir = RunDir(tmp_path)
    EarlyStoppingCallback().on_train_begin(off)


def test_no_tracker_is_told_anything() -> None:
    quiet = quiet_environment(Path("/run"))
    names = ("WANDB_MODE", "CLEARML_OFFLINE_MODE", "NEPTUNE_MODE", "COMET_AUTO_LOG_DISABLE")
    assert [quiet[name] for name in names] == ["disabled", "1", "debug", "1"]


SAVES = """
import os, shutil, sys
from pathlib import Path
import torch
import torch.distributed.checkpoint as dcp
from dsopt.probe.isolation import Isolation
from dsopt.protocol.events import EventWriter, Step
from dsopt.protocol.run_dir import RunDir

run_dir = RunDir(Path(sys.argv[1]))
isolation = Isolation()
writer = EventWriter(run_dir, 0)
isolation.activate(writer, run_dir)
torch.save({"tokens": 1}, "tokens.pt")  # before anything was trained
writer.emit(Step(rank=0, step=1, seconds=1.0, samples=1))
moves = [os.replace, os.rename, shutil.move, lambda one, other: Path(one).replace(other)]
moves.append(lambda one, other: os.replace(src=one, dst=other))
moves.append(lambda one, other: os.rename(one, dst=other))
for number, move in enumerate(moves):
    torch.save({"step": number}, "last.pt.tmp")
    move("last.pt.tmp", "mine.pt")  # over the user's own
    move("mine.pt", "mine.pt.bak")  # the last one is kept as another
    torch.save({"step": number}, "new.pt.tmp")
    move("new.pt.tmp", f"new{number}.pt")
    move(f"new{number}.pt", f"renamed{number}.pt")
dcp.save({"weight": torch.zeros(2)}, checkpoint_id="dcp")
assert dcp.async_save({"weight": torch.zeros(2)}, checkpoint_id="dcp").result() is None
dcp.load({"weight": torch.zeros(2)}, checkpoint_id="dcp")
dcp.save_state_dict({"weight": torch.zeros(2)}, dcp.FileSystemWriter("dcp"))
dcp.load_state_dict({"weight": torch.zeros(2)}, dcp.FileSystemReader("dcp"))
torch.save({"features": 1}, "cached.pt")
assert torch.load("cached.pt") == {"features": 1}  # a script may load what it has saved
for name in ("replaced.pt", "overwritten.pt", "epoch1.pt"):
    torch.save({"step": 9}, name)
os.symlink("epoch1.pt", "latest.pt")
os.makedirs(".cache")
torch.save({"features": 3}, ".cache/features.pt")
os.replace(b"cached.pt", b"bytes.pt")
os.rename("bytes.pt", "cached.pt", src_dir_fd=None)
torch.save({"features": 2}, "cached_features")
torch.save({"step": 9}, run_dir.path / "own.pt")
"""


def test_what_a_run_saves_replaces_nothing_and_is_gone_after_it(tmp_path: Path) -> None:
    """A script that writes a new file and puts it in the place of its last checkpoint would lose the user's."""
    run_dir, work = RunDir.create(tmp_path / "results", "baseline"), tmp_path / "work"
    (work / "dcp").mkdir(parents=True)
    for mine in ("mine.pt", "mine.pt.bak", "dcp/__0_0.distcp", "dcp/.metadata"):
        (work / mine).write_text("mine")
    (work / "mine-too.pt").symlink_to("mine.pt")
    done = subprocess.run([sys.executable, "-c", SAVES, run_dir.path], cwd=work, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "dsopt: skipped in an experiment: torch.distributed.checkpoint.save" in done.stderr
    assert {"cached.pt", "renamed0.pt", "renamed3.pt"} <= set(os.listdir(work))
    (work / "replaced.pt").rename(work / "theirs")
    for theirs in ("replaced.pt", "overwritten.pt"):
        (work / theirs).write_text("somebody else's")
    undo(run_dir)
    mine = {"mine.pt", "mine.pt.bak", "mine-too.pt", "dcp"}
    kept = {"tokens.pt", ".cache"}
    assert set(os.listdir(work)) == {*mine, *kept, "replaced.pt", "overwritten.pt", "theirs"}
    assert {(work / name).read_text() for name in ("mine.pt", "mine.pt.bak", "dcp/__0_0.distcp", "dcp/.metadata")} == {
        "mine"
    }
    assert (work / "replaced.pt").read_text() == "somebody else's"
    assert (run_dir.path / "own.pt").exists()


def test_no_training_begins_where_experiments_left_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "t.py").touch()
    study = {"name": "s", "command": "deepspeed t.py", "cwd": str(tmp_path), "ds_config": {"train_batch_size": 2}}
    spec, _ = build_spec(study, "study.yaml")
    known = History(reference=[observation(None, 1.0, wrote_outside="ckpt, gone.pt")], stages={})
    check_leftovers(spec, known, None, spec.launch)
    (tmp_path / "ckpt").mkdir()
    check_leftovers(spec, known, time.time() - 3600, spec.launch)  # the user has trained since
    with pytest.raises(DsoptError, match=r"the training does not begin: while experiments ran, ckpt appeared"):
        check_leftovers(spec, known, time.time(), spec.launch)
