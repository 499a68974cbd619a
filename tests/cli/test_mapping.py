"""A script that takes its batch from a flag of its own: `tune` offers to map the flag, and goes on with it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dsopt.api.mapping import MappedStudy, mapped_study, mapping_of
from dsopt.cli.main import dsopt as command
from dsopt.cli.mapping import offered
from dsopt.errors import DsoptError
from dsopt.experiment.contradiction import mappings_in
from dsopt.study.load import build_spec
from tests.conftest import SCRIPTS, Dsopt
from tests.terminal import run_in_terminal

KEY, FLAG = "train_micro_batch_size_per_gpu", "--batch-size"
TUNE = ["tune", "--devices", "cpu:2"]
TRAIN = ["--", str(SCRIPTS / "deepspeed"), *f"--num_gpus 2 train.py {FLAG} 4 --deepspeed_config ds.json".split()]
AGAIN = f"give this command once more with: --map {KEY}={FLAG} --name train-mapped --take-over train"


@pytest.fixture
def own_batch(dsopt: Dsopt) -> Dsopt:
    """A script whose batch is that of its flag."""
    (dsopt.cwd / "train.py").write_text("")
    config = {KEY: 4, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 1}}
    (dsopt.cwd / "ds.json").write_text(json.dumps({**config, "autotuning": {"max_train_batch_size": 32}}))
    dsopt.environment |= {"SIMULATED_ROWS": FLAG, "SIMULATED_SECONDS": "0"}
    return dsopt


def sizes(dsopt: Dsopt, name: str) -> set[str]:
    runs = dsopt.json("study", "show", name)["runs"]
    return {run["candidate"] for run in runs if run["state"] == "measured" and not run["round"]}


@pytest.mark.slow
def test_a_person_at_a_terminal_goes_on_with_the_mapping(own_batch: Dsopt) -> None:
    question = f"Go on with --map {KEY}={FLAG}?"
    said = run_in_terminal([*TUNE, *TRAIN], own_batch.cwd, own_batch.environment, width=100, answers={question: "\n"})
    assert said.code == 0, said.text
    assert said.too_wide(100) == []
    words = " ".join(said.text.split())
    assert "in study 'train-mapped', which takes over what 'train' has measured. That one stays as it is." in words
    assert "Taken over from study 'train', not measured again: your configuration" in words
    assert "Study 'train' is finished." in words and "Study 'train-mapped' is finished." in words
    assert sizes(own_batch, "train") == {"baseline"}  # nothing else can be measured there
    assert sizes(own_batch, "train-mapped") > {"baseline"}
    [baseline] = [
        run
        for run in own_batch.json("study", "show", "train-mapped")["runs"]
        if run["candidate"] == "baseline" and run["round"] == 0
    ]
    assert baseline["taken_over"] == "train"


@pytest.mark.slow
def test_without_a_terminal_and_after_a_no_it_is_said(own_batch: Dsopt) -> None:
    assert AGAIN in own_batch(*TUNE, *TRAIN)
    question = "[Y/n]"
    said = run_in_terminal([*TUNE, *TRAIN], own_batch.cwd, own_batch.environment, width=100, answers={question: "n\n"})
    assert (said.code, AGAIN in " ".join(said.text.split())) == (0, True), said.text
    assert [study["name"] for study in own_batch.json("study", "list")] == ["train"]
    mapped = own_batch(*TUNE, "--map", f"{KEY}={FLAG}", "--name", "train-mapped", "--take-over", "train", *TRAIN)
    assert "Other sizes were not tried" not in mapped
    assert sizes(own_batch, "train-mapped") > {"baseline"}


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (
            f'It has its own batch size. Map it: "autotuning": {{"arg_mappings": {{"{KEY}": "{FLAG}"}}}} (in …',
            {KEY: FLAG},
        ),
        (f'Map the one that sets it: "autotuning": {{"arg_mappings": {{"{KEY}": "-b"}}}}', {}),
        (f'and map that one: "autotuning": {{"arg_mappings": {{"{KEY}": "--FLAG"}}}}', {}),
        ("", {}),
    ],
)
def test_only_a_flag_that_is_known_is_offered(message: str, found: dict) -> None:
    assert mappings_in(message) == found


class _Study:
    state = "stopped"

    def __init__(self, name: str) -> None:
        self.name, self.summary = name, self
        self.fixed_sizes = f'Map it: "autotuning": {{"arg_mappings": {{"{KEY}": "{FLAG}"}}}}'


@pytest.mark.parametrize(
    ("name", "next_one"),
    [("a", "a-mapped"), ("a-mapped", "a-mapped-2"), ("a-mapped-2", "a-mapped-3"), ("a-mapped-b", "a-mapped-b-mapped")],
)
def test_each_mapping_has_a_study_of_its_own(name: str, next_one: str) -> None:
    found = mapped_study(_Study(name))  # type: ignore[arg-type]
    assert found == MappedStudy(name=next_one, earlier=name, mappings={KEY: FLAG})
    earlier = {"price_per_gpu_hour": 2.0, "autotuning": {"arg_mappings": {"a": "--b"}}}
    assert found.settings(earlier) == {
        "price_per_gpu_hour": 2.0, "name": next_one, "autotuning": {"arg_mappings": {"a": "--b", KEY: FLAG}},
    }  # fmt: skip


def test_a_study_that_could_not_go_on_says_how_it_can(capsys: pytest.CaptureFixture[str]) -> None:
    study, why = _Study("train"), DsoptError("your configuration does not run")
    assert offered(study, why=why, may_ask=True) is None  # type: ignore[arg-type]
    assert AGAIN in capsys.readouterr().out
    study.fixed_sizes = ""
    assert offered(study, why=why, may_ask=True) is None  # type: ignore[arg-type]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("given", ["", "abc", "=--b", f"{KEY}=", f"{KEY}=batch", "--b=--c"])
def test_what_is_no_mapping_is_refused(given: str) -> None:
    with pytest.raises(DsoptError, match="Expected a key of DeepSpeed's configuration"):
        mapping_of(given)


def test_a_key_with_two_flags_is_refused() -> None:
    done = CliRunner().invoke(command, ["tune", "--map", f"{KEY}=--a", "--map", f"{KEY}=--b", *TRAIN])
    assert "is mapped to --a and to --b. Give one flag for each key." in str(done.exception)


def test_a_mapping_of_the_command_joins_those_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    config = {KEY: 4, "autotuning": {"arg_mappings": {"zero_optimization.stage": "--stage", KEY: "--old"}}}
    (tmp_path / "ds.json").write_text(json.dumps(config))
    spec, _ = build_spec(
        {
            "name": "s", "cwd": str(tmp_path), "command": "deepspeed --num_gpus 2 train.py --deepspeed_config ds.json",
            "autotuning": {"arg_mappings": {KEY: FLAG}},
        },
        "command line",
    )  # fmt: skip
    assert spec.autotuning.arg_mappings == {"zero_optimization.stage": "--stage", KEY: FLAG}
