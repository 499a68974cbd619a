"""Launch commands taken apart and put together again."""

import pytest

from dsopt.errors import DsoptError
from dsopt.study.command import LaunchCommand
from dsopt.study.launchers import DEEPSPEED

TYPED = "deepspeed --num_gpus 2 --master_port=29501 train.py --deepspeed_config 'my config.json' --lr 1e-4 -v"


def parse(text: str | list[str]) -> LaunchCommand:
    return LaunchCommand.parse(text, "test: command")


def test_parts() -> None:
    command = parse(TYPED)
    assert command.script == "train.py"
    assert command.option("--num_gpus", "--num_accelerators") == "2"
    assert command.option("--master_port") == "29501"
    assert command.config == "my config.json"
    assert parse(str(command)) == command


@pytest.mark.parametrize(
    ("typed", "path"),
    [
        ("deepspeed t.py --deepspeed_config=a.json", "a.json"),
        ("deepspeed t.py --deepspeed a.json", "a.json"),
        ("deepspeed t.py --deepspeed=a.json", "a.json"),
        ("deepspeed t.py --deepspeed --deepspeed_config a.json", "a.json"),
        ("deepspeed t.py --deepspeed --lr 1", None),
        ("deepspeed t.py", None),
    ],
)
def test_the_configuration_file_is_found_in_each_form(typed: str, path: str | None) -> None:
    assert parse(typed).config == path


def test_values_are_replaced_in_the_form_they_had() -> None:
    command = parse("deepspeed t.py --bs=4 --deepspeed a.json --name 'x y'")
    assert command.with_script_value("--bs", "8").script_args[0] == "--bs=8"
    assert command.with_config("b.json").script_args[1:3] == ("--deepspeed", "b.json")
    assert command.with_script_value("--gas", "2").script_args[-2:] == ("--gas", "2")
    assert command.script_value("--name") == "x y"


def test_launcher_options_are_removed_with_their_values() -> None:
    command = parse("deepspeed --num_gpus 2 --include=localhost:0 --module pkg.train --x 1")
    assert command.without_options("--num_gpus", "--include").launcher_args == ("--module",)
    assert command.is_module
    assert command.script == "pkg.train"


def test_assignments_in_front_are_kept() -> None:
    command = parse("OMP_NUM_THREADS=1 A='b c' deepspeed t.py")
    assert command.environment == (("OMP_NUM_THREADS", "1"), ("A", "b c"))
    assert str(command) == "OMP_NUM_THREADS=1 A='b c' deepspeed t.py"


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("", "is empty"),
        ("python train.py", "starts with 'python'"),
        ("deepspeed", "names no training script"),
        ("deepspeed --num_gpus 2", "names no training script"),
        ("deepspeed --nmu_gpus 2 t.py", "'--nmu_gpus' is not an option"),
        ("deepspeed 't.py", "cannot be split into words"),
    ],
)
def test_mistakes(typed: str, message: str) -> None:
    with pytest.raises(DsoptError, match="test: command") as caught:
        parse(typed)
    assert message in str(caught.value)


def test_the_launcher_options_are_those_of_the_installed_deepspeed() -> None:
    import argparse

    from deepspeed.launcher import runner

    seen: dict[str, bool] = {}
    original = argparse.ArgumentParser.add_argument

    def record(self, *names, **options):
        for name in names:
            if name.startswith("-"):
                seen[name] = options.get("action") != "store_true"
        return original(self, *names, **options)

    argparse.ArgumentParser.add_argument = record
    try:
        runner.parse_args(["train.py"])
    finally:
        argparse.ArgumentParser.add_argument = original
    seen = {name: valued for name, valued in seen.items() if name not in ("-h", "--help")}
    assert {name for name, valued in seen.items() if valued} - {"--elastic_training"} <= (
        DEEPSPEED.valued or frozenset()
    )
    assert {name for name, valued in seen.items() if not valued} <= DEEPSPEED.flags
