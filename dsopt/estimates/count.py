"""Counts the parameters of a Hugging Face config in a separate process, because counting needs torch."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dsopt.errors import DsoptError
from dsopt.study.documents import read_json
from dsopt.study.own_programs import own_environment, own_program

_TIMEOUT_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCount:
    """What a model's config says about its size; see `dsopt.probe.count`."""

    num_params: int
    largest_layer_params: int
    hidden_size: int | None
    num_layers: int | None


def count_params(config: Path) -> ModelCount:
    """Counts the base model of a Hugging Face config file. It takes some seconds, nearly all of them for imports.

    Raises:
        DsoptError: the file is not a JSON object, its model cannot be built, or transformers is not installed.
    """
    read_json(config, "Hugging Face model config (config.json)")  # reports mistakes with line and column
    try:
        done = subprocess.run(
            own_program("dsopt.probe.count", str(config)),
            env=own_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        raise DsoptError(
            f"{config}: counting its model took more than {_TIMEOUT_SECONDS:g} seconds. "
            "Give --num-params and --largest-layer instead."
        ) from None
    lines = done.stdout.splitlines()
    answer = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else None
    if answer is None:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise DsoptError(
            f"{config}: counting its model ended with exit code {done.returncode}: {last}. "
            "Give --num-params and --largest-layer instead."
        )
    if "error" in answer:
        raise DsoptError(answer["error"])
    return ModelCount(**answer)
