"""What the hour with a GPU carries to a machine without a network, where nothing may be missing."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks.gpu import facts

HERE = Path(__file__).parent.parent.parent
ITS_MACHINE_HAS = ("torch", "transformers", "scipy", "pyarrow", "numpy", "PyYAML", "packaging", "setuptools")
IT_RUNS = ("dsopt", "deepspeed", "accelerate", "pytest", "pytest-xdist")
BUILT = ("dsopt", "deepspeed")
INSTEAD = {"xgboost": "xgboost-cpu"}  # the same module without what runs it on a GPU
# of packages that are there in versions that those that are carried accept
ENVIRONMENT = {**default_environment(), "python_version": "3.12", "python_full_version": "3.12.9", "extra": ""}


def carried() -> set[str]:
    lines = (HERE / "benchmarks" / "gpu-wheels.txt").read_text().splitlines()
    return {canonicalize_name(line) for line in lines if not line.startswith("#")} | set(BUILT)


def closure(names: Iterable[str]) -> set[str]:
    """These packages with all that they need, as they are installed here."""
    found, left = set[str](), [canonicalize_name(name) for name in names]
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        if name in INSTEAD.values():
            continue
        needs = map(Requirement, metadata.requires(name) or ())
        of_it = [n.name for n in needs if n.marker is None or n.marker.evaluate(ENVIRONMENT)]
        left += [canonicalize_name(INSTEAD.get(canonicalize_name(need), need)) for need in of_it]
    return found


def test_what_the_hour_runs_is_carried_or_there() -> None:
    assert closure(IT_RUNS) - carried() - closure(ITS_MACHINE_HAS) == set()


def test_all_that_is_carried_has_a_version() -> None:
    pinned = {
        canonicalize_name(name) for name in re.findall(r"^([\w.-]+)==", (HERE / "constraints.txt").read_text(), re.M)
    }
    assert carried() - {"dsopt"} <= pinned
    assert "-c constraints.txt" in (HERE / "Makefile").read_text().partition("wheels-gpu: ")[2]


PROGRAM = """
import importlib.metadata, json, sys
allowed = set(json.loads(sys.argv[1]))
class Lacking:
    names = {module for module, of in importlib.metadata.packages_distributions().items()
             if not {name.lower().replace("_", "-").replace(".", "-") for name in of} & allowed}
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in self.names else self.finder.find_spec(name, path, target)
sys.meta_path[:] = map(Lacking, sys.meta_path)
import benchmarks.gpu.__main__, benchmarks.record, tests.real.test_gpu, tests.real.test_gpu_faults
import dsopt.cli.worker, dsopt.api.workers, dsopt.optuna.trees, dsopt.launch.gpus
import pynvml, xgboost, xdist, accelerate, deepspeed
"""


def test_its_programs_can_be_imported_where_there_is_nothing_else() -> None:
    allowed = {*carried(), *closure(ITS_MACHINE_HAS), *INSTEAD}
    command = [sys.executable, "-c", PROGRAM, json.dumps(sorted(allowed))]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lacks_one = [*command[:-1], json.dumps(sorted(allowed - {"nvidia-ml-py"}))]
    done = subprocess.run(lacks_one, cwd=HERE, capture_output=True, text=True, check=False)
    assert "No module named 'pynvml'" in done.stderr


def test_facts_are_kept_one_by_one_though_some_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ModuleNotFoundError("No module named 'pynvml'")

    import torch  # which takes longer than this test gives the facts

    monkeypatch.setattr(facts, "installed_gpus", missing)
    monkeypatch.setattr(facts, "_LIBRARIES", ("hjson", "deepspeed", "not_installed"))
    monkeypatch.setattr(facts, "_LOOK", "import time; time.sleep(600)")
    began = time.monotonic()
    facts.write(tmp_path, seconds=3.0)
    assert time.monotonic() - began < 30
    found = json.loads((tmp_path / "facts.json").read_text())
    assert "pynvml" in found["gpus"]["error"]
    assert found["torch"]["version"] == torch.__version__
    assert "TimeoutExpired" in found["imports"]["hjson"]["failed"]
    assert found["imports"]["deepspeed"]["failed"] == "no time was left"
    assert "not_installed" not in found["imports"]
