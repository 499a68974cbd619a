"""`dsopt compare`: configurations measured in turn, without DeepSpeed, yours, hand-tuned ones and tuners' choices."""

import contextlib
import sys

import click

from dsopt.cli.options import devices_option, json_option, open_store, print_json, storage_option
from dsopt.cli.result import finished_summary, table_of
from dsopt.cli.tune import WHERE, content_of
from dsopt.cli.worker import run_worker
from dsopt.errors import DsoptError
from dsopt.experiment.devices import DevicePool, parse_devices
from dsopt.report.compared_runs import compared_runs
from dsopt.store.studies import Store, StoredStudy
from dsopt.study.comparison import comparison_spec
from dsopt.study.load import build_spec
from dsopt.worker.knowledge import load_history, most_ranks_of


@click.command()
@click.option(
    "--with",
    "given",
    multiple=True,
    metavar="NAME=WHAT",
    help="Measure this, too: a DeepSpeed configuration (a file), the choice of DeepSpeed's autotuner (its "
    'results_dir), or a whole command, such as vanilla="torchrun …". May be repeated.',
)
@click.option("--rounds", type=click.IntRange(1), help="Launches of each. Default: as in the study's confirmation, 3.")
@click.option("--name", help="Name of the comparison. Default: the study's (or the script's), with '-compare'.")
@devices_option
@storage_option
@json_option
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="STUDY | -- deepspeed …")
def compare(
    words: tuple[str, ...],
    given: tuple[str, ...],
    rounds: int | None,
    name: str | None,
    devices: str | None,
    storage: str,
    as_json: bool,
) -> None:
    """Measure configurations in turn and print their table, as DeepSpeed's documents have it.

    Compared are the script without DeepSpeed (vanilla), your own configuration, what --with gives, and of a finished
    STUDY also dsopt's best and, where its results were imported, the best of DeepSpeed's autotuner. The same line again
    goes on with a comparison that was interrupted.
    """
    pool = parse_devices(devices)
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        store = open_store(storage, make=len(words) > 1)
        comparison = _comparison(store, pool, words, given, rounds, name)
        if store.resume(comparison):
            comparison = store.get(comparison.name)
        run_worker(store, [comparison], pool)
    if as_json:
        print_json(table_of(store, comparison).to_json())


def _comparison(
    store: Store, pool: DevicePool, words: tuple[str, ...], given: tuple[str, ...], rounds: int | None, name: str | None
) -> StoredStudy:
    """The comparison that is asked for, made where it is not there yet."""
    if len(words) == 1:
        study = store.get(words[0])
        if study.spec.compare:
            raise DsoptError(f"study '{study.name}' is a comparison already. Go on with: dsopt worker {study.name}")
        finished_summary(store, study)
        spec, history = study.spec, load_history(store, study)
        warnings: list[str] = []
    else:
        (spec, warnings), history = build_spec(content_of(words, {}), WHERE), None
    if spec.is_simulated:
        raise DsoptError(f"study '{spec.name}' is a dry run: there are no runs of a script to compare.")
    runs, more = compared_runs(spec, given, history)
    made = comparison_spec(spec, name or f"{spec.name}-compare", runs, rounds)
    most_ranks_of(made, pool)  # before anything is created
    for warning in [*warnings, *more]:
        click.echo(f"warning: {warning}", err=True)
    comparison, is_new = store.create(made)
    click.echo(f"{'Created' if is_new else 'Going on with'} comparison '{comparison.name}'.")
    return comparison
