"""What other packages add by entry points: the examples of docs/extending.md, installed and tuned with."""

import re
import sys
from pathlib import Path

import pytest

from dsopt.study.launchers.launcher import Launcher
from tests.conftest import SCRIPTS, Dsopt
from tests.studies import write_study

DOCUMENT = Path(__file__).parents[2] / "docs" / "extending.md"


@pytest.fixture
def installed(dsopt: Dsopt) -> Dsopt:
    """The command where a package is installed that has the document's launcher, placer and tuner."""
    text = DOCUMENT.read_text()
    site = dsopt.cwd / "site-packages"
    about = site / "my_package-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, re.DOTALL):
        (site / name).write_text(code)
    entries = re.findall(r'entry-points."([\w.]+)"\]\n(\w+) = "(.*?)"', text)
    assert len(entries) == 3
    (about / "entry_points.txt").write_text("".join(f"[{group}]\n{name} = {where}\n" for group, name, where in entries))
    dsopt.environment["PYTHONPATH"] = f"{site}:{dsopt.environment.get('PYTHONPATH', '')}"
    program = dsopt.cwd / "mylaunch"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {SCRIPTS / "deepspeed"} --num_gpus "$2" "$@"\n')
    program.chmod(0o755)
    return dsopt


def test_a_launcher_and_a_tuner_of_another_package_tune_a_study(installed: Dsopt) -> None:
    write_study(
        installed.cwd,
        command="./mylaunch --workers 2 train.py --deepspeed_config ds.json",
        ds_config={"train_micro_batch_size_per_gpu": [2, 4, 8], "zero_optimization": {"stage": [1]}},
        autotuning={"tuner_type": "largest_first"},
    )
    installed("study", "create", "study.yaml")
    installed("worker", "simulated", "--devices", "cpu:2")
    runs = installed.json("study", "show", "simulated")["runs"]
    assert next(run["candidate"] for run in runs if run["stage"] == "z1") == "z1_gas1_tmbspg8"
    command = (installed.cwd / "autotuning_results" / "baseline" / "cmd.txt").read_text()
    assert re.search(r"mylaunch --workers 2 --port \d+ --module dsopt\.probe train\.py", command)


def test_a_placer_of_another_package_gives_a_study_its_nodes(installed: Dsopt) -> None:
    program = installed.cwd / "myexec"
    program.write_text('#!/bin/sh\nshift 4\nexec "$@"\n')
    program.chmod(0o755)
    installed.environment["PATH"] = f"{installed.cwd}:{installed.environment['PATH']}"
    write_study(
        installed.cwd,
        command=f"deepspeed --num_nodes 2 --num_gpus 1 {SCRIPTS / 'pretends.py'} --deepspeed_config ds.json",
        ds_config={"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}},
    )
    installed("study", "create", "study.yaml")
    output = installed("worker", "simulated", "--placer", "mine:a,b")
    assert "Working with 4 devices of 2 nodes (my engine)." in output
    command = (installed.cwd / "autotuning_results" / "baseline" / "cmd.txt").read_text()
    assert command.startswith("# on a: 0, b: 0\n")
    refused = installed("worker", "simulated", "--placer", "yours", code=1)
    assert "error: --placer yours: no such placer. Expected one of hostfile, ray, slurm, mine." in refused


def test_what_they_refuse_and_what_is_not_there_is_said(installed: Dsopt) -> None:
    command = "./mylaunch --queue debug train.py --deepspeed_config ds.json"
    write_study(installed.cwd, command=command, autotuning={"tuner_type": "largest"})
    output = installed("study", "create", "study.yaml", code=1)
    assert "command: --queue debug ends after a minute. Choose another queue." in output
    assert "tuner_type: 'largest'. Expected 'largest_first', 'model_based'" in output
    (installed.cwd / "site-packages" / "my_launcher.py").write_text("import nothing_of_that_name")
    output = installed("study", "create", "study.yaml", code=1)
    assert "entry point 'mylaunch' of dsopt.launchers: my_launcher:MYLAUNCH cannot be imported" in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return []", "the tuner chose none of "),
        ("return choice.nothing", "the tuner raised AttributeError: "),
    ],
)
def test_a_tuner_that_does_not_work_is_named(installed: Dsopt, body: str, message: str) -> None:
    (installed.cwd / "site-packages" / "my_tuner.py").write_text(f"def largest_first(choice):\n    {body}\n")
    ds_config = {"train_micro_batch_size_per_gpu": [2, 4, 8], "zero_optimization": {"stage": [1]}}
    write_study(installed.cwd, ds_config=ds_config, autotuning={"tuner_type": "Largest_First"})
    installed("study", "create", "study.yaml")
    output = installed("worker", "simulated", "--devices", "cpu:2", code=1)
    assert f"tuner_type: {message}" in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"ranks": ()}, "has no ranks"), ({"valued": frozenset(["--bind-to"])}, "write --bind-to with underscores")],
)
def test_a_launcher_that_cannot_work_is_refused_when_it_is_made(changes: dict, message: str) -> None:
    fields = {
        "name": "mine", "programs": (("mine",),), "flags": frozenset(["-m"]), "valued": frozenset(["-n", "-np"]),
        "module": ("-m",), "ranks": ("-np",), "nodes": ("-n",), "port": "--port",
    }  # fmt: skip
    options = Launcher(**fields).options(["-np", "2", "-n3", "t.py"], "test")
    assert (options.value("-np"), options.value("-n")) == ("2", "3")
    with pytest.raises(ValueError, match=message):
        Launcher(**{**fields, **changes})
