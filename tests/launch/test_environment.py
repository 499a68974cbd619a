"""What a run gets of the worker's environment, on this node and on others."""

from dataclasses import replace
from pathlib import Path

import pytest

from dsopt.launch.devices import DevicePool
from dsopt.launch.environment import secrets_given
from dsopt.launch.launch import Launch
from dsopt.protocol.run_dir import RUN_VARIABLES, RunDir
from dsopt.study.command import LaunchCommand
from tests.runs import launch

BASE = {
    "PATH": "/bin", "HOME": "/home/ann", "DSOPT_STORAGE": "sqlite:///x.db", "DSOPT_STORAGE_FILE": "/run/secrets/url",
    "DSOPT_KEYS": "/etc/dsopt/keys", "DSOPT_DASHBOARD_TOKEN_FILE": "/run/secrets/token", "HF_TOKEN": "hub-4711",
    "AWS_SECRET_ACCESS_KEY": "aws-4711", "AWS_REGION": "eu", "MAX_TOKENS": "2048",
    "NETRC_URL": "https://ann:p4ss@host",
}  # fmt: skip
OWN = {"DSOPT_STORAGE", "DSOPT_STORAGE_FILE", "DSOPT_KEYS", "DSOPT_DASHBOARD_TOKEN_FILE"}
SECRET = OWN | {"HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "NETRC_URL"}


@pytest.mark.parametrize(
    ("words", "pass_env", "given"),
    [
        ("deepspeed train.py", (), set()),
        ("deepspeed train.py --token $HF_TOKEN", (), {"HF_TOKEN"}),
        ("MINE=$HF_TOKEN deepspeed train.py", (), {"HF_TOKEN"}),
        ("deepspeed train.py", ("AWS_*", "NETRC_URL"), {"AWS_SECRET_ACCESS_KEY", "NETRC_URL"}),
        ("deepspeed train.py", ("*",), SECRET - OWN),
        ("deepspeed train.py --token $DSOPT_STORAGE", ("DSOPT_*",), set()),
    ],
)
def test_a_run_gets_only_the_secrets_that_it_asks_for(words: str, pass_env: tuple[str, ...], given: set[str]) -> None:
    started = launch(words, pass_env=pass_env)
    environment = started.environment(BASE)
    assert SECRET & environment.keys() == given
    assert set(secrets_given(BASE, started.command, pass_env)) == given
    assert all(environment[name] == BASE[name] for name in BASE.keys() - SECRET)


def test_assignments_get_their_values() -> None:
    assert launch("MINE=$HF_TOKEN deepspeed train.py").environment(BASE)["MINE"] == "hub-4711"


def test_other_nodes_get_no_more_from_a_file_that_only_its_owner_may_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    (tmp_path / ".deepspeed_env").write_text("NCCL_DEBUG=INFO\nWANDB_API_KEY=abc123def\nAWS_PROFILE_SECRET=aws-4712\n")
    started: Launch = launch(
        "deepspeed --hostfile hosts --num_nodes 2 train.py", cwd=tmp_path / "none", run_dir=RunDir(tmp_path),
        devices=DevicePool(kind="cpu", indices=(0,)), pass_env=("AWS_*",),
    )  # fmt: skip
    assert started.secrets_given == ["AWS_PROFILE_SECRET"]
    (tmp_path / "my.env").write_text("AWS_OTHER_SECRET=aws-4713\n")
    assigned = LaunchCommand.parse("DS_ENV_FILE=my.env deepspeed --hostfile hosts --num_nodes 2 train.py", "test")
    assert replace(started, command=assigned, cwd=tmp_path).secrets_given == ["AWS_OTHER_SECRET"]
    path = Path(started.environment(BASE)["DS_ENV_FILE"])
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text().splitlines()[:4] == [
        "NCCL_DEBUG=INFO",
        "AWS_PROFILE_SECRET=aws-4712",
        "AWS_SECRET_ACCESS_KEY=aws-4711",
        "AWS_REGION=eu",
    ]


def test_two_runs_differ_only_in_variables_that_forked_ranks_get_anew() -> None:
    one, other = (
        launch(run_dir=RunDir(f"/made/up/{name}"), port=port).environment(BASE) for name, port in [("a", 1), ("b", 2)]
    )
    assert {name for name in one | other if one.get(name) != other.get(name)} - RUN_VARIABLES == set()


@pytest.mark.parametrize(
    ("words", "visible", "option"),
    [
        ("CUDA_VISIBLE_DEVICES=3,1 torchrun --nproc_per_node 2 train.py", "1,3", None),
        ("CUDA_VISIBLE_DEVICES=GPU-b,GPU-d torchrun --nproc_per_node 2 train.py", "1,3", None),
        ("CUDA_VISIBLE_DEVICES=3,1 deepspeed train.py", None, "localhost:1,3"),
    ],
)
def test_ranks_see_the_leased_gpus_by_the_numbers_that_the_driver_gives_them(
    words: str, visible: str | None, option: str | None
) -> None:
    """CUDA counts the fastest first unless it is told to count as the driver does, by which devices are leased."""
    devices = DevicePool(kind="gpu", indices=(1, 3), uuids={1: "GPU-b", 3: "GPU-d"})
    started: Launch = launch(words, devices=devices)
    environment = started.environment({**BASE, "CUDA_VISIBLE_DEVICES": "0,1,2,3", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"})
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert environment.get("CUDA_VISIBLE_DEVICES") == visible
    assert started.probed_command().option("-i", "--include") == option


def test_ranks_on_cpu_slots_keep_what_the_user_lets_them_see() -> None:
    environment = launch("torchrun --nproc_per_node 2 train.py").environment({**BASE, "CUDA_VISIBLE_DEVICES": ""})
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert "CUDA_DEVICE_ORDER" not in environment
