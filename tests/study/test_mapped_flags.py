"""Flags that repeat the configuration: for any key of it, and what is done where the two contradict each other."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dsopt.errors import DsoptError
from dsopt.report.batch_size import batch_advice, scale_rates
from dsopt.search.history import History
from dsopt.study.candidate_run import candidate_command
from dsopt.study.load import load_spec
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec
from tests.made_up import facts, observation

MBS, GAS = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
BS, STEPS = "--per_device_train_batch_size", "--gradient_accumulation_steps"
CANDIDATE = Candidate(stage=2, micro_batch=6, gas=3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").touch()
    return tmp_path


def load(
    folder: Path,
    config: dict[str, Any],
    args: str,
    flags: dict[str, str],
    launcher: str = "--num_gpus 4",
    **keys: Any,
) -> tuple[StudySpec, list[str]]:
    """The study of `deepspeed train.py … ARGS` and its warnings."""
    (folder / "ds.json").write_text(json.dumps(config))
    command = f"deepspeed {launcher} train.py --deepspeed ds.json {args}"
    study = {"command": command, **keys, "autotuning": {"arg_mappings": flags, **keys.get("autotuning", {})}}
    (folder / "study.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
    return load_spec(folder / "study.yaml")


def args_of(spec: StudySpec, candidate: Candidate | None) -> str:
    """The script's arguments behind the configuration."""
    return " ".join(candidate_command(spec, candidate).script_args[2:])


@pytest.mark.parametrize(
    ("config", "args", "flags", "own"),
    [
        ({MBS: 4}, "--b 8 --x", {MBS: "b"}, "--b 4 --x"),
        ({MBS: 4}, "--b=8", {MBS: "b"}, "--b=4"),
        ({MBS: [8, 16]}, f"{BS} 4", {MBS: BS}, f"{BS} 8"),  # the older README's example
        ({MBS: 4, GAS: 2}, "", {MBS: BS, GAS: STEPS}, f"{BS} 4 {STEPS} 2"),  # the Trainer's are 8 and 1
        ({"fp16": {"enabled": True}}, "--x", {"fp16.enabled": "fp16"}, "--x --fp16"),
        ({"fp16": {"enabled": False}}, "--fp16 --x", {"fp16.enabled": "fp16"}, "--x"),
        ({"bf16": {"enabled": True}}, "--bf16 False", {"bf16.enabled": "bf16"}, "--bf16 True"),
        ({"optimizer": {"params": {"lr": 3e-5}}}, "--lr 1e-5", {"lr": "lr"}, "--lr 3e-05"),
        ({"zero_optimization": {"stage": 1}}, "--zero 2", {"stage": "zero"}, "--zero 1"),
        ({"optimizer": {"type": "AdamW"}}, "--opt sgd", {"optimizer.type": "opt"}, "--opt AdamW"),
    ],
)
def test_a_flag_that_contradicts_the_configuration_is_set_to_it_and_that_is_said_once(
    folder: Path, config: dict, args: str, flags: dict, own: str
) -> None:
    spec, warnings = load(folder, config, args, flags)
    assert args_of(spec, None) == own
    said = [warning for warning in warnings if "contradicts" in warning]
    assert len(said) == len(flags)
    assert all("dsopt uses the configuration's value, as DeepSpeed's documents say" in warning for warning in said)


@pytest.mark.parametrize(
    ("config", "args", "flags"),
    [
        ({MBS: 4}, "--b 4", {MBS: "b"}),
        ({MBS: "auto"}, "--b 4", {MBS: "b"}),
        ({}, "--b 4", {MBS: "b"}),
        ({"optimizer": {"params": {"lr": 1e-5}}}, "--lr 0.00001", {"lr": "lr"}),
        ({"fp16": {"enabled": True}}, "--fp16 1", {"fp16.enabled": "fp16"}),
        ({"fp16": {"enabled": False}}, "--x", {"fp16.enabled": "fp16"}),
    ],
)
def test_a_command_that_agrees_stays_exactly_as_typed(folder: Path, config: dict, args: str, flags: dict) -> None:
    spec, warnings = load(folder, config, args, flags)
    assert args_of(spec, None) == args
    assert warnings == []


def parser(*calls: str) -> str:
    added = "".join(f"parser.add_argument({call})\n" for call in calls)
    return f"import argparse\nparser = argparse.ArgumentParser()\n{added}args = parser.parse_args()\n"


TOTAL = "train_batch_size"
MAY, SURE = "with a default that dsopt does not know, may contradict", "with the default 32, contradicts"


@pytest.mark.parametrize(
    ("script", "config", "flags", "own", "said"),
    [
        # it had 32: 7.18 times as fast was told, where 0.9 was true
        ("", {MBS: 4}, {MBS: "b"}, "--b 4", [f"--b, absent in the command, {MAY} {MBS} 4 in"]),
        (
            parser("'--b', default=32"),
            {MBS: 4},
            {MBS: "b"},
            "--b 4",
            [f"--b, absent in the command, {SURE} {MBS} 4 in"],
        ),
        (parser("'--b', default=4"), {MBS: 4, GAS: "auto"}, {MBS: "b", GAS: "g"}, "--b 4", []),
        (parser("'--b', default='4'"), {MBS: 4}, {MBS: "b"}, "--b 4", []),
        (parser("'--b'"), {MBS: 4}, {MBS: "b"}, "--b 4", []),  # it has none that could contradict
        (parser("'--b', default=4", "'--b', default=32"), {MBS: 4}, {MBS: "b"}, "--b 4", [MAY]),
        (parser("'--b', default=4") + "parser.set_defaults(b=8)", {MBS: 4}, {MBS: "b"}, "--b 4", [MAY]),
        ("", {MBS: 8, GAS: 1}, {MBS: BS, GAS: STEPS}, f"{BS} 8 {STEPS} 1", []),  # the Trainer's own
        (parser("'--b', default=4"), {"gradient_clipping": 1.0}, {"gradient_clipping": "b"}, "--b 1", ["default 4,"]),
        ("", {MBS: 4, "zero_optimization": {"stage": 1}}, {"stage": "zero"}, "--zero 1", [MAY]),
        ("", {MBS: 4}, {"stage": "zero", GAS: "g"}, "", []),  # they say what the script does by itself
        ("", {MBS: "auto", TOTAL: 16}, {MBS: "b", GAS: "g"}, "", []),  # the script fills it in
    ],
)
def test_an_absent_flag_is_given_as_candidates_get_it_and_what_differs_is_said(
    folder: Path, script: str, config: dict, flags: dict, own: str, said: list[str]
) -> None:
    (folder / "train.py").write_text(script)
    spec, warnings = load(folder, config, "", flags)
    assert args_of(spec, None) == own
    assert all(part in warning for warning, part in zip(warnings, said, strict=True))


@pytest.mark.parametrize(
    ("config", "args", "flags", "said"),
    [
        ({TOTAL: 16}, "", {MBS: "b"}, f"{MBS} is mapped to --b, which neither the configuration says nor the command"),
        ({MBS: 4}, "", {TOTAL: "total"}, f"{TOTAL} is mapped to --total, which neither the configuration says nor"),
        ({TOTAL: 16}, "--b 32", {MBS: "b"}, f"--b 32 contradicts {TOTAL} 16 in"),
        ({TOTAL: 16}, "--b 3", {MBS: "b"}, f"--b 3 contradicts {TOTAL} 16 in"),
        ({MBS: 4}, "--total 6", {TOTAL: "total"}, f"--total 6 contradicts {MBS} 4 in"),
        ({TOTAL: 16}, "--b 2 --g 2", {MBS: "b", GAS: "g"}, None),  # as the Trainer takes it
        ({TOTAL: 16}, "--b 2", {MBS: "b"}, None),  # a flag that nobody mapped may say the accumulation
        ({TOTAL: 16}, "--b 16", {MBS: "b"}, None),  # ranks may share a replica
        ({TOTAL: "auto"}, "--b 3", {MBS: "b"}, None),
        ({MBS: 4}, "--b 4 --g 2", {MBS: "b", GAS: "g"}, None),  # the tutorial's rule: the flag says the accumulation
        ({MBS: 4, GAS: 2}, "--total 64", {TOTAL: "total"}, None),
    ],
)
def test_the_own_run_is_as_typed_where_the_configuration_does_not_say_the_size(
    folder: Path, config: dict, args: str, flags: dict, said: str | None
) -> None:
    """What follows from the other sizes depends on what ranks share, and on the script: dsopt sets none of it."""
    spec, warnings = load(folder, config, args, flags)
    assert args_of(spec, None) == args
    assert [said in warning for warning in warnings] == [True] if said else warnings == []


@pytest.mark.parametrize(
    ("args", "said"),
    [("--batch 4", 0), ("-b 4", 0), ("-b4", 0), ("--batch-s=4", 0), ("-b 8", 1), ("--batch=8", 1), ("-b8", 1)],
)
def test_a_flag_under_another_of_its_names_is_not_absent(folder: Path, args: str, said: int) -> None:
    (folder / "train.py").write_text(parser("'-b', '--batch-size', default=32"))
    spec, warnings = load(folder, {MBS: 4}, args, {MBS: "batch-size"})
    assert args_of(spec, None) == f"{args} --batch-size 4"  # argparse takes the last one
    assert ["--batch-size 8 contradicts" in warning for warning in warnings] == [True] * said


def test_the_beginning_of_a_flag_may_mean_it_whatever_reads_it(folder: Path) -> None:
    _, warnings = load(folder, {MBS: 4}, "--batch 4", {MBS: "batch-size"})
    assert warnings == []
    _, [warning] = load(folder, {MBS: 4}, "--batch 64", {MBS: "batch-size"})  # or be another flag
    assert "--batch-size, absent in the command, with a default that dsopt does not know, may contradict" in warning


def test_another_flag_is_no_beginning_of_the_mapped_one(folder: Path) -> None:
    """`--batch_size 64` was told as a `--batch_size_per_gpu 64` that contradicts the configuration."""
    (folder / "train.py").write_text(parser("'--batch_size'", "'--batch_size_per_gpu', type=int, default=4"))
    _, warnings = load(folder, {MBS: 4}, "--batch_size 64", {MBS: "batch_size_per_gpu"})
    assert warnings == []


@pytest.mark.parametrize(("default", "own", "said"), [(True, "--fp16", 0), (False, "--fp16", 1)])
def test_a_switch_may_be_on_by_default(folder: Path, default: bool, own: str, said: int) -> None:
    action = f"'--fp16', action=argparse.BooleanOptionalAction, default={default}"
    (folder / "train.py").write_text(parser(action))
    spec, warnings = load(folder, {"fp16": {"enabled": True}}, "", {"fp16.enabled": "fp16"})
    assert args_of(spec, None) == own
    assert ["with the default False, contradicts" in warning for warning in warnings] == [True] * said


def test_a_flag_stands_before_what_is_no_flag(folder: Path) -> None:
    spec, _ = load(folder, {MBS: 4, "fp16": {"enabled": True}}, "-- data", {MBS: "b", "fp16.enabled": "fp16"})
    assert args_of(spec, None) == "--b 4 --fp16 -- data"


def test_the_warning_names_both_values(folder: Path) -> None:
    _, warnings = load(folder, {MBS: 4}, f"{BS} 8", {MBS: BS})
    assert f"command: {BS} 8 contradicts {MBS} 4 in {folder}/ds.json; dsopt uses" in warnings[0]


@pytest.mark.parametrize(
    ("config", "args", "flags", "candidates"),
    [
        ({}, "--b 1 --g 1", {MBS: "b", GAS: "g"}, "--b 6 --g 3"),
        ({}, "--total 8", {"train_batch_size": "total"}, "--total 72"),
        ({}, "--zero_stage=0", {"zero_optimization.stage": "zero_stage"}, "--zero_stage=2"),
        ({}, "--zero_stage=0", {"stage": "zero_stage"}, "--zero_stage=2"),
        ({"gradient_clipping": "auto"}, "--clip 0.5", {"gradient_clipping": "clip"}, "--clip 0.5"),
        ({"gradient_clipping": 1.0}, "--clip 1", {"gradient_clipping": "clip"}, "--clip 1"),
        ({"bf16": {"enabled": True}}, "--bf16", {"bf16.enabled": "bf16"}, "--bf16"),
        (
            {"zero_optimization": {"reduce_bucket_size": 5e8}}, "--bucket 1",
            {"zero_optimization.reduce_bucket_size": "bucket"}, "--bucket 500000000",
        ),
    ],
)  # fmt: skip
def test_a_candidates_flags_are_what_its_configuration_says(
    folder: Path, config: dict, args: str, flags: dict, candidates: str
) -> None:
    spec, _ = load(folder, config, args, flags)
    assert args_of(spec, CANDIDATE) == candidates


def test_dimensions_are_followed_too(folder: Path) -> None:
    spec, warnings = load(
        folder,
        {"zero_optimization": {"offload_optimizer": {"device": ["none", "cpu"]}}},
        "--clip 0.5 --offload none",
        {"gradient_clipping": "clip", "offload_optimizer.device": "offload", "train_batch_size": "total"},
        search={"ds_config": {"gradient_clipping": [None, 2.0]}},
        autotuning={"num_gpus": [2, 4], "mp_size": 2},
    )
    assert warnings == []
    clips, devices, totals = ("", "--clip 2 "), ("none", "cpu"), (18, 36)
    assert {args_of(spec, candidate) for candidate in spec.space(2).candidates([6], [3])} == {
        f"{clip}--offload {device} --total {total}" for clip in clips for device in devices for total in totals
    }


@pytest.mark.parametrize(
    ("config", "flags", "message"),
    [
        ({}, {"train_micro_batch_size": "b"}, "Did you mean 'train_micro_batch_size_per_gpu'"),
        ({}, {"zero_optimization.stge": "b"}, "Did you mean 'zero_optimization.stage'?"),
        ({}, {"stages": "b"}, "'stages' is not a key of DeepSpeed's configuration"),
        ({}, {"lr": "b"}, "'lr' is not a key of DeepSpeed's configuration. Expected one such as"),
        ({}, {"enabled": "b"}, "'enabled' could be fp16.enabled or bf16.enabled. Write the one"),
        ({}, {"zero_optimization": "b"}, "'zero_optimization' is a section"),
        ({}, {"zero_optimization.": "b"}, "is not a key of DeepSpeed's configuration"),
        ({}, {"autotuning.fast": "b"}, "is not a key of DeepSpeed's configuration"),
        ({"optimizer": {"params": {"betas": [1, 2]}}}, {"betas": "b"}, "Only a key with a single value"),
        ({}, {"stage": "b", "zero_optimization.stage": "c"}, "stage and zero_optimization.stage are the same key"),
        ({}, {MBS: "a-b", GAS: "a_b"}, "several keys are mapped to --a-b"),
    ],
)  # fmt: skip
def test_mistakes(folder: Path, config: dict, flags: dict, message: str) -> None:
    with pytest.raises(DsoptError, match=r"autotuning\.arg_mappings") as caught:
        load(folder, config, "", flags)
    assert message in str(caught.value)


def test_the_whole_batch_needs_the_number_of_ranks(folder: Path) -> None:
    with pytest.raises(DsoptError, match=r"does not say how many ranks\. Add --num_gpus to the command"):
        load(folder, {}, "--total 8", {"train_batch_size": "total"}, launcher="")


def test_a_key_that_the_configuration_does_not_say_is_warned_about(folder: Path) -> None:
    spec, warnings = load(folder, {}, "--clip 1", {"gradient_clipping": "clip"})
    assert args_of(spec, CANDIDATE) == "--clip 1"
    assert "gradient_clipping is mapped to --clip, but the configuration does not set it: --clip stays" in warnings[0]


def test_a_learning_rate_is_scaled_in_both_places(folder: Path) -> None:
    spec, _ = load(folder, {MBS: 4, "optimizer": {"params": {"lr": 1e-4}}}, "--lr 1e-4", {"lr": "lr"})
    history = History(reference=[observation(None, 1.0, facts=facts(micro_batch=4, world_size=4))], stages={})
    best = Candidate(stage=1, micro_batch=16, gas=1)
    advice = batch_advice(spec, history, best)
    assert advice is not None
    config, command = scale_rates(advice, spec.ds_config, candidate_command(spec, best))
    assert (config["optimizer"]["params"]["lr"], command.script_value("--lr")) == (2e-4, "0.0002")
