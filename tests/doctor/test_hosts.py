"""The nodes of a study's runs, asked through programs that stand for ssh and srun."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dsopt.doctor.check import Check, guarded
from dsopt.doctor.devices import check_place, find_devices
from dsopt.doctor.hosts import check_hosts
from dsopt.launch.devices import DevicePool
from dsopt.launch.placers.placer import ChoosingPlacer
from dsopt.launch.placers.ssh import HostFile
from dsopt.study.spec import StudySpec
from tests.doctor.made import study

SSH = """#!/bin/sh
echo "$@" >> {log}
for word in "$@"; do
    if [ "$word" = b ]; then echo "Permission denied (publickey)." >&2; exit 255; fi
    if [ "$word" = c ]; then echo "sh: {python}: not found" >&2; exit 127; fi
    last=$word
done
eval "$last"
"""
POOL = DevicePool(kind="cpu", indices=(0, 1))


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the program that stands for ssh was given; it does not reach `b`, and `c` lacks Python."""
    programs = tmp_path / "programs"
    programs.mkdir()
    ssh = SSH.format(log=tmp_path / "log", python=sys.executable)
    for name, text in (("ssh", ssh), ("pdsh", "#!/bin/sh\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return tmp_path / "log"


def by_host_file(tmp_path: Path, hosts: str, options: str = "", **keys: object) -> StudySpec:
    (tmp_path / "hosts").write_text(hosts)
    typed = f"deepspeed --hostfile hosts {options} train.py --deepspeed_config ds.json"
    return study(tmp_path, command=typed, **keys)


def by_launcher(tmp_path: Path, hosts: str, options: str = "") -> StudySpec:
    """One whose launcher reaches the nodes itself."""
    return by_host_file(tmp_path, hosts, options, start="launcher")


def checked(asked: StudySpec, pool: DevicePool | None = POOL) -> list[Check]:
    return list(guarded("host-file", check_hosts, asked, pool))


def test_of_a_launcher_that_uses_pdsh_all_nodes_answer(tmp_path: Path, log: Path) -> None:
    [found] = checked(by_launcher(tmp_path, "a slots=1\nd slots=1\n", "--ssh_port 2222"))
    assert (found.status, found.message) == ("ok", "all nodes answer: a, d")
    assert sorted(log.read_text().splitlines()) == [
        f"-o BatchMode=yes -o ConnectTimeout=5 -p 2222 -- {host} true" for host in "ad"
    ]


def test_a_node_that_does_not_answer_is_named_with_its_words(tmp_path: Path, log: Path) -> None:
    [found] = checked(by_launcher(tmp_path, "a slots=1\nb slots=1\n"))
    assert (found.status, found.message) == ("problem", "b does not answer: Permission denied (publickey).")
    assert found.fix.endswith("ssh -o BatchMode=yes -o ConnectTimeout=5 -- b true")


def test_pdsh_is_needed_only_where_the_launcher_starts_ranks_on_several_nodes(tmp_path: Path, log: Path) -> None:
    (log.parent / "programs" / "pdsh").unlink()
    if not any(Path(folder, "pdsh").exists() for folder in ("/usr/bin", "/bin")):
        assert [one.status for one in checked(by_launcher(tmp_path, "a slots=1\nd slots=1\n"))] == ["problem", "ok"]
    assert [one.status for one in checked(by_host_file(tmp_path, "a slots=1\nd slots=1\n"))] == ["ok"]
    assert [one.status for one in checked(by_launcher(tmp_path, "a slots=1\n"))] == ["skipped"]


@pytest.mark.parametrize("by_option", [True, False])
def test_what_dsopt_starts_there_is_started(tmp_path: Path, log: Path, by_option: bool) -> None:
    hosts = "a slots=1\nb slots=1\nc slots=1\n"
    if by_option:
        (tmp_path / "hosts").write_text(hosts)
        spec = study(tmp_path, command="deepspeed --num_nodes 2 --num_gpus 1 train.py --deepspeed_config ds.json")
        found = checked(spec, replace(POOL, placer=HostFile(tmp_path / "hosts")))
    else:
        found = checked(by_host_file(tmp_path, hosts))
    assert [(one.status, one.message) for one in found] == [
        ("problem", "b does not answer: Permission denied (publickey)."),
        ("problem", f"c does not answer: sh: {sys.executable}: not found"),
    ]
    assert "import dsopt" in found[1].fix
    assert "dsopt.launch.part" in log.read_text()


def test_an_engine_that_is_named_is_what_runs_are_placed_on(tmp_path: Path, log: Path) -> None:
    (tmp_path / "hosts").write_text("a slots=2\nd slots=2\n")
    spec = study(tmp_path, command="deepspeed --num_nodes 2 --num_gpus 2 train.py --deepspeed_config ds.json")
    [refused] = guarded("node", check_place, spec, POOL)
    assert "Say which: with --hostfile" in refused.message
    found = find_devices("cpu:2", ("hostfile", str(tmp_path / "hosts")))
    assert [one.status for one in guarded("node", check_place, spec, found.pool)] == ["ok"]
    assert [one.status for one in checked(spec, found.pool)] == ["ok"]
    assert "no such placer" in find_devices("cpu:2", ("of nobody", "")).why


class Engine(ChoosingPlacer):
    """An engine that chooses devices, on two nodes."""

    name = "an engine"
    has_gpus = True
    standing = "none"

    def hosts(self) -> dict[str, tuple[int, ...]]:
        return {"a": (0,), "b": (0,)}

    def acquire(self, *_: object) -> None:
        raise AssertionError("nothing is to run")

    def release(self, _: object) -> None:
        pass


def test_an_engine_that_chooses_devices_is_asked_what_it_has(tmp_path: Path) -> None:
    spec = study(tmp_path, command="deepspeed --num_nodes 2 --num_gpus 1 train.py --deepspeed_config ds.json")
    pool = DevicePool(kind="gpu", indices=(), placer=Engine())
    [found] = checked(spec, pool)
    assert (found.status, found.message) == ("ok", "2 devices of 2 nodes (an engine); it chooses when a run begins")
    assert [one.status for one in guarded("node", check_place, spec, pool)] == ["ok"]
    spec = study(tmp_path, command="deepspeed --num_nodes 3 --num_gpus 1 train.py --deepspeed_config ds.json")
    [refused] = guarded("node", check_place, spec, pool)
    assert "it takes 3 nodes" in refused.message


@pytest.mark.parametrize(
    ("text", "words"),
    [("a slots=many\n", "line 1, 'a slots=many'"), ("", "names no node"), ("a slots=1\na slots=2\n", "a node again")],
)
def test_a_file_that_does_not_parse_is_a_problem(tmp_path: Path, log: Path, text: str, words: str) -> None:
    [found] = checked(by_host_file(tmp_path, text))
    assert found.status == "problem"
    assert words in found.message
    assert not log.exists()


def test_nobody_is_asked_where_nobody_has_to_be(tmp_path: Path, log: Path) -> None:
    assert [one.status for one in checked(study(tmp_path))] == ["skipped"]
    assert [one.status for one in checked(by_host_file(tmp_path, "a slots=1\nd slots=1\n", "--no_ssh"))] == ["skipped"]
    assert [one.status for one in checked(study(tmp_path), None)] == ["skipped"]
    (tmp_path / "ds.json").write_text(json.dumps({}))
    assert not log.exists()
