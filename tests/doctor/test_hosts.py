"""The nodes of a host file, asked through a program that stands for ssh."""

import json
from pathlib import Path

import pytest

from dsopt.doctor.check import Check, guarded
from dsopt.doctor.hosts import check_hosts
from dsopt.study.spec import StudySpec
from tests.doctor.made import study

SSH = """#!/bin/sh
echo "$@" >> {log}
for word in "$@"; do
    if [ "$word" = b ]; then echo "Permission denied (publickey)." >&2; exit 255; fi
done
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the program that stands for ssh was given; it reaches every node but `b`."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("ssh", SSH.format(log=tmp_path / "log")), ("pdsh", "#!/bin/sh\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return tmp_path / "log"


def by_host_file(tmp_path: Path, hosts: str, options: str = "") -> StudySpec:
    (tmp_path / "hosts").write_text(hosts)
    typed = f"deepspeed --hostfile hosts {options} train.py --deepspeed_config ds.json"
    return study(tmp_path, command=typed)


def checked(asked: StudySpec) -> list[Check]:
    return list(guarded("host-file", check_hosts, asked))


def test_all_nodes_answer(tmp_path: Path, log: Path) -> None:
    [found] = checked(by_host_file(tmp_path, "a slots=1\nc slots=1\n", "--ssh_port 2222"))
    assert (found.status, found.message) == ("ok", "all nodes answer: a, c")
    assert sorted(log.read_text().splitlines()) == [
        f"-o BatchMode=yes -o ConnectTimeout=5 -p 2222 -- {host} true" for host in "ac"
    ]


def test_a_node_that_does_not_answer_is_named_with_its_words(tmp_path: Path, log: Path) -> None:
    [found] = checked(by_host_file(tmp_path, "a slots=1\nb slots=1\n"))
    assert (found.status, found.message) == ("problem", "b does not answer: Permission denied (publickey).")
    assert found.fix.endswith("ssh -o BatchMode=yes -o ConnectTimeout=5 -- b true")


def test_pdsh_is_needed_for_several_nodes(tmp_path: Path, log: Path) -> None:
    (log.parent / "programs" / "pdsh").unlink()
    if not any(Path(folder, "pdsh").exists() for folder in ("/usr/bin", "/bin")):
        assert [one.status for one in checked(by_host_file(tmp_path, "a slots=1\nc slots=1\n"))] == ["problem", "ok"]
    assert [one.status for one in checked(by_host_file(tmp_path, "a slots=1\n"))] == ["ok"]


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
    assert [one.status for one in checked(by_host_file(tmp_path, "a slots=1\n", "--no_ssh"))] == ["skipped"]
    (tmp_path / "ds.json").write_text(json.dumps({}))
    assert not log.exists()
