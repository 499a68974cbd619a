"""Launch commands taken apart and put together again."""

import pytest

from dsopt.errors import DsoptError
from dsopt.study.command import LaunchCommand

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


@pytest.mark.parametrize(
    ("typed", "kind", "script", "ranks", "config"),
    [
        ("torchrun --nproc_per_node=2 t.py --deepspeed ds.json", "torchrun", "t.py", 2, "ds.json"),
        ("torchrun --nproc-per-node 4 --standalone -m pkg.t --deepspeed ds.json", "torchrun", "pkg.t", 4, "ds.json"),
        ("python -m torch.distributed.run --nproc_per_node=2 t.py --deepspeed=a", "torchrun", "t.py", 2, "a"),
        ("python3 -u -m torch.distributed.launch --nproc_per_node 8 t.py", "torchrun", "t.py", 8, None),
        ("torchrun --nproc_per_node gpu t.py", "torchrun", "t.py", None, None),
        ("accelerate launch --num_processes 2 --deepspeed_config_file d.json t.py", "accelerate", "t.py", 2, "d.json"),
        ("accelerate launch --num_processes 8 --num_machines 2 t.py --deepspeed x", "accelerate", "t.py", 4, "x"),
        ("python -m accelerate.commands.launch --use_deepspeed t.py", "accelerate", "t.py", None, None),
        ("deepspeed --include localhost:0,2,3 t.py", "deepspeed", "t.py", 3, None),
        ("deepspeed --include worker-0@worker-1:0,2 t.py", "deepspeed", "t.py", None, None),
        ("python -m deepspeed.launcher.runner --num_gpus 2 t.py", "deepspeed", "t.py", 2, None),
    ],
)
def test_every_launcher_is_taken_apart(typed, kind, script, ranks, config) -> None:
    command = parse(typed)
    assert (command.launcher.name, command.script, command.ranks, command.config) == (kind, script, ranks, config)
    assert str(command) == typed


def test_all_options_of_the_deepspeed_launcher_are_kept() -> None:
    typed = (
        "deepspeed --hostfile hosts --num_nodes 2 --num_gpus 4 --master_addr node1 --master_port 29501 "
        "--no_local_rank --launcher pdsh --launcher_args '-x A=1' --ssh_port 2222 --bind_cores_to_rank --force_multi "
        "-e node3 --module pkg.train --name 'two words' --deepspeed_config=x.json"
    )
    command = parse(typed)
    assert str(command) == typed
    started = command.with_port(20001).with_module("dsopt.probe")
    kept = [word for word in command.launcher_args if word not in ("--master_port", "29501")]
    assert [word for word in started.launcher_args if word not in ("--master_port", "20001")] == kept
    assert started.script_args == ("-m", "pkg.train", "--name", "two words", "--deepspeed_config=x.json")
    assert command.uses_hostfile
    assert (command.nodes, command.ranks) == (2, 4)


@pytest.mark.parametrize(
    ("typed", "probed"),
    [
        (
            "torchrun --nproc-per-node 2 --standalone t.py -x",
            "torchrun --nproc-per-node 2 --master_port 20001 --module dsopt.probe t.py -x",
        ),
        (
            "torchrun --rdzv-backend=c10d --rdzv_endpoint localhost:0 -m pkg.t",
            "torchrun -m --master_port 20001 dsopt.probe -m pkg.t",
        ),
        (
            "accelerate launch --main_process_port=1 --num-processes 2 t.py",
            "accelerate launch --num-processes 2 --main_process_port 20001 --module dsopt.probe t.py",
        ),
        (
            "deepspeed --no_python --num_gpus 1 t.py",
            "deepspeed --num_gpus 1 --master_port 20001 --module dsopt.probe t.py",
        ),
    ],
)
def test_the_probe_stands_in_front_of_the_script(typed: str, probed: str) -> None:
    assert str(parse(typed).with_port(20001).with_module("dsopt.probe")) == probed


def test_ranks_and_nodes_are_set_in_the_launchers_own_terms() -> None:
    assert str(parse("deepspeed --include localhost:0,1 t.py").with_ranks(4)) == "deepspeed --num_gpus 4 t.py"
    assert str(parse("deepspeed t.py").with_nodes(2)) == "deepspeed --num_nodes 2 t.py"
    assert str(parse("torchrun --nproc-per-node=2 t.py").with_ranks(4)) == "torchrun --nproc_per_node 4 t.py"
    accelerate = parse("accelerate launch --num_machines 2 --gpu_ids 0,1 t.py").with_ranks(4)
    assert str(accelerate) == "accelerate launch --num_machines 2 --num_processes 8 t.py"


@pytest.mark.parametrize(
    ("args", "value", "result"),
    [
        ("--gc --lr 1", None, "--lr 1"),
        ("--gc yes --lr 1", None, "--lr 1"),
        ("--gc=yes --lr 1", "", "--lr 1 --gc"),
        ("--lr 1", "no", "--lr 1 --gc no"),
        ("--gc -1 --lr 1", "2", "--lr 1 --gc 2"),
    ],
)
def test_switches_of_the_script(args: str, value: str | None, result: str) -> None:
    assert parse(f"deepspeed t.py {args}").with_script_switch("--gc", value).script_args == tuple(result.split())


def test_what_a_switch_says() -> None:
    command = parse("deepspeed t.py --alone --with value --equals=3 --minus -1 --last")
    said = {name: command.script_switch(f"--{name}") for name in ("alone", "with", "equals", "minus", "last", "absent")}
    assert said == {"alone": "", "with": "value", "equals": "3", "minus": "-1", "last": "", "absent": None}


def test_hugging_faces_flags_are_known_with_dashes_and_underscores() -> None:
    command = parse("deepspeed t.py --per-device-train-batch-size 4")
    flag = "--per_device_train_batch_size"
    assert command.script_value(flag) == "4"
    assert command.with_script_value(flag, "8").script_args == ("--per-device-train-batch-size", "8")


@pytest.mark.parametrize(
    ("args", "changed"),
    [
        ("--bs", "--bs 8"),
        ("--bs --x 1", "--bs 8 --x 1"),
        ("--bs 4 --x 1", "--bs 8 --x 1"),
        ("--x 1", "--x 1 --bs 8"),
    ],
)
def test_a_mapped_flag_never_takes_another_ones_place(args: str, changed: str) -> None:
    assert parse(f"deepspeed t.py {args}").with_script_value("--bs", "8").script_args == tuple(changed.split())


def test_a_switch_leaves_the_word_after_it() -> None:
    command = parse("deepspeed t.py --ck data.txt")
    assert command.with_script_switch("--ck", None, takes_value=False).script_args == ("data.txt",)


def test_accelerates_file_and_the_scripts_are_both_replaced() -> None:
    command = parse("accelerate launch --deepspeed_config_file a.json t.py --deepspeed b.json").with_config("c.json")
    assert str(command) == "accelerate launch --deepspeed_config_file c.json t.py --deepspeed c.json"
