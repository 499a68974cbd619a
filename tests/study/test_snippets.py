"""Every configuration snippet of the documents dsopt comes from becomes the study that its document describes.

The files in `tests/snippets` are the documents' text as a reader would copy it: `tutorial` is DeepSpeed's autotuning
tutorial, `readme` its older README, `guide` a guide to ds_config.json, `huggingface` its DeepSpeed integration.
"""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dsopt.autotuner.conversion import study_from_autotuning, study_text
from dsopt.errors import DsoptError
from dsopt.study.documents import yaml_text
from dsopt.study.ds_config import baseline_config, get_path
from dsopt.study.load import build_spec, load_spec
from dsopt.study.repair import parse_config
from dsopt.study.space import DEFAULT_KNOBS
from dsopt.study.spec import StudySpec

SNIPPETS = Path(__file__).parent.parent / "snippets"
MBS, GAS = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
TRAINER = {MBS: "--per_device_train_batch_size"}
BOTH = {**TRAINER, GAS: "--gradient_accumulation_steps"}
ALL = (0, 1, 2, 3)
CPU = {"device": "cpu", "pin_memory": True}

# What each study has beside the defaults. A name is an attribute of the study or of its autotuning settings, or a path
# in the configuration that every candidate keeps.
EXPECTED: dict[str, dict[str, Any]] = {
    "guide-01-optimizer": {"optimizer.type": "Adam", "optimizer.params.betas": [0.8, 0.999]},
    "guide-02-scheduler": {"scheduler.params.warmup_num_steps": 1000},
    "guide-03-fp16": {"fp16.enabled": True, "fp16.initial_scale_power": 16},
    "guide-04-bf16": {"bf16": {"enabled": True}},
    "guide-05-zero-stage-2": {"stages": (2,), "zero_optimization.allgather_bucket_size": 5e8},
    "guide-06-offload-param": {"zero_optimization.offload_param": CPU},
    "guide-07-offload-optimizer": {"zero_optimization.offload_optimizer": CPU},
    "guide-08-data-efficiency": {"data_efficiency.curriculum_learning.max_difficulty": 1024},
    "guide-09-logging": {"steps_per_print": 10, "wall_clock_breakdown": False},
    "guide-10-autotuning": {"metric": "throughput", "window": (3, 5)},
    "guide-11-comms-logger": {"comms_logger.prof_all": True},
    "huggingface-01-zero2-single-gpu": {"stages": (2,), "zero_optimization.reduce_bucket_size": 2e8},
    "huggingface-02-checkpoint-local": {"checkpoint.use_node_local_storage": True},
    "huggingface-03-notebook-eot-zero3": {"stages": (3,), MBS: "auto", "zero_optimization.offload_param": CPU},
    "huggingface-04-zero2-idea": {"stages": (2,), GAS: "auto", "zero_optimization.offload_optimizer": CPU},
    "huggingface-06-zero2-config": {"stages": (2,), "zero_optimization.overlap_comm": True},
    "huggingface-07-inline-stage-2": {"stages": (2,)},
    "huggingface-08-inline-overlap-comm": {"zero_optimization.overlap_comm": True},
    "huggingface-09-round-robin": {"zero_optimization.round_robin_gradients": True},
    "huggingface-10-zero3-config": {"stages": (3,), "zero_optimization.reduce_bucket_size": "auto"},
    "huggingface-11-inline-device-cpu": {"device": "cpu"},
    "huggingface-12-stage-0": {"stages": (0,)},
    "huggingface-13-stage-1": {"stages": (1,)},
    "huggingface-14-nvme-zero3": {"stages": (3,), "offload": ("nvme", "nvme"), "aio.block_size": 262144},
    "huggingface-16-zero2-auto": {"stages": (2,), MBS: "auto", "train_batch_size": "auto"},
    "huggingface-17-zero2-manual": {"stages": (2,), "optimizer.params.lr": 3e-5},
    "huggingface-18-zero3-auto": {"stages": (3,), "zero_optimization.stage3_prefetch_bucket_size": "auto"},
    "huggingface-19-zero3-manual": {"stages": (3,), "zero_optimization.stage3_prefetch_bucket_size": 0.94e6},
    "huggingface-20-optimizer-auto": {"optimizer.params.lr": "auto"},
    "huggingface-21-optimizer-manual": {"optimizer.params.lr": 0.001},
    "huggingface-22-untested-optimizer": {"zero_allow_untested_optimizer": True},
    "huggingface-23-scheduler-auto": {"scheduler.params.warmup_max_lr": "auto"},
    "huggingface-24-scheduler-manual": {"scheduler.params.warmup_num_steps": 1000},
    "huggingface-25-scheduler-decay": {"scheduler.type": "WarmupDecayLR", "scheduler.params.total_num_steps": "auto"},
    "huggingface-26-fp32-off": {"fp16.enabled": "false"},
    "huggingface-27-fp16-auto": {"fp16.enabled": "auto"},
    "huggingface-28-fp16-on": {"fp16.enabled": True},
    "huggingface-29-bf16-auto": {"bf16.enabled": "auto"},
    "huggingface-30-bf16-on": {"bf16.enabled": True},
    "huggingface-31-communication-dtype": {"communication_data_type": "fp32"},
    "huggingface-32-amp-auto": {"amp": {"enabled": "auto", "opt_level": "auto"}},
    "huggingface-33-amp-on": {"amp": {"enabled": True, "opt_level": "O1"}},
    "huggingface-34-batch-auto": {MBS: "auto", "train_batch_size": "auto"},
    "huggingface-35-batch-manual": {MBS: 4, "micro_batch_list": None},
    "huggingface-36-gas-auto": {GAS: "auto", "accumulation_list": None},
    "huggingface-37-gas-3": {"accumulation_list": (3,)},
    "huggingface-38-clipping-auto": {"gradient_clipping": "auto"},
    "huggingface-39-clipping-1": {"gradient_clipping": 1.0},
    "huggingface-40-inline-gather-16bit": {"zero_optimization.stage3_gather_16bit_weights_on_model_save": True},
    "huggingface-41-gather-16bit": {"zero_optimization.stage3_gather_16bit_weights_on_model_save": True},
    "huggingface-42-fp16-overflow": {"fp16.min_loss_scale": 1},
    "huggingface-43-inline-scale-power-32": {"initial_scale_power": 32},
    "readme-01-autotuning-section": {
        "metric": "latency", "maximize": False, "window": (5, 10), "num_nodes": 1, "num_gpus": 1,
        "arg_mappings": TRAINER,
    },
    "readme-02-deberta-example": {
        "metric": "latency", "maximize": False, "window": (5, 10), "num_nodes": 1, "num_gpus": [2, 4], "stages": (2,),
        "arg_mappings": TRAINER, "micro_batch_list": (8,), GAS: "auto", "zero_optimization.cpu_offload": True,
        "offload": ("cpu", "none"), "knobs": {2: {"num_gpus": (2, 4)}},
    },
    "tutorial-01-inline-enable": {},
    "tutorial-02-add-enable": {},
    "tutorial-03-arg-mapping": {"arg_mappings": TRAINER},
    "tutorial-04-two-mappings": {"arg_mappings": BOTH},
    "tutorial-05-stages-2-3": {"stages": (2, 3)},
    "tutorial-06-min-mbs-4": {"arg_mappings": TRAINER, MBS: 4, "micro_batch_list": None},
    "tutorial-07-mbs-from-script": {"arg_mappings": BOTH, MBS: "auto", GAS: "auto"},
    "tutorial-08-max-train-batch-1024": {"arg_mappings": TRAINER, "max_train_batch_size": 1024},
    "tutorial-09-mbs-list-gas-2": {"micro_batch_list": (1, 4, 16), "accumulation_list": (2,)},
    "tutorial-10-inline-mbs-list-4": {"micro_batch_list": (4,)},
    "tutorial-11-mbs-fixed-4": {"micro_batch_list": (4,)},
    "tutorial-13-overwrite-zero1": {
        "stages": (1,), "zero_optimization.allgather_bucket_size": 5e8,
        "knobs": {1: {"zero_optimization.reduce_bucket_size": (5e7, 5e8)}},
    },
    "tutorial-14-inline-case-1": {"zero_optimization.reduce_bucket_size": 5e7},
    "tutorial-15-inline-case-2": {"zero_optimization.reduce_bucket_size": 5e8},
    "tutorial-16-inline-enable-minimal": {},
    "tutorial-17-autotuning-defaults": {"window": (3, 5), "overwrite": False, "mp_size": 1, "tuner_early_stopping": 5},
    "tutorial-18-inline-metric-latency": {"metric": "latency", "maximize": False},
    "tutorial-19-gpt2-large-example": {"arg_mappings": BOTH, MBS: "auto", GAS: "auto"},
}  # fmt: skip
DEFAULTS: dict[str, Any] = {
    "stages": ALL, "metric": "throughput", "maximize": True, "fast": True, "window": None, "arg_mappings": {},
    "num_gpus": None, "num_nodes": None, "max_train_batch_size": None, "tuner_type": "model_based",
    "tuner_early_stopping": None, "tuner_num_trials": 50, "num_tuning_micro_batch_sizes": 3, "knobs": {},
}  # fmt: skip


def test_each_snippet_is_expected() -> None:
    names = {path.stem for path in SNIPPETS.glob("*.json")} - {"huggingface-15-inline-curly-device"}
    assert names == set(EXPECTED)


def converted(text: str, folder: Path) -> dict[str, Any]:
    source = folder / "ds.json"
    source.write_text(text)
    content, _ = study_from_autotuning(source, ["deepspeed", "train.py"], cwd=folder)
    assert content["command"] == ["deepspeed", "train.py"]
    return dict(yaml.safe_load(study_text(content, source)))


def inline_mapping(text: str, folder: Path) -> dict[str, Any]:
    as_written, _ = parse_config(text, "snippet")
    return {"command": "deepspeed train.py", "ds_config": as_written}


def inline_text(text: str, folder: Path) -> dict[str, Any]:
    return {"command": "deepspeed train.py", "ds_config": text}


def named_file(text: str, folder: Path) -> dict[str, Any]:
    (folder / "ds.json").write_text(text)
    return {"command": "deepspeed train.py --deepspeed_config ds.json"}


def base64_text(text: str, folder: Path) -> dict[str, Any]:
    return {"command": f"deepspeed train.py --deepspeed_config {base64.urlsafe_b64encode(text.encode()).decode()}"}


WAYS_IN = (converted, inline_mapping, inline_text, named_file, base64_text)


@pytest.mark.parametrize("way", WAYS_IN, ids=lambda way: way.__name__)
@pytest.mark.parametrize("name", EXPECTED)
def test_a_snippet_becomes_the_study_its_document_describes_by_every_way_in(
    name: str, way: Callable[[str, Path], dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "train.py").touch()
    study = tmp_path / "study.yaml"
    study.write_text(yaml_text(way((SNIPPETS / f"{name}.json").read_text(), tmp_path)))
    spec, _ = load_spec(study)
    for attribute, value in {**DEFAULTS, **EXPECTED[name]}.items():
        assert said(spec, attribute) == value, attribute


@pytest.mark.parametrize("way", WAYS_IN, ids=lambda way: way.__name__)
def test_every_way_in_puts_the_same_right_and_says_so(
    way: Callable[[str, Path], dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '{"stage": 2, "zero_optimization": {"aio": {"block_size": 262144}}, "arg_mappings": {"x": "--y"}'
    (tmp_path / "train.py").touch()
    said_by_converter: list[str] = []
    content = way(text.replace('"x": "--y"', '"train_micro_batch_size_per_gpu": "--bs"'), tmp_path)
    if way is converted:
        _, said_by_converter = study_from_autotuning(tmp_path / "ds.json", ["deepspeed", "train.py"], cwd=tmp_path)
    spec, warnings = build_spec({"name": "s", "cwd": str(tmp_path), **content}, "study.yaml")
    assert spec.ds_config == {"zero_optimization": {"stage": 2}, "aio": {"block_size": 262144}}
    assert spec.autotuning.arg_mappings == {MBS: "--bs"}
    said_of = " ".join(warnings + said_by_converter)
    for put_right in ("dsopt moves 'stage' to zero_optimization", "dsopt moves 'aio' to the top level",
                      "dsopt moves 'arg_mappings' to autotuning"):  # fmt: skip
        assert put_right in said_of
    assert ("1 closing brace is missing" in said_of) == (way is not inline_mapping)


def said(spec: StudySpec, attribute: str) -> object:
    if attribute == "knobs":
        return {stage: dict(knobs) for stage in spec.stages if (knobs := spec.space(stage).knobs)}
    for holder in (spec, spec.autotuning):
        if hasattr(holder, attribute):
            return getattr(holder, attribute)
    return get_path(baseline_config(spec.ds_config), attribute)


def test_typographic_quotes_are_named() -> None:
    with pytest.raises(DsoptError, match="The quotes are typographic"):
        study_from_autotuning(SNIPPETS / "huggingface-15-inline-curly-device.json", ["deepspeed", "t.py"], cwd=Path())


def test_the_tutorials_default_space_of_zero_1_is_ours_but_for_what_deepspeed_does_not_read() -> None:
    # DEFAULT_TUNING_SPACE_ZERO_1 as the tutorial prints it, without its allgather_bucket_size
    assert DEFAULT_KNOBS[1] == {"reduce_bucket_size": (5e7, 5e8, 1e9)}


def test_what_a_shell_has_split_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    source = tmp_path / "ds.json"
    source.write_text('{"my_note": "5e8", "autotuning": {"results_dir": "1e5"}}')
    words = ["A=1", "deepspeed", "train.py", "--p", "$HOME/x", "--sep", "|", "--deepspeed_config", str(source)]
    content, _ = study_from_autotuning(source, words, cwd=tmp_path)
    study = tmp_path / "study.yaml"
    study.write_text(study_text(content, source))
    spec, _ = load_spec(study)
    assert spec.launch.script_args == tuple(words[3:])
    assert spec.launch.environment == (("A", "1"),)
    assert (spec.results_dir, spec.ds_config["my_note"]) == ("1e5", "5e8")


def test_another_configuration_in_the_command_is_refused(tmp_path: Path) -> None:
    for name in ("train.py", "a.json", "b.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(DsoptError, match=r"the command reads b\.json"):
        study_from_autotuning(tmp_path / "a.json", ["deepspeed", "train.py", "--deepspeed", "b.json"], cwd=tmp_path)
