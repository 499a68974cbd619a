"""`dsopt slurm …`: what Slurm needs to work on a study."""

from pathlib import Path

import click

from dsopt.cli.options import complete_study, json_option, print_json, storage_option


@click.group()
def slurm() -> None:
    """Print a batch script that works on a study in Slurm."""


@slurm.command()
@click.argument("study", shell_complete=complete_study)
@click.option("--nodes", type=int, help="Nodes of the job. Default: as many as one run of the study takes.")
@click.option("--gpus-per-node", type=int, help="GPUs of each node; 0: none. Default: those of one run of the study.")
@click.option("--cpus-per-task", type=int, help="CPU cores of each worker. Default: what the cluster gives.")
@click.option("--time", required=True, metavar="TIME", help="Time limit as in Slurm, such as 4:00:00 or 1-12.")
@click.option("--partition", metavar="NAME", help="Partition of the cluster.")
@click.option("--account", metavar="NAME", help="Account that pays.")
@click.option("--sbatch", "options", multiple=True, metavar="OPTION", help="Any other option, as --sbatch=--qos=high.")
@click.option(
    "--drain-seconds",
    type=int,
    help="Begin no run in the last seconds. Default: as long as a run may take, at most a quarter of the time.",
)
@click.option("--log", metavar="FILE", help="File for what the job prints. Default: dsopt-STUDY-%j.log.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the script to this file.")
@storage_option
@json_option
def script(
    study: str,
    nodes: int | None,
    gpus_per_node: int | None,
    cpus_per_task: int | None,
    time: str,
    partition: str | None,
    account: str | None,
    options: tuple[str, ...],
    drain_seconds: int | None,
    log: str | None,
    output: Path | None,
    storage: str | None,
    as_json: bool,
) -> None:
    """Print a script for sbatch: workers for its nodes, drained before the time limit, and queued again.

    \b
      dsopt slurm script my-study --nodes 4 --time 4:00:00 -o tune.sbatch
      sbatch tune.sbatch
    """
    from dsopt.api.slurm import slurm_script
    from dsopt.api.study_files import write_new_file

    named = {"partition": partition, "account": account}
    text = slurm_script(
        study,
        nodes=nodes,
        time=time,
        gpus_per_node=gpus_per_node,
        cpus_per_task=cpus_per_task,
        drain_seconds=drain_seconds,
        log=log,
        options=[*(f"--{key}={value}" for key, value in named.items() if value is not None), *options],
        storage=storage,
    )
    if output is not None:
        write_new_file(output, text)
    if as_json:
        print_json({"study": study, "script": text, "file": None if output is None else str(output)})
    elif output is None:
        click.echo(text, nl=False)
    else:
        click.echo(f"Wrote {output}. Look it over, then: sbatch {output}")
