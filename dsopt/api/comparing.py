"""Measures configurations alternately: without DeepSpeed, the user's own, hand-tuned ones, tuners' choices."""

import os
from collections.abc import Callable, Mapping, Sequence

from dsopt.api.compared_runs import compared_runs
from dsopt.api.creating import spec_of_command
from dsopt.api.events import Event
from dsopt.api.storage import handed_on
from dsopt.api.study import Study
from dsopt.api.workers import Devices, pool_of
from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool
from dsopt.report.compare import ComparisonTable
from dsopt.report.files import set_aside_earlier
from dsopt.store.studies import Store
from dsopt.store.told import unsigned_note
from dsopt.study.comparison import comparison_name, comparison_spec
from dsopt.worker.capacity import check_capacity
from dsopt.worker.history import load_history
from dsopt.worker.results import confirmed_summary


def compare(
    study: str | None = None,
    *,
    command: Sequence[str] | None = None,
    given: Mapping[str, str | os.PathLike[str]] | None = None,
    rounds: int | None = None,
    name: str | None = None,
    devices: Devices = None,
    storage: str | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> ComparisonTable:
    """Measures configurations alternately and returns their table, as `dsopt compare` does.

        print(dsopt.compare("my-study", given={"hand-tuned": "ds_config_mine.json"}).text())

    To continue an interrupted comparison, call it again.

    Args:
        study: name of a finished study; its own configuration and its best are compared, too.
        command: instead of a study, a launch command, word by word.
        given: what else to compare, by name: a DeepSpeed configuration, the `results_dir` of DeepSpeed's autotuner,
            or a whole command as one text.
        rounds: launches of each; None: as many as the study's confirmation has.
        name: of the comparison; None: the study's, or the script's, with `-compare`.
        devices: as for `Study.start_worker`.
        storage: as for `create_study`.
        on_event: called with each event, in this thread; an exception from it stops the worker.

    Raises:
        DsoptError: the configurations cannot be compared.
        TypeError: not exactly one of `study` and `command` is given.
    """
    pool = pool_of(devices)
    texts = [f"{known}={os.fspath(what)}" for known, what in (given or {}).items()]
    comparison = begin_comparison(study, command, texts, pool, rounds=rounds, name=name, storage=storage)
    comparison.run(pool, on_event)
    return comparison.table


def begin_comparison(
    study: str | None,
    command: Sequence[str] | None,
    given: Sequence[str],
    pool: DevicePool,
    *,
    rounds: int | None,
    name: str | None,
    storage: str | None,
) -> Study:
    """Creates the study of a comparison, or finds and resumes it; `given` are `NAME=WHAT` each."""
    if (study is None) == (command is None):
        raise TypeError("compare takes a finished study or command=[...]; exactly one of them.")
    with handed_on(storage, make=command is not None) as store:
        comparison = _make(store, study, command, given, pool, rounds=rounds, name=name)
        comparison.resume()
        return comparison


def _make(
    store: Store,
    name_of_study: str | None,
    command: Sequence[str] | None,
    given: Sequence[str],
    pool: DevicePool,
    *,
    rounds: int | None,
    name: str | None,
) -> Study:
    warnings: list[str] = []
    if name_of_study is not None:
        study = store.get(name_of_study)
        if study.spec.compare:
            raise DsoptError(f"study '{study.name}' is already a comparison. Continue with: dsopt worker {study.name}")
        confirmed_summary(store, study)
        spec, history = study.spec, load_history(store, study)
    else:
        assert command is not None
        (spec, warnings), history = spec_of_command(command, {}), None
    runs, more = compared_runs(spec, given, history)
    made = comparison_spec(spec, name or comparison_name(spec.name), runs, rounds)
    check_capacity(made, pool)  # before anything is created
    stored, is_new = store.create(made)
    aside = set_aside_earlier(made) if is_new else None
    note = unsigned_note(store.engine)
    told = [*warnings, *more, *([note] if note else [])]
    return Study(store, stored, warnings=told, is_new=is_new, earlier_results=aside)
