"""Which devices a command takes by a host file: the same as DeepSpeed's launcher, or a mistake with its place."""

import os
from pathlib import Path

import pytest

from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool, is_this_node
from dsopt.study.command import LaunchCommand
from dsopt.study.host_file import hosts_of
from dsopt.study.launchers.launcher import Options
from dsopt.study.spec import StudySpec
from dsopt.worker.capacity import lanes_of, places_of

FILE = "# the cluster\nlocalhost slots=4\n\n  b slots=4\nc  slots=2   # a small one\n"


def parse(options: str) -> LaunchCommand:
    return LaunchCommand.parse(f"deepspeed --hostfile hosts {options} t.py --deepspeed_config c.json", "test")


def as_deepspeed_says(file: Path, options: Options) -> dict[str, tuple[int, ...]]:
    from deepspeed.launcher import runner

    pool = runner.fetch_hostfile(str(file))
    chosen = [options.value(*names) or "" for names in (("--include", "-i"), ("--exclude", "-e"))]
    active = runner.parse_inclusion_exclusion(pool, *chosen)
    counts = [int(options.value(name) or -1) for name in ("--num_nodes", "--num_gpus")]
    return {name: tuple(slots) for name, slots in runner.apply_num_nodes_and_gpus(active, *counts).items()}


@pytest.mark.parametrize(
    "options",
    [
        "", "--num_nodes 2", "--num_gpus 1", "--num_nodes 2 --num_gpus 2", "--num_gpus 8", "--include b:0,2@c",
        "-i c:1", "-e b", "--exclude localhost:0@b:1,2,3", "-e c:0,1", "--include c@b",
    ],
)  # fmt: skip
def test_the_devices_are_those_that_deepspeed_takes(tmp_path: Path, options: str) -> None:
    command = parse(options)
    (tmp_path / "hosts").write_text(FILE)
    hosts = hosts_of(command, tmp_path, "test")
    assert list(hosts.items()) == list(as_deepspeed_says(tmp_path / "hosts", command.options).items())


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a slots=2\nb\n", "", "hosts: line 2, 'b', is not of the form 'worker-1 slots=8'"),
        ("a slots=2\na slots=2\n", "", "line 2, 'a slots=2', names a node again"),
        ("# nothing\n", "", "names no node"),
        (FILE, "--num_nodes 4", "has only 3 nodes"),
        (FILE, "--include d:0", "no node 'd' in the host file"),
        ("\0\udcff", "", "hosts: is not UTF-8 text"),
        ("node1..example.org slots=2\n", "", "line 1: 'node1..example.org' is no name of a host"),
        (".node1 slots=2\n", "", "is no name of a host"),
        (f"{64 * 'a'} slots=2\n", "", "is no name of a host"),
        (".".join(64 * ["abcd"]) + " slots=2\n", "", "is no name of a host"),
        ("a slots=2\na\0b slots=2\n", "", r"line 2: 'a\\x00b' is no name of a host"),
        ("../a slots=2\n", "", "is no name of a host"),
        ("-oProxyCommand=true slots=2\n", "", "is no name of a host"),
        ("-o@b slots=2\n", "", "is no name of a host"),
    ],
)
def test_a_host_file_that_cannot_be_used_is_refused(tmp_path: Path, text: str, options: str, message: str) -> None:
    (tmp_path / "hosts").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DsoptError, match=message):
        hosts_of(parse(options), tmp_path, "test")


def test_names_and_addresses_are_taken(tmp_path: Path) -> None:
    names = ["node-1", "node_1", "n1.example.org.", "10.0.0.1", "::1", "fe80::1%ib0.8001", "root@node-1", "1a", "gpu-"]
    (tmp_path / "hosts").write_text("".join(f"{name} slots=1\n" for name in names))
    assert [*hosts_of(parse(""), tmp_path, "test")] == names


def test_a_pipe_is_no_host_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hosts")
    with pytest.raises(DsoptError, match=r"hosts: is a pipe or a device\. Expected the host file"):
        hosts_of(parse(""), tmp_path, "test")


@pytest.mark.parametrize("name", ["a..b", 64 * "a", "a\0b", "../a"])
def test_what_is_no_name_is_not_this_node(name: str) -> None:
    assert not is_this_node(name)


def study(folder: Path, options: str) -> StudySpec:
    (folder / "hosts").write_text(FILE)
    keys = {"name": "s", "command": str(parse(options)), "cwd": str(folder), "ds_config": {}}
    return StudySpec.model_validate(keys)


def test_a_run_takes_the_devices_of_all_its_nodes(tmp_path: Path) -> None:
    pool = DevicePool(kind="gpu", indices=(0, 1, 2, 3), uuids={0: "w", 1: "x", 2: "y", 3: "z"})
    spec = study(tmp_path, "--num_nodes 2 --num_gpus 2").model_copy(update={"start": "launcher"})
    places = places_of(spec, pool)
    assert (places.pool.indices, places.count, places.hosts) == ((0, 1), 2, {"b": (0, 1)})
    assert lanes_of(spec, pool) == 1  # another run would take the same ones
    elsewhere = places_of(study(tmp_path, "--include b@c").model_copy(update={"start": "launcher"}), pool)
    assert (elsewhere.pool.indices, elsewhere.hosts) == ((), {"b": (0, 1, 2, 3), "c": (0, 1)})
    alone = places_of(study(tmp_path, "--include b:1,2"), pool)  # DeepSpeed starts it here
    assert (alone.pool.indices, alone.hosts) == ((1, 2), {})


@pytest.mark.parametrize(
    ("options", "hosts", "nodes", "devices", "lanes"),
    [
        ("--num_nodes 2 --num_gpus 2", {"localhost": (0, 1, 2), "b": (0, 1, 2, 3), "c": (0, 1)}, 2, 2, 2),
        ("--num_nodes 3 --num_gpus 1", {"localhost": (0, 1, 2), "b": (0, 1, 2, 3), "c": (0, 1)}, 3, 1, 3),
        ("--include b@c", {"b": (0, 1, 2, 3), "c": (0, 1)}, 2, None, 1),
        ("--exclude localhost", {"b": (0, 1, 2, 3), "c": (0, 1)}, 2, None, 1),
    ],
)
def test_dsopt_chooses_among_the_nodes_what_the_command_leaves_open(
    tmp_path: Path, options: str, hosts: dict, nodes: int, devices: int | None, lanes: int
) -> None:
    pool = DevicePool(kind="cpu", indices=(0, 1, 2))  # of the worker's own node, one fewer than the file gives
    spec = study(tmp_path, options)
    wanted = places_of(spec, pool).wanted
    assert wanted is not None
    found = {name: tuple(indices) for name, indices in wanted.hosts.items()}
    assert (found, wanted.nodes, wanted.devices) == (hosts, nodes, devices)
    assert lanes_of(spec, pool) == lanes


def test_a_worker_without_the_devices_that_runs_take_here_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DsoptError, match=r"gives runs device 2 of this node; this worker has 2 CPU slots\. Give it"):
        places_of(study(tmp_path, ""), DevicePool(kind="cpu", indices=(0, 1)))


def test_a_host_file_with_this_node_under_two_names_is_refused(tmp_path: Path) -> None:
    spec = study(tmp_path, "")
    (tmp_path / "hosts").write_text("localhost slots=1\n127.0.0.1 slots=1\n")
    with pytest.raises(DsoptError, match=r"has this node twice, as 'localhost' and '127\.0\.0\.1'\. Name"):
        places_of(spec, DevicePool(kind="cpu", indices=(0, 1)))


@pytest.mark.parametrize(("name", "is_own"), [("127.0.0.1", True), ("localhost", True), ("192.0.2.7", False)])
def test_a_node_knows_its_addresses(name: str, is_own: bool) -> None:
    assert is_this_node(name) == is_own
