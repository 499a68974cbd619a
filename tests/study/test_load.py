"""Study files and command lines: what they become, and each mistake with its message."""

import base64
import json
from datetime import date
from pathlib import Path

import pytest
import yaml

from dsopt.errors import DsoptError
from dsopt.study.load import build_spec, load_spec
from dsopt.study.spec import StudySpec

MICRO_BATCH_FLAG = {"train_micro_batch_size_per_gpu": "--per_device_train_batch_size"}
ACCUMULATION_FLAG = {"gradient_accumulation_steps": "--gradient_accumulation_steps"}
BASE = {"name": "s", "command": "deepspeed --num_gpus 2 train.py --deepspeed_config ds.json"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("pass\n")
    (tmp_path / "ds.json").write_text(json.dumps({"train_micro_batch_size_per_gpu": 4}))
    return tmp_path


def load(folder: Path, ds_config: dict | None = None, **keys: object) -> tuple[StudySpec, list[str]]:
    if ds_config is not None:
        (folder / "ds.json").write_text(json.dumps(ds_config))
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump({**BASE, **keys}))
    return load_spec(path)


def test_defaults_are_the_tutorials(folder: Path) -> None:
    spec, warnings = load(folder)
    tuning = spec.autotuning
    assert warnings == []
    assert (tuning.metric, tuning.fast, tuning.tuner_type) == ("throughput", True, "model_based")
    assert (tuning.tuner_early_stopping, tuning.tuner_num_trials, tuning.num_tuning_micro_batch_sizes) == (None, 50, 3)
    assert (tuning.start_profile_step, tuning.end_profile_step, tuning.window) == (3, 5, None)
    assert (tuning.mp_size, tuning.overwrite, tuning.max_train_batch_size) == (1, False, None)
    assert spec.stages == (0, 1, 2, 3)
    assert spec.cwd == str(folder)
    assert spec.results_dir == "autotuning_results"


def test_autotuning_in_the_json_counts_and_the_studys_own_keys_win(folder: Path) -> None:
    ds_config = {
        "train_micro_batch_size_per_gpu": "auto",
        "autotuning": {
            "enabled": True,
            "fast": False,
            "tuner_type": " gridsearch",
            "tuner_num_trials": 7,
            "start_step": 5,
            "end_step": 10,
            "arg_mappings": {"train_micro_batch_size_per_gpu": "bs", "gradient_accumulation_steps ": "--gas"},
        },
    }
    spec, _ = load(folder, ds_config, autotuning={"tuner_num_trials": 9})
    assert spec.autotuning.tuner_num_trials == 9
    assert spec.autotuning.tuner_type == "gridsearch"
    assert spec.autotuning.window == (5, 10)
    assert spec.autotuning.arg_mappings == {
        "train_micro_batch_size_per_gpu": "--bs",
        "gradient_accumulation_steps": "--gas",
    }
    assert "autotuning" not in spec.ds_config


def test_an_inline_configuration_stands_for_the_file(folder: Path) -> None:
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump({**BASE, "command": "deepspeed train.py", "ds_config": {"steps_per_print": 7}}))
    spec, _ = load_spec(path)
    assert spec.ds_config == {"steps_per_print": 7}


def test_a_spec_survives_its_json_and_keeps_its_digest(folder: Path) -> None:
    spec, _ = load(folder, memory_per_device="24GiB", timeout_seconds=60)
    again = StudySpec.model_validate_json(spec.to_json())
    assert again == spec
    assert again.digest == spec.digest
    assert spec.memory_per_device == 24 * 2**30


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"nme": 1}, "unknown key 'nme'. Did you mean 'name'?"),
        ({"autotuning": {"metrc": "latency"}}, "unknown key 'autotuning.metrc'. Did you mean 'autotuning.metric'?"),
        ({"autotuning": {"metric": "thruput"}}, "autotuning.metric: 'thruput'. Expected 'throughput'"),
        ({"autotuning": {"tuner_type": "modelbased"}}, "Did you mean 'model_based'?"),
        ({"autotuning": {"tuner_early_stopping": 0}}, "autotuning.tuner_early_stopping: 0."),
        ({"autotuning": {"fast": "yes please"}}, "autotuning.fast: 'yes please'."),
        ({"autotuning": {"start_profile_step": 9, "end_profile_step": 4}}, "is before start_profile_step 9"),
        ({"autotuning": {"arg_mappings": {"train_micro_batch_size_per_gpu": 3}}}, "expected the script's flag"),
        ({"autotuning": [1]}, "autotuning: [1]."),
        ({"name": "a/b"}, "name: 'a/b'. Expected a name of letters"),
        ({"name": None}, "name: None."),
        ({"name": date(2020, 1, 1)}, "name: 2020-01-01 is no text in YAML. Put it in quotes."),
        ({"command": "deepspeed --num_gpus 10000000 t.py"}, "10000000. Expected a whole number from 1 to 9999999."),
        ({"timeout_seconds": -1}, "timeout_seconds: -1."),
        ({"timeout_seconds": True}, "timeout_seconds: True. Expected a number, not true or false"),
        ({"timeout_seconds": 1e308}, "timeout_seconds: 1e+308."),
        ({"max_attempts": 10**30}, "max_attempts: 1000000000000000000000000000000."),
        ({"autotuning": {"tuner_num_trials": True}}, "autotuning.tuner_num_trials: True."),
        ({"memory_per_device": True}, "memory_per_device: True."),
        ({"timeout_seconds": "soon"}, "timeout_seconds: 'soon'."),
        ({"memory_per_device": "lots"}, "memory_per_device: 'lots'. Expected a number of bytes"),
        ({"memory_per_device": 80}, "memory_per_device: 80 bytes. Expected a device's memory, such as 80GiB"),
        ({"measurement": {"precison": 1}}, "Did you mean 'measurement.precision'?"),
        ({"confirmation": {"rounds": 0}}, "confirmation.rounds: 0."),
        ({"confirmation": {"certainty": 1}}, "confirmation.certainty: 1."),
        ({"stage_order": "random"}, "stage_order: 'random'."),
        ({"stop_when": "payback"}, "study.yaml: stop_when: payback and training_hours"),
        ({"training_hours": 24}, "stop_when: payback"),
        ({"name": "own", "warm_start": ["own"]}, "warm_start: 'own' is this study itself"),
        ({"cwd": "nowhere"}, "is not a folder"),
        ({"command": "deepspeed missing.py --deepspeed_config ds.json"}, "no training script 'missing.py'"),
        ({"command": "deepspeed train.py --deepspeed_config no.json"}, "no such file"),
        ({"command": "deepspeed train.py"}, "no DeepSpeed configuration"),
        (
            {"command": "deepspeed train.py --deepspeed_conf=ds.json"},
            "Write --deepspeed_conf as --deepspeed_config.",
        ),
        ({"command": "deepspeed train.py --deepspeed_config ds.json && echo hi"}, "'&&' is shell syntax"),
        ({"command": "deepspeed train.py --deepspeed_config ds.json > log"}, "'>' is shell syntax"),
        ({"command": "deepspeed $NOT_SET_AT_ALL/t.py"}, "the variable '$NOT_SET_AT_ALL'"),
        ({"autotuning": {"mp_size": 3}}, "autotuning.mp_size: 3 does not divide the 2 ranks"),
        (
            {"autotuning": {"max_train_micro_batch_size_per_gpu": 2}},
            "2 is below the smallest micro-batch size to try, 4",
        ),
        ({"timeout_seconds": float("inf")}, "timeout_seconds: inf."),
        ({"memory_per_device": "9" * 400}, "memory_per_device"),
        ({"name": "n" * 101}, "at most 100 of them"),
        ({"command": "deepspeed --num_gpus two train.py --deepspeed_config ds.json"}, "--num_gpus two"),
        ({"command": "deepspeed --num_nodes two train.py --deepspeed_config ds.json"}, "--num_nodes two"),
        (
            {"command": "torchrun --nnodes 2 --log_dir logs train.py --deepspeed_config ds.json"},
            "does not know what --log_dir does there",
        ),
        ({"command": "torchrun --nproc_per_node two train.py --deepspeed ds.json"}, "--nproc_per_node two"),
        ({"command": "deepspeed --no_python train.sh --deepspeed_config ds.json"}, "must be a Python program"),
        ({"command": "accelerate launch --zero_stage 2 train.py"}, "one by one (--zero_stage)"),
    ],
)
def test_mistakes_in_the_study_file(folder: Path, keys: dict, message: str) -> None:
    with pytest.raises(DsoptError) as caught:
        load(folder, **keys)
    assert message in str(caught.value)
    assert "study.yaml" in str(caught.value) or "json" in str(caught.value)


@pytest.mark.parametrize(
    ("ds_config", "message"),
    [
        ({"train_micro_batch_size_per_gp": 4}, "Did you mean 'train_micro_batch_size_per_gpu'?"),
        ({"zero_optimisation": {"stage": 1}}, "Did you mean 'zero_optimization'?"),
        ({"zero_optimization": {"overlap_com": True}}, "Did you mean 'zero_optimization.overlap_comm'?"),
        ({"zero_optimization": {"offload_param": {"devise": "cpu"}}}, "zero_optimization.offload_param.device"),
        ({"fp16": {"enable": True}}, "Did you mean 'fp16.enabled'?"),
        ({"autotuning": {"fats": True}}, "unknown key 'autotuning.fats'. Did you mean 'autotuning.fast'?"),
        ({"autotuning": 3}, "autotuning: 3."),
        ({"autotuning": {"metric": "speed"}}, "autotuning.metric: 'speed'. Expected 'throughput'"),
        ({"fp16": True}, "fp16: True. Expected an object"),
        ({"TRAIN_BATCH_SIZE": 4}, "Did you mean 'train_batch_size'?"),
        ({"steps_per_print": float("nan")}, "NaN is not a JSON number"),
        ({"train_micro_batch_size_per_gpu": [1, None]}, "None is not a valid size"),
        ({"train_micro_batch_size_per_gpu": [1, "auto"]}, "'auto' is not a valid size"),
        ({"train_batch_size": 7, "train_micro_batch_size_per_gpu": [2, 4]}, "7 is not a multiple of"),
        ({"train_batch_size": 7, "gradient_accumulation_steps": 2}, "7 is not a multiple of"),
        ({"train_batch_size": 1}, "1 is not a multiple of data-parallel ranks 2"),
        ({"train_micro_batch_size_per_gpu": [0, 4]}, "0 is not a valid size"),
        ({"train_micro_batch_size_per_gpu": [1, "two"]}, "'two' is not a valid size"),
        ({"train_micro_batch_size_per_gpu": []}, "the list is empty"),
        ({"train_micro_batch_size_per_gpu": True}, "True is not a valid size"),
        ({"gradient_accumulation_steps": [1, "2"]}, "gradient_accumulation_steps: [1, '2']: '2' is not a valid size"),
        ({"zero_optimization": {"stage": 4}}, "zero_optimization.stage: 4."),
        ({"zero_optimization": {"stage": 2.0}}, "zero_optimization.stage: 2.0. Expected 0, 1, 2 or 3"),
        ({"zero_optimization": {"stage": [1.0, 2]}}, "zero_optimization.stage: [1.0, 2]. Expected 0, 1, 2 or 3"),
        ({"zero_optimization": {"stage": []}}, "zero_optimization.stage: []."),
        ({"zero_optimization": "some"}, "zero_optimization: 'some'."),
        ({"zero_optimization": {"reduce_bucket_size": []}}, "the list is empty"),
        ({"zero_optimization": {"reduce_bucket_size": [[1]]}}, "Expected a list of single values"),
        (
            {"train_batch_size": 9, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1},
            "train_batch_size: 9 contradicts train_micro_batch_size_per_gpu 4",
        ),
        ({"train_batch_size": 9, "train_micro_batch_size_per_gpu": 4}, "is not a multiple of"),
        ({"train_batch_size": "many"}, "train_batch_size: 'many'."),
    ],
)
def test_mistakes_in_the_deepspeed_configuration(folder: Path, ds_config: dict, message: str) -> None:
    with pytest.raises(DsoptError) as caught:
        load(folder, ds_config)
    assert message in str(caught.value)
    assert "ds.json" in str(caught.value)


def test_what_json_cannot_hold_is_refused_in_an_inline_configuration(folder: Path) -> None:
    circle: dict = {}
    circle["again"] = circle
    no_json = "cannot be written as JSON"
    for value, why in ((b"bytes", no_json), (circle, no_json), (float("nan"), no_json), ("\ud800", "not UTF-8 text")):
        with pytest.raises(DsoptError, match=why):
            build_spec({**BASE, "cwd": str(folder), "ds_config": {"my_section": value}}, "study.yaml")


def test_a_number_that_json_cannot_hold_is_named(folder: Path) -> None:
    content = {"optimizer": {"params": {"betas": [0.9, float("inf")]}}}
    with pytest.raises(DsoptError, match=r"key 'optimizer\.params\.betas\.1' cannot be written as JSON"):
        build_spec({**BASE, "cwd": str(folder), "ds_config": content}, "study.yaml")


def test_variables_in_a_typed_command_have_their_values(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_CONFIG", "ds.json")
    spec, _ = load(folder, command="deepspeed train.py --deepspeed_config ${MY_CONFIG}")
    assert spec.launch.config == "ds.json"


def test_a_command_given_as_a_list_is_taken_as_it_is(folder: Path) -> None:
    words = ["deepspeed", "train.py", "--deepspeed_config", "ds.json", "--pattern", "$HOME|x", ">"]
    spec, _ = load(folder, command=words)
    assert spec.launch.argv() == words
    assert StudySpec.model_validate_json(spec.to_json()).launch.argv() == words


def test_other_unknown_keys_are_kept_with_a_warning(folder: Path) -> None:
    spec, warnings = load(folder, {"train_micro_batch_size_per_gpu": 4, "my_own_section": {"x": 1}})
    assert spec.ds_config["my_own_section"] == {"x": 1}
    assert len(warnings) == 1
    assert "'my_own_section'" in warnings[0]


def test_an_inline_configuration_has_to_be_a_mapping(folder: Path) -> None:
    with pytest.raises(DsoptError, match=r"ds_config: 3\. Expected DeepSpeed's configuration as a mapping"):
        build_spec({**BASE, "cwd": str(folder), "ds_config": 3}, "study.yaml")


def test_a_missing_command_is_named() -> None:
    with pytest.raises(DsoptError, match="key 'command' is missing"):
        build_spec({"name": "a"}, "study.yaml")


def test_a_configuration_in_base64_is_read_as_deepspeed_does(folder: Path) -> None:
    text = base64.urlsafe_b64encode(b'{"train_micro_batch_size_per_gpu": 3}').decode()
    spec, _ = load(folder, command=f"deepspeed train.py --deepspeed_config {text}")
    assert spec.ds_config == {"train_micro_batch_size_per_gpu": 3}
    assert spec.launch.with_config("run.json").script_args == ("--deepspeed_config", "run.json")
    broken = base64.urlsafe_b64encode(b'{"train_micro_batch_size_per_gpu": }').decode()
    with pytest.raises(DsoptError, match=r"the configuration in base64: line 1, column 36: invalid JSON"):
        load(folder, command=f"deepspeed train.py --deepspeed_config {broken}")


def test_accelerates_own_configuration_names_the_file(folder: Path) -> None:
    (folder / "acc.yaml").write_text(yaml.safe_dump({"deepspeed_config": {"deepspeed_config_file": "ds.json"}}))
    spec, _ = load(folder, command="accelerate launch --config_file acc.yaml train.py")
    assert spec.ds_config == {"train_micro_batch_size_per_gpu": 4}
    started = spec.launch.with_config("run.json")
    assert str(started) == "accelerate launch --config_file acc.yaml --deepspeed_config_file run.json train.py"
    (folder / "acc.yaml").write_text(yaml.safe_dump({"deepspeed_config": {"zero_stage": 2}}))
    with pytest.raises(DsoptError, match="one by one"):
        load(folder, command="accelerate launch --config_file acc.yaml train.py")


@pytest.mark.parametrize(
    ("script", "args", "mappings"),
    [
        ("pass", "", {}),
        (
            "pass",
            "--per_device_train_batch_size 4",
            {"train_micro_batch_size_per_gpu": "--per_device_train_batch_size"},
        ),
        (
            "pass",
            "--per-device-train-batch-size=4",
            {"train_micro_batch_size_per_gpu": "--per_device_train_batch_size"},
        ),
        ("pass", "--gradient_accumulation_steps 4", {"gradient_accumulation_steps": "--gradient_accumulation_steps"}),
        (
            "from transformers import HfArgumentParser",
            "",
            {
                "train_micro_batch_size_per_gpu": "--per_device_train_batch_size",
                "gradient_accumulation_steps": "--gradient_accumulation_steps",
            },
        ),
    ],
)
def test_the_trainers_flags_are_mapped_without_being_told(folder: Path, script, args, mappings) -> None:
    (folder / "train.py").write_text(script)
    spec, warnings = load(folder, command=f"deepspeed --num_gpus 2 train.py --deepspeed_config ds.json {args}")
    assert spec.autotuning.arg_mappings == mappings
    assert not mappings or "dsopt sets flags of the Hugging Face Trainer together with the configuration" in warnings[0]
    for key, flag in mappings.items():
        assert f"{flag} follows {key}" in warnings[0]


def test_what_the_user_maps_is_left_alone(folder: Path) -> None:
    spec, warnings = load(
        folder,
        {"arg_mappings": {"train_micro_batch_size_per_gpu": "bs"}, "autotuning": {"enabled": True}},
        command="deepspeed train.py --deepspeed_config ds.json --bs 4 --per_device_train_batch_size 1",
    )
    assert spec.autotuning.arg_mappings == {"train_micro_batch_size_per_gpu": "--bs"}
    assert "dsopt moves 'arg_mappings' to autotuning" in warnings[0]


def test_deepspeeds_own_autotuning_option_is_left_out(folder: Path) -> None:
    spec, warnings = load(folder, command="deepspeed --autotuning tune train.py --deepspeed_config ds.json")
    assert str(spec.launch) == "deepspeed train.py --deepspeed_config ds.json"
    assert "would start DeepSpeed's own tuner" in warnings[0]


@pytest.mark.parametrize(
    ("autotuning", "command", "resources"),
    [
        ({"num_gpus": 4}, "deepspeed train.py", "deepspeed --num_gpus 4 train.py"),
        ({"num_gpus": [2, 4]}, "deepspeed train.py", "deepspeed --num_gpus 2 train.py"),
        ({"num_gpus": [2, 4]}, "deepspeed --num_gpus 8 train.py", "deepspeed --num_gpus 8 train.py"),
        ({"num_nodes": 2}, "deepspeed --hostfile h train.py", "deepspeed --hostfile h --num_nodes 2 train.py"),
        ({"num_nodes": [1, 2]}, "deepspeed -H h train.py", "deepspeed -H h --num_nodes 1 train.py"),
        ({"num_nodes": 1}, "deepspeed -H h train.py", "deepspeed --num_nodes 1 train.py"),
        ({}, "deepspeed --hostfile=h --num_nodes 1 train.py", "deepspeed --num_nodes 1 train.py"),
        (
            {},
            "deepspeed -H h --num_nodes=1 --force_multi train.py",
            "deepspeed -H h --num_nodes=1 --force_multi train.py",
        ),
    ],
)
def test_resources_as_values_and_lists(folder: Path, autotuning, command, resources) -> None:
    (folder / "h").write_text("one slots=4\ntwo slots=4\n")
    spec, warnings = load(folder, command=f"{command} --deepspeed_config ds.json", autotuning=autotuning)
    assert str(spec.resources) == f"{resources} --deepspeed_config ds.json"
    assert any("--hostfile h:" in warning for warning in warnings) == (spec.launch.hostfile != spec.resources.hostfile)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"search": {"arg": {}}}, "Did you mean 'search.args'?"),
        ({"search": {"args": {"--x": 1}}}, "--x: expected a list of single values to try"),
        ({"search": {"args": {"--x": []}}}, "--x: expected a list of single values"),
        ({"search": {"args": {"--x": ["a", "a"]}}}, "--x: a value appears twice"),
        ({"search": {"ds_config": {"gradient_accumulation_steps": [1]}}}, "give its values in the DeepSpeed config"),
        ({"search": {"ds_config": {"zero_optimization": {"stage": [1]}}}}, "zero_optimization.stage: give its values"),
        ({"search": {"ds_config": [1]}}, "Expected an object of names"),
        ({"autotuning": {"num_gpus": []}}, "autotuning.num_gpus: []. Expected a whole number of at least 1"),
        ({"autotuning": {"num_gpus": [2, 2]}}, "A number appears twice"),
        ({"autotuning": {"num_gpus": "two"}}, "autotuning.num_gpus: 'two'."),
        ({"autotuning": {"metric": "fwd"}}, "autotuning.metric: 'fwd'. Expected 'throughput'"),
        ({"autotuning": {"model_info": {"num_params": 0}}}, "autotuning.model_info.num_params: 0."),
        ({"autotuning": {"model_info": {"params": 9}}}, "autotuning.model_info"),
        (
            {
                "autotuning": {"arg_mappings": {"train_micro_batch_size_per_gpu": "--bs"}},
                "search": {"args": {"--bs": ["1", "2"]}},
            },
            "--bs already follows the configuration",
        ),
    ],
)
def test_mistakes_in_dimensions_and_resources(folder: Path, keys: dict, message: str) -> None:
    with pytest.raises(DsoptError) as caught:
        load(folder, **keys)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"offload_optimizer": {"device": "gpu"}}, 'device: \'gpu\'. Expected "none", "cpu", "nvme"'),
        ({"offload_param": {"device": ["cpu", "disk"]}}, "offload_param.device: 'disk'."),
        ({"offload_param": {"device": ["cpu", "nvme"]}}, "device nvme needs 'nvme_path'"),
        ({"offload_optimizer": {"device": ["cpu", "cpu"]}}, "a value appears twice"),
        ({"offload_optimizer": {"ratio": []}}, "offload_optimizer.ratio: the list is empty"),
    ],
)
def test_mistakes_in_offload(folder: Path, section: dict, message: str) -> None:
    with pytest.raises(DsoptError) as caught:
        load(folder, {"zero_optimization": section})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"search": {"args": {"ck": [None, False]}}}, "--ck: a value appears twice in the list"),
        ({"search": {"args": {"--x": [1], "x": [2, 3]}}}, "--x: appears twice"),
        ({"search": {"args": {"--a_b": [1], "--a-b": [2]}}}, "--a_b is the same flag as --a-b"),
        ({"search": {"args": {"--x=1": [1, 2]}}}, "'--x=1' is not a flag"),
        ({"search": {"args": {"--deepspeed_config": ["a", "b"]}}}, "dsopt sets --deepspeed_config"),
        ({"search": {"args": {"--betas": ["0.8"]}}}, "the command gives --betas 2 values"),
        ({"search": {"args": {"--x": [float("nan"), 1]}}}, "--x: expected finite numbers"),
        ({"search": {"ds_config": {"gradient_clipping": [1, 1.0]}}}, "gradient_clipping: a value appears twice"),
        ({"search": {"ds_config": {"bf16": {"enabled": [True, 1]}}}}, "bf16.enabled: a value appears twice"),
        ({"search": {"ds_config": {"steps_per_print.x": [1, 2]}}}, "'steps_per_print' is not a section there"),
        ({"search": {"ds_config": {"fp16": [True], "fp16.enabled": [True]}}}, "fp16 is a section"),
        ({"search": {"ds_config": {"zero_optimization": [1, 2]}}}, "zero_optimization is a section"),
        ({"search": {"ds_config": {"a..b": [1, 2]}}}, "'a..b' is not a path"),
        ({"search": {"ds_config": {"num_gpus": [1, 2]}}}, "num_gpus is not a key of DeepSpeed's configuration"),
        ({"search": {"ds_config": {"autotuning.fast": [True]}}}, "It belongs in the study's 'autotuning'"),
        ({"search": {"ds_config": {"zero_optimization.overlap_com": [True]}}}, "Did you mean"),
        ({"search": {"ds_config": {"zero_optimization.offload_param.device": ["disk"]}}}, "device: 'disk'"),
        ({"autotuning": {"arg_mappings": {"train_micro_batch_size_per_gpu": "--bs=4"}}}, "'--bs=4' is not a flag"),
        ({"autotuning": {"arg_mappings": {"train_micro_batch_size_per_gpu": "--deepspeed"}}}, "dsopt sets --deepspeed"),
        (
            {"autotuning": {"arg_mappings": dict.fromkeys([*MICRO_BATCH_FLAG, *ACCUMULATION_FLAG], "--bs")}},
            "several keys are mapped to --bs",
        ),
        ({"autotuning": {"min_train_batch_size": 9, "max_train_batch_size": 8}}, "8 is below min_train_batch_size 9"),
        ({"autotuning": {"max_train_batch_size": 1}}, "1 is below the smallest possible batch, 8"),
        ({"autotuning": {"results_dir": "train.py"}}, "results_dir: 'train.py' is a file"),
        ({"autotuning": {"model_info": {"num_params": 1, "trainable_num_params": 2}}}, "is more than num_params"),
        (
            {"command": "torchrun --tee 3 train.py --deepspeed ds.json", "autotuning": {"num_nodes": [1, 2]}},
            "torchrun on each node itself, and does not know what --tee does",
        ),
        ({"command": "deepspeed --hostfile h train.py --deepspeed ds.json"}, "no host file 'h' in"),
        ({"command": "deepspeed --include banana! train.py --deepspeed ds.json"}, "--include banana!"),
        ({"command": "deepspeed -i localhost:0 -e localhost:1 train.py --deepspeed ds.json"}, "exclude each other"),
        (
            {"command": "CUDA_VISIBLE_DEVICES=2,3 deepspeed --num_gpus 2 train.py --deepspeed ds.json"},
            "beside --num_gpus, and takes other GPUs. Leave out --num_gpus, or write --include localhost:2,3 in place",
        ),
        (
            {"command": "deepspeed -i localhost:0 --num_gpus 1 train.py --deepspeed ds.json"},
            "cannot be combined",
        ),
        (
            {"command": "deepspeed -i localhost:0,1 train.py --deepspeed ds.json", "autotuning": {"num_gpus": 2}},
            "the command chooses its devices with -i",
        ),
        ({"command": ["deepspeed", None, "train.py"]}, "Expected a list of words"),
        ({"command": ["deepspeed --num_gpus 1 train.py"]}, "no DeepSpeed configuration"),
        ({"command": "deepspeed train.py --deepspeed_config="}, "path of the DeepSpeed configuration is empty"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_created(folder: Path, keys: dict, message: str) -> None:
    command = "deepspeed --num_gpus 2 train.py --deepspeed_config ds.json --betas 0.9 0.95"
    with pytest.raises(DsoptError) as caught:
        load(folder, {"train_micro_batch_size_per_gpu": 4, "steps_per_print": 5}, **{"command": command, **keys})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("ds_config", "message"),
    [
        ({"fp16": {"enabled": [True, False]}}, "fp16.enabled: [True, False]. Expected one value"),
        ({"gradient_clipping": [0.5, 1.0]}, "gradient_clipping: [0.5, 1.0]. Expected one value"),
        ({"gradient_accumulation_steps": 10**20}, "Expected a whole number from 1 to 1048576"),
        ({"train_micro_batch_size_per_gpu": [4, 4]}, "a value appears twice"),
        ({"zero_optimization": {"overlap_comm": [True, 1]}}, "a value appears twice"),
        ({"zero_optimization": {"offload_optimizer": {"device": "cpu", "ratio": [0.5, 7]}}}, "ratio: 7"),
        ({"zero_optimization": {"offload_optimizer": {"device": "cpu", "pin_memory": "yse"}}}, "pin_memory: 'yse'"),
        (
            {"train_micro_batch_size_per_gpu": [4, 8], "autotuning": {"max_train_micro_batch_size_per_gpu": 6}},
            "8 is outside autotuning's min_ and max_",
        ),
        (
            {
                "arg_mappings": {"train_micro_batch_size_per_gpu": "--a"},
                "autotuning": {"arg_mappings": {"train_micro_batch_size_per_gpu": "--b"}},
            },
            "they differ. Keep one",
        ),
    ],
)
def test_values_that_cannot_be_meant(folder: Path, ds_config: dict, message: str) -> None:
    with pytest.raises(DsoptError) as caught:
        load(folder, ds_config)
    assert message in str(caught.value)


def test_a_dimension_that_no_stage_has_is_named(folder: Path) -> None:
    _, warnings = load(folder, {"zero_optimization": {"stage": [1, 2], "offload_param": {"device": ["none", "cpu"]}}})
    [warning] = warnings
    assert (
        "zero_optimization.offload_param.device makes no difference at ZeRO 1, 2: dsopt does not try its values"
        in warning
    )


def test_a_dimension_in_the_study_file_is_tried_where_it_applies(folder: Path) -> None:
    spec, _ = load(folder, search={"ds_config": {"zero_optimization.stage3_max_live_parameters": [1e9, 1e8]}})
    assert [len(list(spec.space(stage).settings())) for stage in range(4)] == [1, 1, 1, 2]


def test_a_spec_survives_being_kept(folder: Path) -> None:
    spec, _ = load(folder, search={"args": {"ck": [False, True], "--lr": [0.1, "x"]}})
    assert StudySpec.model_validate_json(spec.to_json()).digest == spec.digest


def test_numbers_of_gpus_that_contradict_the_command_are_said(tmp_path: Path) -> None:
    (tmp_path / "t.py").touch()
    study = {"name": "s", "command": "deepspeed --num_gpus=16 t.py", "cwd": str(tmp_path), "ds_config": {}}
    _, warnings = build_spec({**study, "autotuning": {"num_gpus": 1}}, "study.yaml")
    assert (
        "study.yaml: autotuning.num_gpus: 1: all runs use that many, your own too, although the command says 16"
        in warnings
    )
    _, warnings = build_spec({**study, "autotuning": {"num_gpus": 16}}, "study.yaml")
    assert not any("num_gpus" in warning for warning in warnings)


def test_a_study_that_asks_for_shared_ranks_gets_warm_ones_and_a_warning(folder: Path) -> None:
    spec, warnings = load(folder, start="shared")
    assert spec.start == "warm"
    assert any("start: 'shared' is no longer supported; this study uses 'warm'" in warning for warning in warnings)
    kept = StudySpec.model_validate({**json.loads(spec.to_json()), "start": "shared"})
    assert kept.start == "warm"  # of a database that an earlier version wrote
