"""`dsopt estimate`: memory for a model's states under each ZeRO stage, and what fits, before anything runs."""

from pathlib import Path
from typing import Literal

import click

import dsopt
from dsopt.cli.options import json_option, print_json, storage_option


@click.command()
@click.option("--num-params", metavar="N", help="Parameters of the model, such as 2783M, 2.8B or 7e9.")
@click.option("--largest-layer", metavar="N", help="Parameters of its largest layer; needed with --num-params.")
@click.option("--hf-config", metavar="FILE", type=click.Path(path_type=Path), help="Or its Hugging Face config.json.")
@click.option("--study", "study_name", metavar="NAME", help="Or a study whose baseline (or profile) has run.")
@click.option("--trainable-params", metavar="N", help="Trainable parameters. Default: all.")
@click.option("--num-gpus", type=click.IntRange(1, 4096), help="GPUs of each node. Default: 1, or the study's.")
@click.option("--num-nodes", type=click.IntRange(1, 65536), help="Nodes. Default: 1, or the study's.")
@click.option(
    "--dtype",
    type=click.Choice(["fp16", "bf16", "fp32"]),
    help="Data type of the training; fp16 and bf16 mean mixed precision. Default: fp16, or the study's.",
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
    dtype: Literal["fp16", "bf16", "fp32"] | None,
    storage: str | None,
    as_json: bool,
) -> None:
    """Estimate the memory that a model's states need under each ZeRO stage, and what fits on common GPUs.

    Counts may end in K, M, B or T (thousands to trillions).
    """
    given = {"--num-params": num_params, "--hf-config": hf_config, "--study": study_name}
    sources = [option for option, value in given.items() if value is not None]
    if len(sources) != 1:
        found = " and ".join(sources) or "none of them"
        raise click.UsageError(f"Give the model with exactly one of {', '.join(given)}; got {found}.")
    if num_params is None and largest_layer is not None:
        raise click.UsageError(f"--largest-layer needs --num-params; {sources[0]} already gives the largest layer.")
    if num_params is not None and largest_layer is None:
        raise click.UsageError("--num-params: also give --largest-layer, the parameters of the model's largest layer.")
    result = dsopt.estimate(
        num_params=num_params,
        largest_layer=largest_layer,
        hf_config=hf_config,
        study=study_name,
        trainable_params=trainable_params,
        num_gpus=num_gpus,
        num_nodes=num_nodes or 1,
        dtype=dtype,
        storage=storage,
    )
    if as_json:
        print_json(result.to_json())
    else:
        click.echo(result.text())
