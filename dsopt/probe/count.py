"""Counts the parameters of the model that a Hugging Face config file describes, without weights or a download.

    python -m dsopt.probe.count config.json

It is a separate program because it imports torch. It prints one JSON object: the counts, or `{"error": …}` with exit
code 1.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class CountError(Exception):
    """The model of a config file cannot be counted. The message is for the user."""


def main() -> None:
    """Counts the model of the config file named in `sys.argv` and prints the result."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m dsopt.probe.count CONFIG_JSON")
    try:
        counted = count(Path(sys.argv[1]))
    except CountError as error:
        print(json.dumps({"error": str(error)}))  # noqa: T201 - its parent reads this
        raise SystemExit(1) from None
    print(json.dumps(counted))  # noqa: T201


def count(path: Path) -> dict[str, int | None]:
    """Counts of the base model of a config file, as `AutoModel` makes it: without the heads of a task.

    `largest_layer_params` is what DeepSpeed means by it: the most parameters that one module holds itself, without its
    children's (`estimate_zero3_model_states_mem_needs_all_live` in `deepspeed/runtime/zero/stage3.py`). Parameters that
    modules share count once in `num_params`. `hidden_size` and `num_layers` are None where the config has none.

    Raises:
        CountError: not a config file, a missing or unknown `model_type`, or a model that cannot be built.
    """
    content = _read(path)
    model_type = content.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        raise CountError(
            f"{path}: key 'model_type' is missing or not text. Expected a Hugging Face model config, "
            "whose 'model_type' names the model, such as 't5'."
        )
    config, model = _built(path, content, model_type)
    return {
        "num_params": sum(p.numel() for p in model.parameters()),
        "largest_layer_params": max(_own_params(model)),
        "hidden_size": _whole(config, "hidden_size"),
        "num_layers": _whole(config, "num_hidden_layers"),
    }


def _built(path: Path, content: dict[str, Any], model_type: str) -> tuple[Any, Any]:
    """The config and its base model, without memory for the weights."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # some configs name parts that would be fetched
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    try:
        import torch
        import transformers
    except ImportError as error:
        raise CountError(
            f"--hf-config needs the package '{error.name}', which is not installed. "
            "Install it ('pip install transformers'), or give --num-params and --largest-layer."
        ) from None
    if model_type not in transformers.CONFIG_MAPPING:
        raise CountError(
            f"{path}: transformers {transformers.__version__} does not know model_type '{model_type}'. "
            "Correct it, install a newer transformers, or give --num-params and --largest-layer."
        )
    if transformers.CONFIG_MAPPING[model_type] not in transformers.MODEL_MAPPING:
        raise CountError(
            f"{path}: transformers {transformers.__version__} has no base model for model_type '{model_type}'. "
            "Give --num-params and --largest-layer."
        )
    try:
        config = transformers.AutoConfig.for_model(**content)
        with torch.device("meta"):
            # neither code from elsewhere nor kernels that are not installed: both leave the counts as they are
            model = transformers.AutoModel.from_config(config, trust_remote_code=False, attn_implementation="eager")
        return config, model
    except Exception as error:  # whatever a model's own code raises at values that make no sense
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300].rstrip(".")
        raise CountError(
            f"{path}: transformers cannot build this '{model_type}': {reason}. "
            "Correct the file, or give --num-params and --largest-layer."
        ) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CountError(f"{path}: cannot be read as JSON: {error}.") from None
    if not isinstance(content, dict):
        raise CountError(f"{path}: is not a JSON object. Expected a Hugging Face model config.")
    return content


def _whole(config: Any, key: str) -> int | None:  # noqa: ANN401 - a config of transformers
    """A whole number from the config's text part; some kinds of model have a list there, or nothing."""
    value = getattr(config.get_text_config(), key, None)
    return value if isinstance(value, int) else None


def _own_params(model: Any) -> Iterator[int]:  # noqa: ANN401 - a torch module
    for module in model.modules():
        yield sum(p.numel() for p in module.parameters(recurse=False))


if __name__ == "__main__":
    main()
