"""`dsopt estimate`: memory for a model's states under each ZeRO stage, and what fits, before anything is run."""

import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import cast

import click

from dsopt.cli.options import json_option, open_store, print_json, storage_option
from dsopt.errors import DsoptError
from dsopt.experiment.count import count_params
from dsopt.report.estimate import estimate_memory
from dsopt.search.facts import ModelFacts
from dsopt.search.zero_memory import Dtype, ModelSize
from dsopt.worker.knowledge import load_history

_MULTIPLES = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_MOST_PARAMS = 10**16


@click.command()
@click.option("--num-params", metavar="N", help="Parameters of the model, such as 2783M, 2.8B or 7e9.")
@click.option("--largest-layer", metavar="N", help="Parameters of its largest layer; goes with --num-params.")
@click.option("--hf-config", metavar="FILE", type=click.Path(path_type=Path), help="Or its Hugging Face config.json.")
@click.option("--study", "study_name", metavar="NAME", help="Or a study whose baseline (or profile) has run.")
@click.option("--trainable-params", metavar="N", help="Parameters that are trained. Default: all.")
@click.option("--num-gpus", type=click.IntRange(1, 4096), help="GPUs of each node. Default: 1, or the study's.")
@click.option("--num-nodes", type=click.IntRange(1, 65536), help="Nodes. Default: 1, or the study's.")
@click.option(
    "--dtype",
    type=click.Choice(["fp16", "bf16", "fp32"]),
    help="Type that is trained in; fp16 and bf16 in mixed precision. Default: fp16, or the study's.",
)
@storage_option
@json_option
def estimate(
    num_params: str | None,
    largest_layer: str | None,
    hf_config: Path | None,
    study_name: str | None,
    trainable_params: str | None,
    num_gpus: int | None,
    num_nodes: int | None,
    dtype: Dtype | None,
    storage: str,
    as_json: bool,
) -> None:
    """Estimate the memory that a model's states need under each ZeRO stage, and what fits on usual GPUs.

    Counts may end in K, M, B or T (thousands to trillions).
    """
    given = {"--num-params": num_params, "--hf-config": hf_config, "--study": study_name}
    sources = [option for option, value in given.items() if value is not None]
    if len(sources) != 1:
        found = " and ".join(sources) or "none of them"
        raise click.UsageError(f"Give the model by exactly one of {', '.join(given)}; got {found}.")
    if num_params is None and largest_layer is not None:
        raise click.UsageError(f"--largest-layer goes with --num-params; {sources[0]} gives the largest layer itself.")
    if num_params is not None and largest_layer is None:
        raise click.UsageError("--num-params: also give --largest-layer, the parameters of the model's largest layer.")
    trainable = None if trainable_params is None else parse_count("--trainable-params", trainable_params)
    if study_name is not None:
        known = _known_of(study_name, storage)
        total, largest, trainable = known.num_params, known.largest_layer_params, trainable or known.trainable_params
        dtype = dtype or cast(Dtype, known.dtype)
        num_gpus = num_gpus or known.world_size
    elif hf_config is not None:
        counted = count_params(hf_config)
        total, largest = counted.num_params, counted.largest_layer_params
    else:
        assert num_params is not None and largest_layer is not None
        total, largest = parse_count("--num-params", num_params), parse_count("--largest-layer", largest_layer)
    model = make_model_size(total, largest, trainable or total, dtype or "fp16")
    result = estimate_memory(model, gpus_per_node=num_gpus or 1, nodes=num_nodes or 1)
    if as_json:
        print_json(result.to_json())
    else:
        click.echo(result.text())


def _known_of(name: str, storage: str) -> ModelFacts:
    """What a study's runs have told of its model.

    Raises:
        DsoptError: no such study, or nothing of it has run yet.
    """
    store = open_store(storage)
    study = store.get(name)
    facts = load_history(store, study).facts_for(study.spec)
    if facts is None:
        raise DsoptError(
            f"--study: nothing of '{name}' has run yet, so its model is not known. Run it first: dsopt worker {name}"
        )
    return replace(facts, world_size=max(1, facts.world_size // study.spec.resources.nodes))


def make_model_size(total: int, largest: int, trainable: int, dtype: Dtype) -> ModelSize:
    """The size of a model, once its counts agree with each other.

    Raises:
        DsoptError: a largest layer, or trainable parameters, of more than the whole model.
    """
    for option, part in (("--largest-layer", largest), ("--trainable-params", trainable)):
        if part > total:
            raise DsoptError(
                f"{option}: {part:,} is more than the model's {total:,} parameters. Expected at most as many; "
                "check the suffixes."
            )
    return ModelSize(num_params=total, trainable_params=trainable, largest_layer_params=largest, dtype=dtype)


def parse_count(option: str, text: str) -> int:
    """A number of parameters: `125000000`, `2783M`, `2.8B`, `7e9`.

    Raises:
        DsoptError: text of another form, no whole number, or one outside 1 to 10^16.
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?)([KMBT]?)", text.strip(), re.IGNORECASE)
    number = Decimal(match.group(1)) * _MULTIPLES[match.group(2).upper()] if match else None
    if number is None or not 1 <= number <= _MOST_PARAMS or number != int(number):
        raise DsoptError(
            f"{option}: {text!r} is no number of parameters. Expected a whole number of at least 1, "
            "such as 125000000, 7e9, 2783M or 2.8B."
        )
    return int(number)
