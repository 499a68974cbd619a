"""A configuration file that somebody edits after its study was created: the study keeps its own, and says so."""

import json
from pathlib import Path

import pytest

from dsopt.api.results import save_config
from dsopt.errors import DsoptError
from dsopt.report.files import check_given
from dsopt.study.folders import OPTIMAL, results_folder
from dsopt.study.load import load_spec
from tests.conftest import Dsopt
from tests.studies import write_study

SAID = (
    "ds.json is not what study 'simulated' measures: gradient_clipping, train_micro_batch_size_per_gpu differ. "
    "The study keeps the configuration that it was created with"
)


@pytest.mark.slow
def test_the_worker_and_each_result_say_so(dsopt: Dsopt) -> None:
    """The optimum undid the edit, and was so many times as fast as what the file no longer had."""
    write_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    (dsopt.cwd / "ds.json").write_text(json.dumps({"train_micro_batch_size_per_gpu": 32, "gradient_clipping": 1.0}))
    said = dsopt("worker", "simulated", "--devices", "cpu:2")
    assert f"warning: {SAID}" in " ".join(said.split())
    assert f"WARNING: {SAID}" in " ".join(dsopt("study", "show", "simulated", "--why").split())
    assert SAID in json.dumps(dsopt.json("study", "best", "simulated"))
    (dsopt.cwd / "autotuning_results" / "ds_config_optimal.json").rename(dsopt.cwd / "ds.json")
    dsopt("study", "best", "simulated")  # writes it again
    assert SAID[:20] not in dsopt("study", "show", "simulated", "--why")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "what"), [("ds.json", "configuration"), ("train.py", "script")])
def test_the_best_configuration_takes_the_place_of_nothing_that_the_study_is_of(
    dsopt: Dsopt, name: str, what: str
) -> None:
    write_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    dsopt("worker", "simulated", "--devices", "cpu:2")
    before = (dsopt.cwd / name).read_bytes()
    said = dsopt("study", "best", "simulated", "-o", name, "--force", code=1)
    assert f"{name} is your own {what}, which dsopt never changes. Name another file." in said
    assert (dsopt.cwd / name).read_bytes() == before


def test_a_file_that_only_accelerates_own_configuration_names_is_the_users_too(tmp_path: Path) -> None:
    """The best configuration took its place, and creating the study again moved it aside."""
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 4}')
    (tmp_path / "t.py").touch()
    accelerate = tmp_path / "accelerate.yaml"
    accelerate.write_text("distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: ds.json}\n")
    (tmp_path / "study.yaml").write_text("name: s\ncommand: accelerate launch --config_file accelerate.yaml t.py\n")
    spec, _ = load_spec(tmp_path / "study.yaml")
    with pytest.raises(DsoptError, match="is your own configuration, which dsopt never changes"):
        save_config(spec, tmp_path / "ds.json", {}, force=True)
    best = results_folder(spec) / OPTIMAL
    best.write_text("{}")
    accelerate.write_text(accelerate.read_text().replace("ds.json", str(best)))
    with pytest.raises(DsoptError, match="is the result of an earlier study 's', which a new one moves aside"):
        check_given(spec)
