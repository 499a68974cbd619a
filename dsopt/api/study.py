"""A study as a value: its state, its result, and what you can do with it."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from dsopt.api.results import Result, Run, diff_of, find_best, runs_of, training_of
from dsopt.api.shown import imported, shown_json, shown_text
from dsopt.api.standing import Standing, standing
from dsopt.errors import DsoptError
from dsopt.report.compare import ComparisonTable
from dsopt.report.diff import Diff
from dsopt.report.summary import Summary
from dsopt.search.facts import ModelFacts
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.study.spec import StudySpec
from dsopt.worker import results
from dsopt.worker.history import load_history

if TYPE_CHECKING:  # who only looks at a study needs none of it
    import pandas

    from dsopt.api.events import Event
    from dsopt.api.workers import Devices, WorkerThread
    from dsopt.autotuner.importing import Imported
    from dsopt.worker.takeover import TakenOver


class Study:
    """A study in a database, returned by `create_study`, `load_study` or `tune`.

    Every property reads the database, so it shows what workers anywhere have done so far. `with` closes it in the end.

    Attributes:
        distrust: why this node runs nothing of it (`docs/security.md`); None: it does.
        warnings: those from creating it.
        is_new: whether it was created just now; False if it existed with the same spec.
        taken_over: what it took over from an earlier study, if you asked for that.
        earlier_results: the folder to which dsopt moved result files of an earlier study of its name, if there were.
    """

    def __init__(
        self,
        store: Store,
        stored: StoredStudy,
        *,
        warnings: Sequence[str] = (),
        is_new: bool = False,
        taken_over: "TakenOver | None" = None,
        earlier_results: Path | None = None,
    ) -> None:
        self._store = store
        self._stored = stored
        self.distrust = stored.distrust
        self.warnings = tuple(warnings)
        self.is_new = is_new
        self.taken_over = taken_over
        self.earlier_results = earlier_results

    def __repr__(self) -> str:
        return f"<dsopt.Study {self.name!r} in {self.storage}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the study's connections. Studies that were loaded together share them."""
        self._store.close()

    @property
    def name(self) -> str:
        """The study's name."""
        return self._stored.name

    @property
    def spec(self) -> StudySpec:
        """What the study asks for; it never changes."""
        return self._stored.spec

    @property
    def storage(self) -> str:
        """The URL of its database, without the password."""
        return self._store.shown_url

    @property
    def state(self) -> str:
        """`created`, `baseline`, `searching`, `confirming`, `finished`, `stopped` or `deleted`."""
        return self._store.state(self._stored) or "deleted"

    @property
    def is_comparison(self) -> bool:
        """Whether it compares given configurations instead of searching."""
        return bool(self.spec.compare)

    @property
    def is_unconfirmed(self) -> bool:
        """Whether it has ended without a confirmed result, so that dsopt calls no configuration the best."""
        return results.is_unconfirmed(self._store, self._stored)

    @property
    def summary(self) -> Summary:
        """The result so far: `text()` for people, `to_json()` as data.

        Raises:
            DsoptError: the study is a comparison, or was deleted.
        """
        if self.is_comparison:
            raise DsoptError(f"study '{self.name}' is a comparison: it has a table, not a summary.")
        return results.summary_of(self._store, self._stored)

    @property
    def table(self) -> ComparisonTable:
        """The table of a comparison so far: `text()` for people, `to_json()` as data.

        Raises:
            DsoptError: the study is not a comparison.
        """
        if not self.is_comparison:
            raise DsoptError(f"study '{self.name}' is not a comparison: it has a summary, not a table.")
        return results.table_of(self._store, self._stored)

    @property
    def outcome(self) -> Summary | ComparisonTable:
        """The summary, or the table of a comparison."""
        return self.table if self.is_comparison else self.summary

    def text(self) -> str:
        """Everything about it, for people: every run, and the result so far."""
        return shown_text(self.spec, self.state, self.runs, imported(self._store, self._stored), self.outcome)

    def to_json(self) -> dict[str, Any]:
        """The same as data."""
        return shown_json(self.runs, imported(self._store, self._stored), self.outcome)

    @property
    def standing(self) -> Standing:
        """Where a search stands: how far, how good, what goes on now, and what was tried, best first."""
        return standing(self._store, self._stored)

    @property
    def best(self) -> Result:
        """The best configuration, with the learning rate as it was. Writes missing files.

        Raises:
            DsoptError: there is none: the study is not finished, nothing could be confirmed, or it is a comparison.
        """
        return self.find_best()

    def find_best(
        self, *, apply_lr_scaling: bool | None = False, output: str | Path | None = None, force: bool = False
    ) -> Result:
        """The best configuration.

        Args:
            apply_lr_scaling: whether the learning rate follows the batch, in result files too; None: as in those.
            output, force: another file for DeepSpeed's configuration; whether it is replaced if it is there.

        Raises:
            DsoptError: there is none, as for `best`; or `output` exists without `force`, or cannot be written.
        """
        return find_best(self._store, self._stored, output, scale_lr=apply_lr_scaling, force=force)

    def write_files(self, *, apply_lr_scaling: bool | None = None) -> list[Path]:
        """Writes missing result files of a finished study; gives their absolute paths, without a result the summary's.

        Args:
            apply_lr_scaling: whether the learning rate in them follows the batch; None: unchanged.

        Raises:
            DsoptError: the study is not finished.
        """
        if self.state != "finished":
            raise DsoptError(f"study '{self.name}' is not finished: its state is '{self.state}'.")
        return results.ensure_results(self._store, self._stored, scale_lr=apply_lr_scaling)

    def diff(self) -> Diff:
        """What the best configuration changes against the user's own, and what each change is worth.

        Raises:
            DsoptError: the study has no result.
        """
        return diff_of(self._store, self._stored)

    @property
    def runs(self) -> list[Run]:
        """Every launch, oldest first."""
        return runs_of(self._store, self._stored, load_history(self._store, self._stored))

    @property
    def model(self) -> ModelFacts | None:
        """What the runs have shown of the model and its devices; None while nothing has run."""
        return load_history(self._store, self._stored).facts_for(self.spec)

    def trials_dataframe(self) -> "pandas.DataFrame":
        """Every launch as a row of a pandas table; `docs/api.md` lists its columns.

        Raises:
            DsoptError: pandas is not installed.
        """
        from dsopt.api.frames import trials_dataframe

        return trials_dataframe(self.spec, self.runs, load_history(self._store, self._stored))

    def start_worker(self, devices: "Devices" = None) -> "WorkerThread":
        """Starts a worker on the study in a thread.

        Args:
            devices: GPUs such as "0,1,4-7", or "cpu:4" for slots of a machine without GPUs; None: all there are.

        Raises:
            DsoptError: the devices do not exist.
        """
        from dsopt.api.workers import work_on

        return work_on(self._store, [self._stored], devices)

    def work(self, devices: "Devices" = None) -> "Iterator[Event]":
        """Works on the study in a thread while its events are iterated, until it is finished or stopped.

        Leaving the loop (`break`, an exception, Ctrl-C) asks the worker to stop and waits until it has, which takes
        seconds. A finished study yields no events.

        Args:
            devices: as for `start_worker`.

        Raises:
            DsoptError: the study cannot continue before the user has fixed something.
        """
        with self.start_worker(devices) as worker:
            yield from worker.events()
        worker.join()

    def run(self, devices: "Devices" = None, on_event: "Callable[[Event], object] | None" = None) -> None:
        """Works on the study until it is finished or stopped.

        Args:
            devices: as for `start_worker`.
            on_event: called with each event, in this thread; an exception from it stops the worker.

        Raises:
            DsoptError: the study cannot continue before the user has fixed something.
        """
        for event in self.work(devices):
            if on_event is not None:
                on_event(event)

    def stop(self, note: str = "by the Python API") -> bool:
        """Stops the study: all workers end their current run within seconds. False: it is already finished or stopped.

        Args:
            note: why, for whoever looks at the study.
        """
        return self._store.stop(self._stored, note)

    def resume(self) -> bool:
        """Resumes a study that was stopped, or whose confirmation failed. False: it is neither."""
        return results.reopen(self._store, self._stored)

    def delete(self) -> None:
        """Deletes the study from the database. Its run directories and result files stay.

        Raises:
            DsoptError: it is running and not stopped.
        """
        self._store.delete(self._stored)

    def import_results(self, folder: str | Path) -> "Imported":
        """Imports what DeepSpeed's own autotuner has measured, so that nothing is measured again.

        Args:
            folder: its `results_dir`.

        Raises:
            DsoptError: the folder holds no experiment, or the study is finished.
        """
        from dsopt.autotuner.importing import import_results

        return import_results(self._store, self._stored, Path(folder))

    def train(
        self, *, apply_lr_scaling: bool = False, devices: str | None = None, tell: Callable[[str], object] = print
    ) -> int:
        """Starts the real training with the best configuration on this terminal, and returns its exit code.

        It waits until others have left its devices, and `tell` hears why; on GPUs that `devices` names, such as `0,1`,
        only runs of dsopt matter. None begins on them meanwhile. It passes signals on.

        Raises:
            DsoptError: there is no best configuration or launcher, or experiments left what looks like checkpoints.
        """
        from dsopt.worker.final_training import patient, train_best

        command = patient(tell)(lambda: training_of(self._store, self._stored, scale_lr=apply_lr_scaling))
        return train_best(self._store, self._stored, command, tell, devices)
