"""Launch commands as people write them: abbreviations, quotes, `env`, line ends, and what is no launcher at all."""

import argparse
from pathlib import Path

import pytest
import yaml

from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool
from dsopt.study.command import LaunchCommand
from dsopt.study.launchers.accelerate import ACCELERATE
from dsopt.study.launchers.deepspeed import DEEPSPEED
from dsopt.study.launchers.launcher import Launcher
from dsopt.study.launchers.torchrun import TORCHRUN
from dsopt.study.load import load_spec
from dsopt.study.typed import typed_words
from dsopt.worker.capacity import places_of

TORCH_2_NODES = "python -m torch.distributed.run --nproc_per_node=8 --nnode=2 --node_rank=0 --master_addr=hostname1 "
PROGRAM = "your_program.py --deepspeed ds_config.json"


def parse(typed: str | list[str]) -> LaunchCommand:
    return LaunchCommand.parse(typed_words(typed, "test: command"), "test: command")


@pytest.mark.parametrize(
    ("typed", "script", "ranks", "nodes"),
    [
        (f"{TORCH_2_NODES} --master_port=9901 {PROGRAM}", "your_program.py", 8, 2),
        (f"{TORCH_2_NODES}\\ --master_port=9901 {PROGRAM}", "your_program.py", 8, 2),  # as a web page shows it
        ("torchrun --nproc=2 --stand t.py", "t.py", 2, 1),
        ("torchrun --nproc-per 2 -t3 t.py", "t.py", 2, 1),
        ("torchrun --an_option_of_a_later_version 1 t.py", "t.py", None, 1),
        ("deepspeed --num_gpu 2 --hostf hosts t.py", "t.py", 2, 1),
        ("deepspeed --num_acc=2 --master_p 1 t.py", "t.py", 2, 1),
        ("deepspeed -Hhosts --num_nodes 2 t.py", "t.py", None, 2),
        ("accelerate-launch --num-processes 2 t.py", "t.py", 2, 1),
        ("python -m accelerate.commands.accelerate_cli launch --multi_gpu --num_processes 2 t.py", "t.py", 2, 1),
        ("/opt/conda/bin/deepspeed --num_gpus 2 t.py", "t.py", 2, 1),
        ("'deepspeed --num_gpus 2 t.py'", "t.py", 2, 1),
        ("deepspeed --num_gpus 2 \\\n  t.py \\\n", "t.py", 2, 1),
        ("deepspeed --num_gpus 2\\\r\n  t.py", "t.py", 2, 1),
        ("deepspeed --num_gpus 2 my\\\nscript.py", "myscript.py", 2, 1),
    ],
)
def test_what_people_write_is_taken(typed: str, script: str, ranks: int | None, nodes: int) -> None:
    command = parse(typed)
    assert (command.script, command.ranks, command.nodes) == (script, ranks, nodes)
    assert LaunchCommand.parse(str(command), "as it is kept") == command


def test_a_whole_command_in_quotes_is_one_word_of_the_shell() -> None:
    assert parse(["deepspeed --num_gpus 2 t.py --name 'a b'"]).script_args == ("--name", "a b")
    assert parse(["deepspeed", "t.py", "--note", "two words"]).script_args == ("--note", "two words")


def test_a_backslash_that_is_no_line_end_stays() -> None:
    command = parse(["deepspeed", "t.py", "--separator", r"a \ b"])
    assert LaunchCommand.parse(str(command), "as it is kept").script_args[-1] == r"a \ b"
    assert parse(r"deepspeed my\ script.py").script == "my script.py"


@pytest.mark.parametrize("typed", ["env A=1 torchrun t.py", "A=1 env torchrun t.py", "/usr/bin/env A=1 torchrun t.py"])
def test_env_is_as_the_assignments_behind_it(typed: str) -> None:
    assert str(parse(typed)) == "A=1 torchrun t.py"


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("deepspeed --num 2 t.py", "'--num' could be --num_accelerators or --num_gpus or --num_nodes"),
        ("torchrun --nodes 2 t.py", "'--nodes' is not an option of the torchrun launcher. Did you mean '--nnodes'?"),
        ("accelerate launch --num_process 2 t.py", "Did you mean '--num_processes'?"),
        ("deepspeed –num_gpus 2 t.py", "Type two hyphens"),
        ("env -i deepspeed t.py", "env may have no options"),
        ("srun --jobid 1 bash -c 'torchrun t.py'", "Start dsopt in the job, such as 'srun --ntasks 1 dsopt tune"),
        ("sbatch launch.slurm", "Start dsopt in the job"),
        ("mpirun -np 8 python t.py", "'deepspeed --hostfile FILE --launcher openmpi"),
        ("ray job submit -- deepspeed t.py", "start dsopt there"),
        ("uv run deepspeed t.py", "'uv run dsopt tune -- deepspeed"),
        ("nohup deepspeed t.py", "'nohup dsopt tune -- deepspeed"),
        ("bash -c 'deepspeed t.py'", "No shell runs the command"),
        ("./launch.sh --fast", "It is a shell script"),
        ("python t.py --deepspeed ds.json", "'deepspeed --num_gpus 1 train.py"),
        ("./t.py --deepspeed ds.json", "It has no launcher"),
    ],
)
def test_what_is_not_taken_is_said_with_what_to_write_instead(typed: str, message: str) -> None:
    with pytest.raises(DsoptError, match="test: command") as caught:
        parse(typed)
    assert message in str(caught.value)


def test_two_nodes_as_hugging_face_writes_them_are_for_a_worker_that_has_them(tmp_path: Path) -> None:
    (tmp_path / "your_program.py").touch()
    (tmp_path / "ds_config.json").write_text("{}")
    study = {"command": f"{TORCH_2_NODES} --master_port=9901 {PROGRAM}"}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    spec, _ = load_spec(tmp_path / "study.yaml")
    with pytest.raises(DsoptError, match=r"takes 2 nodes\. Say which: with --hostfile FILE"):
        places_of(spec, DevicePool(kind="cpu", indices=tuple(range(16))))


def _deepspeed_parser() -> argparse.ArgumentParser:
    """The parser that `deepspeed` makes and keeps to itself."""
    from deepspeed.launcher import runner

    made: list[argparse.ArgumentParser] = []
    original = argparse.ArgumentParser.parse_args
    argparse.ArgumentParser.parse_args = lambda self, *_, **__: made.append(self)
    try:
        runner.parse_args(["train.py"])
    finally:
        argparse.ArgumentParser.parse_args = original
    return made[0]


def _installed(launcher: Launcher) -> tuple[argparse.ArgumentParser, frozenset[str]]:
    """A launcher's own parser, and what earlier or other versions of it have beside its options."""
    if launcher is DEEPSPEED:
        elastic = ["--elastic_training", "--min_elastic_nodes", "--max_elastic_nodes"]
        return _deepspeed_parser(), frozenset(elastic)
    if launcher is TORCHRUN:
        from torch.distributed.run import get_args_parser

        return get_args_parser(), frozenset(["--use_env"])  # of torch.distributed.launch
    from accelerate.commands.launch import launch_command_parser

    return launch_command_parser(), frozenset()


@pytest.mark.parametrize("launcher", [DEEPSPEED, TORCHRUN, ACCELERATE], ids=lambda launcher: launcher.name)
def test_the_options_are_those_of_the_installed_launcher(launcher: Launcher) -> None:
    parser, others = _installed(launcher)
    flags: set[str] = set()
    valued: set[str] = set()
    for action in parser._actions:
        names = {f"--{name[2:].replace('-', '_')}" if name[:2] == "--" else name for name in action.option_strings}
        (flags if action.nargs == 0 else valued).update(names - {"-h", "--help"})
    assert launcher.flags - others == flags - others
    assert parser.allow_abbrev == launcher.takes_prefixes
    if launcher is ACCELERATE:  # the rest of its options all take a value, as any other does that is not listed
        assert launcher.valued <= valued
    else:
        assert launcher.valued - others == valued - others
