"""The `simulation` section of a study: what it becomes, and each mistake with its message."""

import hashlib
import json
from pathlib import Path

import pytest
import yaml

from dsopt.errors import DsoptError
from dsopt.simulated import catalogue
from dsopt.simulated.described import described
from dsopt.study.load import load_spec
from dsopt.study.simulation import GPUS, MODELS, Simulation
from dsopt.study.spec import StudySpec

DRY = {"simulation": {"gpu": "H100-80GB", "model": "gpt2-xl"}}
COMMAND = "deepspeed --num_gpus 8 no-such-script.py --deepspeed_config ds.json"
REAL = COMMAND.replace("no-such-script.py", "ds.json")  # a file that is there


def load(folder: Path, **keys: object) -> StudySpec:
    keys = {"command": COMMAND, **DRY, **keys}
    (folder / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 4}')
    (folder / "study.yaml").write_text(yaml.safe_dump(keys))
    return load_spec(folder / "study.yaml")[0]


def test_the_names_a_study_may_give_are_those_the_simulated_cluster_knows() -> None:
    assert set(GPUS) == set(catalogue.DEVICES)
    assert set(MODELS) == set(catalogue.MODELS)


def test_a_dry_run_needs_no_script(tmp_path: Path) -> None:
    spec = load(tmp_path)
    assert spec.is_simulated
    assert spec.most_resources == (8, 1)


def test_the_old_form_with_a_launcher_is_read_and_means_the_same(tmp_path: Path) -> None:
    new, old = load(tmp_path), load(tmp_path, launcher="simulated")
    assert old == new
    assert old.digest == new.digest
    kept = json.loads(new.to_json())
    assert "launcher" not in kept
    content = {**kept, "launcher": "simulated"}  # as an earlier version kept it
    assert StudySpec.model_validate_json(json.dumps(content)).digest == new.digest
    assert new.digest == hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def test_gpus_and_nodes_are_the_commands_or_the_sections(tmp_path: Path) -> None:
    section = {**DRY["simulation"], "gpus": 8, "nodes": 4}
    bare = "deepspeed train.py --deepspeed_config ds.json"
    assert load(tmp_path, command=bare, simulation=section).most_resources == (8, 4)
    spec = load(tmp_path, simulation={**section, "gpus": 16}, autotuning={"num_nodes": [1, 2]})
    assert spec.resources.ranks == 8
    assert spec.most_resources == (8, 2)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"launcher": "simulated", "simulation": None}, "launcher: 'simulated' needs a section 'simulation'"),
        ({"launcher": "simulate"}, "launcher: 'simulate'. Expected 'simulated'. Did you mean 'simulated'?"),
        ({"simulation": {"gpu": "H100-80GB"}}, "key 'simulation.model' is missing"),
        ({"simulation": {**DRY["simulation"], "gpuz": 8}}, "unknown key 'simulation.gpuz'. Did you mean"),
        (
            {"simulation": {"gpu": "H100", "model": "gpt2"}},
            "simulation.gpu.name: 'H100'. Unknown name",
        ),
        (
            {"simulation": {"gpu": {"tflops": 300}, "model": "gpt2"}},
            "Expected a GPU's name such as H100-80GB, or memory",
        ),
        (
            {"simulation": {"gpu": "L4-24GB", "model": {"layer": 4}}},
            "unknown key 'simulation.model.layer'. Did you mean",
        ),
        (
            {"simulation": {"gpu": "L4-24GB", "model": {"layers": 4}}},
            "Expected a model's name such as gpt2-xl, or layers",
        ),
        ({"simulation": {**DRY["simulation"], "noise": 2}}, "simulation.noise: 2."),
        ({"simulation": {**DRY["simulation"], "gpus": 4}}, "simulation.gpus: 4, but a run asks for 8"),
        ({"command": "deepspeed train.py --deepspeed_config ds.json"}, "simulation.gpus: is missing"),
        ({"autotuning": {"mp_size": 2}}, "autotuning.mp_size: 2, but a dry run simulates data parallelism alone"),
    ],
)
def test_mistakes(tmp_path: Path, keys: dict, message: str) -> None:
    with pytest.raises(DsoptError) as caught:
        load(tmp_path, **keys)
    assert message in str(caught.value)


def test_a_cluster_by_its_numbers() -> None:
    section = Simulation.model_validate(
        {
            "gpu": {"memory": "64GiB", "tflops": 181, "memory_bandwidth": "1638GB"},
            "model": {"layers": 12, "hidden": 768, "trainable_params": 1_000_000, "checkpointing": True},
        }
    )
    scenario = described(section.model_dump(mode="json", exclude_none=True), gpus=4, nodes=2)
    assert scenario.cluster.ranks == 8
    assert scenario.cluster.device.memory_bytes == 64 * 2**30
    assert scenario.model.params == 12 * 12 * 768**2 + 50257 * 768
    assert scenario.model.trainable_params == 1_000_000
    assert scenario.model.is_checkpointing
