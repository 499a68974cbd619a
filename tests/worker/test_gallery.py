"""The gallery `studies/`: what each folder has, and the dry runs of the large models."""

import re
from pathlib import Path

import pytest
import yaml

from dsopt.study.load import load_spec
from tests.conftest import STUDIES, Dsopt
from tests.gallery import DRY_RUNS, FOLDERS, copy_gallery

A_SCREEN = 60  # lines


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_has_a_readme_of_one_screen_with_its_commands(folder: str) -> None:
    readme = (STUDIES / folder / "README.md").read_text("utf-8")
    assert len(readme.splitlines()) <= A_SCREEN
    for kind in ("study", "dry-run"):
        path = STUDIES / folder / f"{kind}.yaml"
        if path.exists():
            spec, _ = load_spec(path)
            assert f"dsopt study create studies/{folder}/{kind}.yaml && dsopt worker {spec.name}\n" in readme
            assert spec.is_simulated == (kind == "dry-run")
    assert f"({folder}/README.md)" in (STUDIES / "README.md").read_text("utf-8")


def test_the_index_names_no_folder_that_is_not_there() -> None:
    index = (STUDIES / "README.md").read_text("utf-8")
    assert len(index.splitlines()) <= A_SCREEN
    assert all((STUDIES / link).is_file() for link in re.findall(r"\]\(([^)#:]+)\)", index))


@pytest.mark.parametrize("folder", ["gpt-1b", "llama-8b"])
def test_a_dry_run_is_of_the_study_beside_it(folder: str) -> None:
    real, dry = (yaml.safe_load((STUDIES / folder / f"{kind}.yaml").read_text()) for kind in ("study", "dry-run"))
    assert {key for key in real | dry if real.get(key) != dry.get(key)} == {"name", "simulation"}


@pytest.mark.parametrize(
    "folder", [folder if "/" not in folder else pytest.param(folder, marks=pytest.mark.slow) for folder in DRY_RUNS]
)
def test_a_dry_run_finds_what_is_faster(dsopt: Dsopt, folder: str) -> None:
    copy_gallery(dsopt)
    study = f"studies/{folder}/dry-run.yaml"
    name = yaml.safe_load((dsopt.cwd / study).read_text())["name"]
    dsopt("study", "create", study)
    output = dsopt("worker", name, "--devices", "cpu:1")
    assert "A dry run: " in output and "Traceback" not in output
    speedup = dsopt.json("study", "best", name)["comparison"]["speedup"]
    assert speedup > 1
    told = re.findall(r"([\d.]+) times as fast", (STUDIES / folder / "README.md").read_text("utf-8"))
    assert [float(factor) for factor in told] == [pytest.approx(speedup, abs=0.1)]


def test_a_dry_run_goes_the_same_way_each_time(tmp_path: Path) -> None:
    """How long a run goes on follows from what its steps and its start stand for, and from no clock."""
    went = []
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        dsopt = Dsopt(tmp_path / str(number), f"sqlite:///{tmp_path / str(number)}/dsopt.db")
        copy_gallery(dsopt)
        dsopt("study", "create", "studies/llama-8b/dry-run.yaml")
        dsopt("worker", "llama-3-8b", "--devices", "cpu:1")
        runs = dsopt.json("study", "show", "llama-3-8b")["runs"]
        went.append([(run["candidate"], run["state"], run["metric"]) for run in runs])
    assert went[0] == went[1]
