"""`dsopt compare`: alternates between the script without DeepSpeed, yours, hand-tuned and tuners' configurations."""

import click

from dsopt.api.one_thread import calculate_on_one_thread
from dsopt.cli.created import show_created
from dsopt.cli.notifications import notify_option, notifying
from dsopt.cli.options import devices_option, json_option, only_data_on_stdout, print_json, storage_option
from dsopt.cli.patiently import patiently
from dsopt.cli.signals import hear_drains
from dsopt.cli.worker import work_on
from dsopt.errors import DsoptError


@click.command()
@click.option(
    "--with",
    "given",
    multiple=True,
    metavar="NAME=WHAT",
    help="Also measure this: a DeepSpeed configuration file, the results_dir of DeepSpeed's autotuner (for its "
    'choice), or a whole command, such as vanilla="torchrun …". May be repeated.',
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    help="How often each is launched. Default: the rounds of the study's confirmation, else 3.",
)
@click.option("--name", help="Name of the comparison. Default: the study's (or the script's) with '-compare'.")
@devices_option
@notify_option
@storage_option
@json_option
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="STUDY | -- deepspeed …")
def compare(
    words: tuple[str, ...],
    given: tuple[str, ...],
    rounds: int | None,
    name: str | None,
    devices: str | None,
    notify: str | None,
    storage: str | None,
    as_json: bool,
) -> None:
    """Measure configurations alternately and print the table that DeepSpeed's documents show.

    dsopt compares the script without DeepSpeed (vanilla), your own configuration and whatever --with names. For a
    finished STUDY, it adds dsopt's best and, if you imported results of DeepSpeed's autotuner, the best of those. To
    continue an interrupted comparison, run the same line again.
    """
    hear_drains()
    calculate_on_one_thread()
    from dsopt.api.comparing import begin_comparison
    from dsopt.api.workers import pool_of

    pool = pool_of(devices)
    study, command = (words[0], None) if len(words) == 1 else (None, words)
    with only_data_on_stdout(as_json), notifying(notify, storage) as notifier:
        comparison = begin_comparison(study, command, given, pool, rounds=rounds, name=name, storage=storage)
        show_created(comparison, None)
        click.echo(f"{'Created' if comparison.is_new else 'Continuing'} comparison '{comparison.name}'.")
        problem = work_on([comparison], pool, notifier)
    table = patiently(lambda: comparison.table)
    if as_json:
        print_json(table.to_json())
    if problem is not None:
        raise problem
    if table.state == "finished" and not table.measured:
        why = f"Why: dsopt study show {comparison.name}"
        raise DsoptError(f"comparison '{comparison.name}': no configuration could be measured. {why}")
