"""The documents' examples as their readers would run them: command lines and configurations verbatim, as dry runs.

`tests/snippets` has their configurations. Of BERT-base and DistilBERT the documents tell only what they run on: fp32 on
one node with 16 V100, at most 4,096 samples a batch. They are written here as the tutorial writes its own example.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import Dsopt

SNIPPETS = Path(__file__).parent.parent / "snippets"
MBS, GAS = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"

DEBERTA = r"""
deepspeed --autotuning tune $HF_PATH/transformers/examples/pytorch/text-classification/run_glue.py --deepspeed_config ds_config.json \
  --model_name_or_path microsoft/deberta-v2-xxlarge \
  --task_name ${TASK_NAME} \
  --do_train \
  --do_eval \
  --max_seq_length 256 \
  --per_device_train_batch_size ${batch_size} \
  --learning_rate 13e-6 \
  --num_train_epochs 3\
  --output_dir ${output_dir} \
  --overwrite_output_dir \
  --logging_dir ${output_dir} \
  --save_steps 0
"""  # noqa: E501
GPT2_LARGE = r"""
deepspeed --autotuning run --num_nodes=$NNODES --num_gpus=$NGPUS $HF_PATH/transformers/examples/pytorch/language-modeling/run_clm.py --deepspeed $DS_CONFIG_PATH \
--model_name_or_path $MODEL_NAME \
--dataset_name wikitext \
--dataset_config_name wikitext-2-raw-v1 \
--do_train \
--do_eval \
--fp16 \
--per_device_train_batch_size $PER_DEVICE_TRAIN_BATCH_SIZE \
--learning_rate 2e-5 \
--num_train_epochs $NEPOCHS \
--output_dir ${OUTPUT_DIR} \
--overwrite_output_dir
"""  # noqa: E501
GLUE = r"""
deepspeed --autotuning run --num_nodes=$NNODES --num_gpus=$NGPUS $HF_PATH/transformers/examples/pytorch/text-classification/run_glue.py --deepspeed $DS_CONFIG_PATH \
--model_name_or_path $MODEL_NAME \
--task_name $TASK_NAME \
--do_train \
--do_eval \
--max_seq_length 128 \
--per_device_train_batch_size $PER_DEVICE_TRAIN_BATCH_SIZE \
--learning_rate 2e-5 \
--num_train_epochs $NEPOCHS \
--output_dir ${OUTPUT_DIR} \
--overwrite_output_dir
"""  # noqa: E501
VARIABLES = {
    "HF_PATH": "/home/me/projects", "DS_CONFIG_PATH": "ds_config.json", "NNODES": "1", "NGPUS": "16", "NEPOCHS": "1",
    "OUTPUT_DIR": "./output", "TASK_NAME": "mrpc", "batch_size": "4", "output_dir": "/tmp/mrpc_out",
}  # fmt: skip


def run_example(
    dsopt: Dsopt, command: str, snippet: str, model: str, autotuning: Mapping[str, Any], **variables: str
) -> tuple[str, dict[str, Any], dict[str, Any], str]:
    """Creates and works on the study of an example.

    Returns:
        What creating it said, the baseline's engine, the best configuration and its command.
    """
    dsopt.environment |= VARIABLES | variables
    (dsopt.cwd / "ds_config.json").write_text((SNIPPETS / f"{snippet}.json").read_text())
    study = {
        "name": "example",
        "command": command,
        "simulation": {"gpu": "V100-32GB", "model": model, "gpus": 16},
        "autotuning": dict(autotuning),
        "confirmation": {"finalists": 1, "rounds": 1},
    }
    (dsopt.cwd / "study.yaml").write_text(yaml.safe_dump(study))
    said = dsopt("study", "create", "study.yaml")
    dsopt("worker", "example", "--devices", "cpu:1")
    results = dsopt.cwd / "autotuning_results"
    summary = (results / "summary.txt").read_text()
    assert "Traceback" not in summary and "does not run" not in summary
    engine = json.loads((results / "baseline" / "metrics.json").read_text())["engine"]
    best = json.loads((results / "ds_config_optimal.json").read_text())
    return said, engine, best, (results / "cmd_optimal.txt").read_text()


def test_the_readmes_deberta(dsopt: Dsopt) -> None:
    """The configuration's list goes before the flag, and accumulation is "auto" without one."""
    said, engine, best, command = run_example(dsopt, DEBERTA, "readme-02-deberta-example", "deberta-v2-xxlarge", {})
    assert said.count("--per_device_train_batch_size 4 contradicts train_micro_batch_size_per_gpu 8") == 1
    assert (engine["micro_batch"], engine["gas"], engine["world_size"], engine["dtype"]) == (8, 1, 2, "fp32")
    assert best[MBS] == 8
    assert "--per_device_train_batch_size 8" in command
    assert "--num_gpus 2" in command or "--num_gpus 4" in command


def test_the_tutorials_gpt2_large(dsopt: Dsopt) -> None:
    _, engine, best, command = run_example(
        dsopt, GPT2_LARGE, "tutorial-19-gpt2-large-example", "gpt2-large", {},
        MODEL_NAME="gpt2-large", PER_DEVICE_TRAIN_BATCH_SIZE="1",
    )  # fmt: skip
    assert (engine["micro_batch"], engine["gas"], engine["world_size"], engine["dtype"]) == (1, 1, 16, "fp16")
    assert best[MBS] > 1  # published: 3
    assert f"--per_device_train_batch_size {best[MBS]} " in command
    assert f"--gradient_accumulation_steps {best[GAS]}\n" in command


@pytest.mark.parametrize(
    ("model", "name", "size"), [("bert-base", "bert-base-cased", 128), ("distilbert", "distilbert-base-uncased", 256)]
)
def test_the_tutorials_bert_base_and_distilbert(dsopt: Dsopt, model: str, name: str, size: int) -> None:
    """Hand-tuned are 128 and 256 samples on each GPU, at ZeRO 0; 256 is the most, and may stay as it is ("auto")."""
    _, engine, best, _ = run_example(
        dsopt, GLUE, "tutorial-19-gpt2-large-example", model, {"max_train_batch_size": 4096},
        MODEL_NAME=name, PER_DEVICE_TRAIN_BATCH_SIZE=str(size),
    )  # fmt: skip
    assert (engine["micro_batch"], engine["zero_stage"], engine["dtype"]) == (size, 0, "fp32")
    assert best[MBS] == "auto" or size <= best[MBS] * best[GAS] <= 256
