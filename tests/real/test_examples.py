"""The documents' command lines, verbatim, with real runs of the Hugging Face Trainer: a tiny model on the CPU."""

import json
import shutil
from typing import Any

import pytest
import yaml

from tests.conftest import SCRIPTS, Dsopt
from tests.worker.test_examples import DEBERTA, GPT2_LARGE, SNIPPETS, VARIABLES

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("real")]  # one at a time: they use all cores

SHORT = {
    "measurement": {"max_steps": 15, "max_seconds": 4, "race": False},
    "confirmation": {"finalists": 1, "rounds": 1},
    "timeout_seconds": 240,
}


def run_example(
    dsopt: Dsopt, script: str, command: str, ds_config: dict[str, Any], *, ranks: int, **autotuning: object
) -> str:
    """Tunes an example on CPU ranks; gives what creating the study said."""
    dsopt.environment |= {**VARIABLES, "HF_PATH": "hf", "NGPUS": str(ranks), "OUTPUT_DIR": "out", "output_dir": "out"}
    path = dsopt.cwd / "hf" / "transformers" / "examples" / "pytorch" / script
    path.parent.mkdir(parents=True)
    shutil.copy(SCRIPTS / "example.py", path)
    (dsopt.cwd / "ds_config.json").write_text(json.dumps(ds_config))
    (dsopt.cwd / "study.yaml").write_text(yaml.safe_dump({"command": command, "autotuning": autotuning, **SHORT}))
    said = dsopt("study", "create", "study.yaml", "--name", "example")
    dsopt("worker", "example", "--devices", f"cpu:{ranks}")
    return said


def states(dsopt: Dsopt) -> dict[str, str]:
    return {run["candidate"]: run["state"] for run in dsopt.json("study", "show", "example")["runs"]}


def test_the_readmes_deberta_trains_with_the_configurations_size(dsopt: Dsopt) -> None:
    """Its flag says 4 and its configuration 8, which the Trainer refuses as typed.

    The CPU has no optimizer of DeepSpeed's own, so that it is torch's, and nothing is offloaded.
    """
    ds_config = json.loads((SNIPPETS / "readme-02-deberta-example.json").read_text())
    ds_config["optimizer"]["params"]["torch_adam"] = True
    del ds_config["zero_optimization"]["cpu_offload"]
    said = run_example(
        dsopt, "text-classification/run_glue.py", DEBERTA, ds_config, ranks=2, num_gpus=2, max_train_batch_size=16
    )
    assert said.count("--per_device_train_batch_size 4 contradicts train_micro_batch_size_per_gpu 8") == 1
    assert states(dsopt) == {"baseline": "measured"}
    results = dsopt.cwd / "autotuning_results"
    measured = json.loads((results / "baseline" / "metrics.json").read_text())
    assert (measured["engine"]["micro_batch"], measured["rows"]) == (8, 8)
    assert "--per_device_train_batch_size 8" in (results / "cmd_optimal.txt").read_text()


def test_the_tutorials_gpt2_large_is_tuned(dsopt: Dsopt) -> None:
    dsopt.environment |= {"MODEL_NAME": "gpt2-large", "PER_DEVICE_TRAIN_BATCH_SIZE": "1"}
    ds_config = {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "zero_optimization": {"stage": 1},
    }
    sizes = {"max_train_micro_batch_size_per_gpu": 8, "tuner_num_trials": 1, "max_train_batch_size": 16}
    run_example(dsopt, "language-modeling/run_clm.py", GPT2_LARGE, ds_config, ranks=1, **sizes)
    found = states(dsopt)
    assert found.pop("baseline") == "measured"
    assert set(found.values()) == {"measured"}, found
    measured = json.loads((dsopt.cwd / "autotuning_results" / "baseline" / "metrics.json").read_text())
    assert (measured["engine"]["micro_batch"], measured["engine"]["gas"], measured["rows"]) == (1, 1, 1)
