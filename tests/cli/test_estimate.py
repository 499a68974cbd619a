"""`dsopt estimate` as it is typed: from counts, from a Hugging Face config, and its mistakes."""

import json
from pathlib import Path

import pytest

from tests.api.dry import dry_run
from tests.conftest import Dsopt
from tests.estimates.test_table import PUBLISHED, T0_3B_CONFIG, zero3_table

FILES = {
    "broken.json": '{"model_type": "t5",\n "d_model": }',
    "list.json": "[1]",
    "no_type.json": '{"d_model": 2048}',
    "number_type.json": '{"model_type": 5}',
    "unknown_type.json": '{"model_type": "t6"}',
    "headless.json": '{"model_type": "encoder-decoder"}',
    "odd.json": '{"model_type": "gpt2", "n_embd": 7}',
    "small.json": '{"model_type": "gpt2", "n_embd": 12, "n_layer": 1}',
}


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        ("", 2, "exactly one of --num-params, --hf-config, --study; got none of them"),
        ("--num-params 1B --largest-layer 1M --hf-config small.json", 2, "got --num-params and --hf-config"),
        ("--num-params 1B", 2, "--num-params: also give --largest-layer"),
        ("--hf-config small.json --largest-layer 1M", 2, "--largest-layer needs --num-params"),
        ("--largest-layer 1M", 2, "got none of them"),
        ("--num-params 1B --largest-layer 1M --num-gpus 0", 2, "'--num-gpus': 0 is not in the range"),
        ("--num-params 1B --largest-layer 1M --num-gpus two", 2, "'--num-gpus': 'two' is not a valid integer range"),
        ("--num-params 1B --largest-layer 1M --num-nodes -1", 2, "'--num-nodes': -1 is not in the range"),
        ("--num-params 1B --largest-layer 1M --dtype int8", 2, "'int8' is not one of 'fp16', 'bf16', 'fp32'"),
        (
            "--num-params 12X --largest-layer 1M",
            1,
            "--num-params: '12X' is not a valid parameter count. Expected a whole",
        ),
        ("--num-params -5 --largest-layer 1M", 1, "--num-params: '-5' is not a valid parameter count"),
        ("--num-params 1B --largest-layer 0", 1, "--largest-layer: '0' is not a valid parameter count"),
        ("--num-params 1e999 --largest-layer 1", 1, "--num-params: '1e999' is not a valid parameter count"),
        ("--num-params 1M --largest-layer 2M", 1, "--largest-layer: 2,000,000 is more than the model's 1,000,000"),
        ("--num-params 1M --largest-layer 1M --trainable-params 1B", 1, "--trainable-params: 1,000,000,000 is more"),
        ("--hf-config small.json --trainable-params 1B", 1, "--trainable-params: 1,000,000,000 is more than"),
        ("--hf-config missing.json", 1, "missing.json: no such file. Expected the Hugging Face model config"),
        ("--hf-config .", 1, ".: is a folder. Expected the Hugging Face model config"),
        ("--hf-config broken.json", 1, "broken.json: line 2, column 13: invalid JSON"),
        ("--hf-config list.json", 1, "list.json: contains a list. Expected a JSON object"),
        ("--hf-config no_type.json", 1, "no_type.json: key 'model_type' is missing or not text"),
        ("--hf-config number_type.json", 1, "number_type.json: key 'model_type' is missing or not text"),
        ("--hf-config unknown_type.json", 1, "does not know model_type 't6'"),
        ("--hf-config headless.json", 1, "has no base model for model_type 'encoder-decoder'"),
        ("--hf-config odd.json", 1, "odd.json: transformers cannot build this 'gpt2': ValueError: `embed_dim` must be"),
    ],
)
def test_mistakes(dsopt: Dsopt, args: str, code: int, message: str) -> None:
    for name, content in FILES.items():
        (dsopt.cwd / name).write_text(content)
    output = dsopt("estimate", *args.split(), code=code)
    assert message in output
    assert "Traceback" not in output


def test_a_study_whose_runs_have_shown_no_model_is_told_what_to_do(dsopt: Dsopt) -> None:
    (dsopt.cwd / "dry.yaml").write_text(json.dumps(dry_run(dsopt.cwd)))
    dsopt("study", "create", "dry.yaml")
    told = "no run of 'dry' has shown its model yet. "
    assert f"{told}Run it first: dsopt worker dry" in dsopt("estimate", "--study", "dry", code=1)
    dsopt("study", "stop", "dry")
    assert f"{told}Resume it first: dsopt study resume dry" in dsopt("estimate", "--study", "dry", code=1)


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [1, 2])
def test_a_config_gives_the_published_tables(dsopt: Dsopt, gpus: int) -> None:
    (dsopt.cwd / "config.json").write_text(json.dumps(T0_3B_CONFIG))
    assert zero3_table(dsopt("estimate", "--hf-config", "config.json", "--num-gpus", str(gpus))) == PUBLISHED[gpus]


def test_counts_give_tables_and_data(dsopt: Dsopt) -> None:
    args = ["estimate", "--num-params", "2783M", "--largest-layer", "65M", "--num-gpus", "2", "--num-nodes", "1"]
    text = dsopt(*args)
    assert "SW: Model with 2783M total params, 65M largest layer params." in text
    assert "What fits" in text
    assert "Activations come on top" in text
    data = dsopt.json(*args, "--trainable-params", "10M", "--dtype", "bf16")
    assert data["model"] == {
        "num_params": 2_783_000_000, "trainable_params": 10_000_000, "largest_layer_params": 65_000_000,
        "dtype": "bf16",
    }  # fmt: skip
    assert (data["gpus_per_node"], data["nodes"]) == (2, 1)
    assert [row["zero_stage"] for row in data["states"]] == [3] * 6 + [2] * 2 + [1, 1, 0]
    assert data["states"][-1]["device_bytes"] == 2 * 2_783_000_000 + 14 * 10_000_000
    assert len(data["fits"]) == 12
    assert data["fits"][0]["option"] == "ZeRO 0"


def test_a_missing_transformers_is_named(dsopt: Dsopt, tmp_path: Path) -> None:
    """A machine without it: a module in front of the installed one that cannot be imported."""
    (tmp_path / "front").mkdir()
    (tmp_path / "front" / "transformers.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'transformers'\", name='transformers')"
    )
    (dsopt.cwd / "config.json").write_text(json.dumps(T0_3B_CONFIG))
    dsopt.environment["PYTHONPATH"] = f"{tmp_path / 'front'}:{dsopt.environment.get('PYTHONPATH', '')}"
    output = dsopt("estimate", "--hf-config", "config.json", code=1)
    assert "--hf-config needs the package 'transformers', which is not installed. Install it" in output
