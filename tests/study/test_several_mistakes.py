"""Several mistakes in one study: all of them are told at once, and none that only follows from another."""

import json
import random
from pathlib import Path

import pytest
import yaml

from dsopt.errors import DsoptError
from dsopt.study.load import load_spec
from dsopt.study.mistakes import Mistakes

BASE = {"name": "s", "command": "deepspeed --num_gpus 2 train.py --deepspeed_config ds.json"}


def mistakes_of(folder: Path, keys: dict, ds_config: dict | None = None) -> list[str]:
    (folder / "train.py").write_text("pass\n")
    (folder / "ds.json").write_text(json.dumps({"train_micro_batch_size_per_gpu": 4, **(ds_config or {})}))
    (folder / "study.yaml").write_text(yaml.safe_dump({**BASE, **keys}))
    with pytest.raises(DsoptError) as caught:
        load_spec(folder / "study.yaml")
    first, *others = str(caught.value).splitlines()
    if not others:
        return [first]
    assert first == f"{len(others)} mistakes:"
    assert [line.split(". ")[0] for line in others] == [str(number) for number in range(1, len(others) + 1)]
    return [line.split(". ", 1)[1] for line in others]


def test_five_mistakes_of_different_kinds_are_told_at_once(tmp_path: Path) -> None:
    keys = {
        "mesurement": {"race": False},
        "autotuning": {"metric": "thruput", "results_dir": "train.py", "max_train_batch_size": 1},
        "search": {"args": {"--x=1": [1, 2]}},
    }
    found = mistakes_of(tmp_path, keys, {"zero_optimization": {"overlap_com": True}})
    study, config = tmp_path / "study.yaml", tmp_path / "ds.json"
    assert found[0] == f"{study}: unknown key 'mesurement'. Did you mean 'measurement'?"
    assert found[1].startswith(f"{config}: unknown key 'zero_optimization.overlap_com'. Did you mean")
    assert found[2].startswith(f"{study}: autotuning.metric: 'thruput'. Expected 'throughput'")
    assert found[3].startswith(f"{study}: autotuning.max_train_batch_size: 1 is below the smallest possible batch, 8")
    assert found[4] == f"{study}: autotuning.results_dir: 'train.py' is a file. Expected a folder."
    assert found[5].startswith(f"{study}: search.args: '--x=1' is not a flag.")
    assert len(found) == 6


def test_all_unknown_keys_and_wrong_values_are_told(tmp_path: Path) -> None:
    keys = {"nme": 1, "autotuning": {"fats": True, "tuner_num_trials": 0}, "timeout_seconds": "soon", "max_attempts": 0}
    config = {"fp16": {"enable": True, "loss_scale": "high"}, "autotuning": {"metrc": "latency", "mp_size": 0}}
    found = "\n".join(mistakes_of(tmp_path, keys, config))
    for key in ("'nme'", "'autotuning.fats'", "'fp16.enable'", "'autotuning.metrc'"):
        assert f"unknown key {key}" in found
    for key in ("autotuning.tuner_num_trials: 0", "timeout_seconds: 'soon'", "max_attempts: 0", "fp16.loss_scale: 'hi"):
        assert f"study.yaml: {key}" in found or f"ds.json: {key}" in found
    assert f"{tmp_path / 'ds.json'}: autotuning.mp_size: 0" in found  # the file it stands in


@pytest.mark.parametrize(
    ("keys", "ds_config", "message"),
    [
        ({"command": None, "comand": BASE["command"]}, {}, "unknown key 'comand'. Did you mean 'command'?"),
        ({"ds_cofig": {}, "command": "deepspeed train.py"}, {}, "unknown key 'ds_cofig'. Did you mean 'ds_config'?"),
        ({"stop_when": "payback!", "training_hours": 24}, {}, "Expected 'patience' or 'payback'"),
        ({"simulation": {"gup": "L4-24GB", "model": "gpt2"}}, {}, "key 'simulation.gup'"),
        ({"command": "deepspeed --num_gpus two train.py --deepspeed_config ds.json"}, {"train_batch_size": 8}, "s two"),
        ({}, {"train_micro_batch_size_per_gpu": "x", "train_batch_size": 9}, "train_micro_batch_size_per_gpu: 'x'"),
    ],
)  # fmt: skip
def test_what_only_follows_from_a_mistake_is_not_told(tmp_path: Path, keys, ds_config, message) -> None:
    base = {key: value for key, value in BASE.items() if key not in keys}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump({k: v for k, v in {**base, **keys}.items() if v is not None}))
    (tmp_path / "train.py").touch()
    (tmp_path / "ds.json").write_text(json.dumps(ds_config))
    with pytest.raises(DsoptError) as caught:
        load_spec(tmp_path / "study.yaml")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_configuration_still_tells_of_the_studys_own_values(tmp_path: Path) -> None:
    found = mistakes_of(tmp_path, {"command": "deepspeed train.py", "timeout_seconds": -1})
    assert "no DeepSpeed configuration" in found[0]
    assert "timeout_seconds: -1" in found[1]


STUDY_KEYS = [
    {"autotuning": {"num_gpus": "two"}}, {"autotuning": {"arg_mappings": {"lr": "--lr=1"}}}, {"search": {"args": 3}},
    {"search": {"ds_config": {"fp16.enabled": [True, 1]}}}, {"search": {"ds_config": {"zero_optimization": [1]}}},
    {"isolate": ["--out", "--out"]}, {"launcher": "simulated"}, {"simulation": {"gpu": "H100-80GB", "model": "gpt"}},
    {"autotuning": {"mp_size": 3}}, {"autotuning": {"exps_dir": "train.py"}}, {"name": "a/b"}, {"warm_start": ["s"]},
    {"command": "torchrun --nnodes 2 gone.py --deepspeed ds.json"}, {"autotuning": {"end_profile_step": 1}},
]  # fmt: skip
CONFIG_KEYS = [
    {"train_micro_batch_size_per_gpu": []}, {"train_micro_batch_size_per_gpu": [1, None]}, {"train_batch_size": 7},
    {"gradient_accumulation_steps": ["a", 2]}, {"zero_optimization": "some"}, {"zero_optimization": {"stage": []}},
    {"zero_optimization": {"reduce_bucket_size": []}}, {"fp16": {"enabled": [True]}}, {"optimizer": {"type": 3}},
    {"zero_optimization": {"offload_param": {"device": ["cpu", "nvme"]}}}, {"autotuning": {"model_info": {}}},
]  # fmt: skip


def test_no_combination_of_mistakes_is_too_much(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    rng = random.Random(0)
    for _ in range(200):
        keys = {key: value for one in rng.sample(STUDY_KEYS, 3) for key, value in one.items()}
        config = {key: value for one in rng.sample(CONFIG_KEYS, 2) for key, value in one.items()}
        mistakes_of(tmp_path, keys, config)


def test_a_check_is_made_only_of_what_is_sound() -> None:
    mistakes = Mistakes()
    mistakes.add("wrong", "search.args")
    assert mistakes.is_doubtful("search")
    assert mistakes.is_doubtful("search.args.--x")
    assert not mistakes.is_doubtful("search.ds_config", "searching")
    assert mistakes.check(("search",), list[str]) == []
    with pytest.raises(DsoptError, match=r"^wrong$"):
        mistakes.end_if_any()
