"""Flags that the script does not have, or lacks, are told before hours are spent, and never wrongly."""

from pathlib import Path

import pytest

from dsopt.doctor.arguments import check_arguments
from dsopt.study.load import load_spec
from tests.conftest import STUDIES
from tests.doctor.made import study

PARSER = """
import argparse, deepspeed
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("-b", "--batch-size", type=int)
parser.add_argument("--compile", action=argparse.BooleanOptionalAction)
parser.add_argument("--local_rank", type=int)
parser = deepspeed.add_config_arguments(parser)
args = parser.parse_args()
"""


def told(folder: Path, script: str, words: str, **keys: object) -> list[tuple[str, str, str]]:
    (folder / "train.py").write_text(script)
    command = f"deepspeed --num_gpus 2 train.py {words} --deepspeed_config ds.json"
    found = check_arguments(study(folder, **{"command": command, **keys}))
    return [(one.status, one.message, one.fix) for one in found]


FINE = [("ok", "train.py has every flag that it is given", "")]


@pytest.mark.parametrize("words", ["", "--epochs 3 -b 4", "--ep=3 -b4 --no-compile", "--epochs -1 --deepspeed"])
def test_flags_that_the_script_has(tmp_path: Path, words: str) -> None:
    assert told(tmp_path, PARSER, words) == FINE


def test_a_misspelt_flag_is_named_with_the_nearest(tmp_path: Path) -> None:
    assert told(tmp_path, PARSER, "--batchsize 4") == [
        ("problem", "train.py has no flag --batchsize", "It has --batch-size.")
    ]


def test_a_flag_to_try_must_be_there_too(tmp_path: Path) -> None:
    search = {"args": {"--gradient_checkpointing": [None, ""]}}
    [first] = told(tmp_path, PARSER, "", search=search)
    assert first[:2] == ("problem", "train.py has no flag --gradient_checkpointing")


def test_a_mapped_flag_must_be_there_too(tmp_path: Path) -> None:
    def mapped(flag: str, words: str) -> list[tuple[str, str, str]]:
        mappings = {"arg_mappings": {"train_micro_batch_size_per_gpu": flag}}
        return told(tmp_path, PARSER.replace("type=int)", "required=True)", 2), words, autotuning=mappings)

    assert mapped("--batchsize", "--epochs 3 -b 4") == [
        ("problem", "train.py has no flag --batchsize", "It has --batch-size.")
    ]
    # a run gets it only if the configuration says it, and the user's own then, too
    clip = {"arg_mappings": {"gradient_clipping": "--clip"}}
    assert told(tmp_path, PARSER, "--epochs 3", autotuning=clip) == FINE
    needs = PARSER.replace('"--batch-size", type=int', '"--batch-size", required=True')
    sizes = {"arg_mappings": {"train_micro_batch_size_per_gpu": "--batch-size"}}
    auto = {"train_micro_batch_size_per_gpu": "auto"}
    [lacks] = told(tmp_path, needs, "--epochs 3", autotuning=sizes, ds_config=auto)
    assert lacks[1] == "train.py needs --batch-size, which the command does not give"
    assert mapped("--batch_size", "--epochs 3 --batch-size 4") == mapped("--batch-size", "--epochs 3") == FINE


def test_a_flag_that_is_needed(tmp_path: Path) -> None:
    script = PARSER.replace('"--epochs", type=int', '"-e", "--epochs", required=True')
    assert told(tmp_path, script, "-e 3") == FINE
    assert told(tmp_path, script, "")[0][:2] == ("problem", "train.py needs --epochs, which the command does not give")


def test_the_launchers_own_flag(tmp_path: Path) -> None:
    script = PARSER.replace('parser.add_argument("--local_rank", type=int)', "")
    [(status, message, fix), *_] = told(tmp_path, script, "")
    assert (status, message) == (
        "problem", "the deepspeed launcher gives each rank --local_rank, which train.py does not have",
    )  # fmt: skip
    assert fix.endswith("or --no_local_rank after deepspeed.")
    without = "deepspeed --no_local_rank --num_gpus 2 train.py --deepspeed_config ds.json"
    assert told(tmp_path, script, "", command=without) == FINE


@pytest.mark.parametrize(
    "change",
    [
        ("parser.parse_args()", "parser.parse_known_args()"),
        ("parser.parse_args()", 'parser.parse_args(["--epochs"])'),
        ("args = ", "import mine; mine.add_flags(parser); args = "),
        ("args = ", "class A: pass\nA.parser = parser\nargs = "),
        ("args = ", "for name in ('--a',): parser.add_argument(name)\nargs = "),
        ("args = ", "parser.add_argument(**{'dest': 'x'})\nargs = "),
        ("ArgumentParser()", "ArgumentParser(parents=[mine])"),
        ("import argparse", "import sys; print(sys.argv); import argparse"),
        ("import argparse", "import argparse ((("),
        ("parser = argparse", "parser, other = argparse"),
        ("parser = argparse", "parser: object = argparse"),
        ("args = ", "add = parser.add_argument\nadd('--lr')\nargs = "),
        ("args = ", "mine(parser.add_argument_group('x'))\nargs = "),
        ("argparse.ArgumentParser()", "Model.add_flags(argparse.ArgumentParser())"),
        ("import argparse", "import jsonargparse as argparse"),
        ("import argparse", "from simple_parsing import ArgumentParser; import argparse"),
        ("args = parser.parse_args()", "main()"),
        ("args = ", "parser.add_argument('rest', nargs=argparse.REMAINDER)\nargs = "),
        ("args = ", "parser.add_argument('--x', action=MyAction)\nargs = "),
        ("args = ", "parser.add_argument('-learning_rate')\nargs = "),
        ("args = ", "def made(): return parser\nadd(made())\nargs = "),
        ("ArgumentParser()", "ArgumentParser(**more)"),
        ("args = ", "parser._add_action(mine)\nargs = "),
    ],
)
def test_nothing_is_said_where_the_source_alone_does_not_tell(tmp_path: Path, change: tuple[str, str]) -> None:
    [(status, message, _)] = told(tmp_path, PARSER.replace(*change), "--not-there")
    assert (status, message) == ("skipped", "the source of train.py alone does not say which flags it has")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('"--epochs", type=int', '"-e", "--epochs", required=True'), "-e3"),
        (('"--epochs", type=int', '"--epochs"'), "--epochs '- one two' -- --not-there"),
        (("args = ", "if bad: parser.add_argument('--seed', required=True)\nargs = "), ""),
        (('"--local_rank", type=int', '"--local_rank", required=True'), ""),
        (("args = ", "parser.add_argument('--no_cuda', action='store_true')\nargs = "), "--no_cuda --epochs -1e-3"),
        (
            ("import argparse,", "from argparse import ArgumentParser, BooleanOptionalAction\nimport argparse,"),
            "--no-compile",
        ),
    ],
)
def test_what_argparse_takes_is_fine(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    assert told(tmp_path, PARSER.replace(*change), words) == FINE


def test_ranks_that_others_start_get_no_local_rank(tmp_path: Path) -> None:
    script = PARSER.replace('parser.add_argument("--local_rank", type=int)', "")
    command = "deepspeed --launcher openmpi --hostfile h --num_gpus 2 train.py --deepspeed_config ds.json"
    assert told(tmp_path, script, "", command=command) == FINE


@pytest.mark.parametrize("file", sorted(STUDIES.rglob("study.yaml")), ids=lambda file: file.parent.name)
def test_nothing_is_wrong_with_scripts_that_run(file: Path) -> None:
    spec, _ = load_spec(file)
    assert [one for one in check_arguments(spec) if one.status == "problem"] == []
