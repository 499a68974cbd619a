"""Memory for a model's states under each ZeRO stage, and what fits, before anything runs."""

import os
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import cast

from dsopt.errors import DsoptError
from dsopt.estimates.count import count_params
from dsopt.estimates.live_model import estimate_model
from dsopt.estimates.table import Estimate, estimate_memory
from dsopt.estimates.zero_memory import Dtype, ModelSize
from dsopt.search.facts import ModelFacts

_MULTIPLES = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_MOST_PARAMS = 10**16


def estimate(
    model: object = None,
    *,
    num_params: int | str | None = None,
    largest_layer: int | str | None = None,
    hf_config: str | os.PathLike[str] | None = None,
    study: str | None = None,
    trainable_params: int | str | None = None,
    num_gpus: int | None = None,
    num_nodes: int = 1,
    dtype: Dtype | None = None,
    storage: str | None = None,
) -> Estimate:
    """Estimates the memory that a model's states need under each ZeRO stage, as `dsopt estimate` does.

        print(dsopt.estimate(num_params="2.8B", largest_layer="65M", num_gpus=8))

    The result prints DeepSpeed's tables (ZeRO 2 and 3), the ZeRO paper's (ZeRO 0 and 1), and what fits on common GPUs.

    Args:
        model: a `torch.nn.Module`; frozen parameters count as such in the paper's figures.
        num_params: instead of a model, its parameters: a number, or a text such as "2783M" or "2.8B".
        largest_layer: parameters of its largest layer; needed with `num_params`.
        hf_config: instead of a model, its Hugging Face `config.json`.
        study, storage: instead of a model, the name of a study whose baseline has run, and where it is.
        trainable_params: trainable parameters; None: all. A live model shows them itself.
        num_gpus, num_nodes: GPUs per node, and nodes; None: 1, or the study's GPUs.
        dtype: of the training: fp16 or bf16 (mixed precision), or fp32; None: fp16, or the study's.

    Raises:
        TypeError: `model` is not a module, or not exactly one of model, counts, config and study is given.
        ValueError: the module has no parameters, or another argument is not valid.
        DsoptError: counts, config or study cannot be used.
    """
    sources = sum(source is not None for source in (model, num_params, hf_config, study))
    if sources != 1 or (num_params is None) != (largest_layer is None):
        raise _sources_error()
    if model is not None:
        gpus = 1 if num_gpus is None else num_gpus
        return estimate_model(model, num_gpus=gpus, num_nodes=num_nodes, dtype=dtype or "fp16")
    trainable = None if trainable_params is None else parse_count("--trainable-params", trainable_params)
    if study is not None:
        known = _known_of(study, storage)
        num_gpus, dtype = num_gpus or known.world_size, dtype or cast(Dtype, known.dtype)
        total, largest, trainable = known.num_params, known.largest_layer_params, trainable or known.trainable_params
    else:
        total, largest = _counts(num_params, largest_layer, hf_config)
    size = make_model_size(total, largest, trainable or total, dtype or "fp16")
    return estimate_memory(size, gpus_per_node=num_gpus or 1, nodes=num_nodes)


def _sources_error() -> TypeError:
    return TypeError(
        "estimate takes exactly one of: a torch.nn.Module, num_params and largest_layer, hf_config, study."
    )


def _counts(
    num_params: int | str | None, largest_layer: int | str | None, hf_config: str | os.PathLike[str] | None
) -> tuple[int, int]:
    """Parameters of a model and of its largest layer, as given or as its Hugging Face config says."""
    if hf_config is not None:
        counted = count_params(Path(hf_config))
        return counted.num_params, counted.largest_layer_params
    assert num_params is not None and largest_layer is not None
    return parse_count("--num-params", num_params), parse_count("--largest-layer", largest_layer)


def _known_of(name: str, storage: str | None) -> ModelFacts:
    """What a study's runs have shown of its model.

    Raises:
        DsoptError: there is no such study, or no run of it has shown its model yet.
    """
    from dsopt.api.studies import load_study  # the other sources need no database

    with load_study(name, storage=storage) as study:
        facts = study.model
        if facts is None:
            is_stopped = study.state == "stopped"
            advice = (
                f"Resume it first: dsopt study resume {name}" if is_stopped else f"Run it first: dsopt worker {name}"
            )
            raise DsoptError(f"--study: no run of '{name}' has shown its model yet. {advice}")
        return replace(facts, world_size=max(1, facts.world_size // study.spec.resources.nodes))


def make_model_size(total: int, largest: int, trainable: int, dtype: Dtype) -> ModelSize:
    """The size of a model, after a check that its counts agree.

    Raises:
        DsoptError: the largest layer or the trainable parameters are more than the whole model.
    """
    for option, part in (("--largest-layer", largest), ("--trainable-params", trainable)):
        if part > total:
            raise DsoptError(
                f"{option}: {part:,} is more than the model's {total:,} parameters. Expected at most as many; "
                "check the suffixes."
            )
    return ModelSize(num_params=total, trainable_params=trainable, largest_layer_params=largest, dtype=dtype)


def parse_count(option: str, given: str | int) -> int:
    """A number of parameters: `125000000`, `2783M`, `2.8B`, `7e9`.

    Raises:
        DsoptError: the text has another form, or is not a whole number from 1 to 10^16.
    """
    text = str(given)
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?)([KMBT]?)", text.strip(), re.IGNORECASE)
    number = Decimal(match.group(1)) * _MULTIPLES[match.group(2).upper()] if match else None
    if number is None or not 1 <= number <= _MOST_PARAMS or number != int(number):
        raise DsoptError(
            f"{option}: {text!r} is not a valid parameter count. Expected a whole number of at least 1, "
            "such as 125000000, 7e9, 2783M or 2.8B."
        )
    return int(number)
