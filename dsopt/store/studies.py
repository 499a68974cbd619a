"""Studies in the database: creates, finds, stops, resumes and deletes them, in dsopt's tables and Optuna's.

What only those need who read, create, upgrade or delete is imported there: to list studies, it takes little.
"""

import weakref
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from dsopt.errors import DsoptError
from dsopt.protocol.text import plain_text
from dsopt.store import claims, queries
from dsopt.store.clock import incarnation
from dsopt.store.database_file import file_of
from dsopt.store.engine import connect, exclusive
from dsopt.store.headers import headers_of
from dsopt.store.identity import identity_of
from dsopt.store.optuna_side import OptunaSide
from dsopt.store.revision import check, state
from dsopt.store.stored import StoredStudy, StudyHeader
from dsopt.store.transactions import UNFINISHED, writing
from dsopt.store.url import exists, shown, storage_url
from dsopt.study.documents import nearest
from dsopt.study.part import PARTS, REFERENCE, Part

if TYPE_CHECKING:
    import optuna

    from dsopt.store.attempts import Task
    from dsopt.study.spec import StudySpec

_CREATE = "Create one with: dsopt study create FILE"
_CREATE_HERE = f"{_CREATE}. If yours was created in another folder, go there, or name its database with --storage."


class Now(NamedTuple):
    """How a study stands, and what a restored backup changes; None and -1 if the study was deleted."""

    state: str | None
    version: int
    decisions: int
    incarnation: int


class NoStudiesError(DsoptError):
    """Nothing was ever created in this storage."""


class Store:
    """The open storage: one engine for dsopt's tables, one Optuna storage on the same database."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self._optuna = OptunaSide(engine)
        self._closer = weakref.finalize(self, _close, engine, self._optuna)
        self._closer.atexit = False  # a process that was forked from this one must not close its connections

    @classmethod
    def open(cls, url: str, *, make: bool = False) -> "Store":
        """Opens a storage by its URL; with `make`, creates the schema in an empty database.

        Raises:
            NoStudiesError: nothing was ever created there.
            DsoptError: the URL is wrong, the database cannot be reached, or another version made it.
        """
        parsed = storage_url(url)
        if not make and not exists(parsed):
            raise NoStudiesError(f"--storage: {shown(parsed)}: no such file; there is no study yet. {_CREATE_HERE}")
        engine = connect(parsed)
        try:
            if make:
                from dsopt.store.schema import ensure

                ensure(engine)
            elif state(engine).revision is None:
                raise NoStudiesError(f"--storage: {shown(parsed)}: there is no study yet. {_CREATE}")
            else:
                check(engine)
        except DsoptError:
            engine.dispose()
            raise
        return cls(engine)

    def close(self) -> None:
        """Closes all connections; Python also does so when nothing refers to the storage any more."""
        self._closer()

    @property
    def shown_url(self) -> str:
        """The storage URL without its password."""
        return shown(self.engine.url)

    @property
    def optuna_storage(self) -> "optuna.storages.BaseStorage":
        """Optuna's storage, with its cache of finished trials."""
        return self._optuna.storage

    def optuna_study(self, study: StoredStudy, part: Part) -> "optuna.Study":
        """The Optuna study of one part (`OptunaSide.study`)."""
        return self._optuna.study(study, part)

    def create(self, spec: "StudySpec") -> tuple[StoredStudy, bool]:
        """Stores a new study. Creating the same study again changes nothing.

        With `overwrite: true`, it first deletes a finished study of that name and folder, unless that was only to be
        signed; the run directories stay. Returns the study, and whether it is new.

        Raises:
            DsoptError: a study with another spec has that name, or an earlier study that it names does not exist.
        """
        from dsopt.store import optuna_parts
        from dsopt.store.changed import changed_study_error
        from dsopt.store.signatures import renew_if_same, sign_stored
        from dsopt.study.spec import StudySpec

        for name in spec.warm_start:
            if self._find(name) is None:
                raise DsoptError(
                    f"study '{spec.name}': warm_start: there is no study '{name}' in {self.shown_url}. "
                    "Name studies of this database, or leave it out."
                )
        with exclusive(self.engine, f"create-{spec.name}"):
            is_to_stay = renew_if_same(self.engine, spec)
            existing = self._find(spec.name)
            is_again = existing is not None and existing.state == "finished" and existing.spec.cwd == spec.cwd
            if existing is not None and is_again and spec.autotuning.overwrite and not is_to_stay:
                self.delete(existing)
                existing = None
            if existing is not None:
                if existing.spec.digest != spec.digest:
                    raise changed_study_error(existing.spec, spec, [header.name for header in self.headers()])
                optuna_parts.make(self.optuna_storage, spec)
                return existing, False
            kept = spec.to_json()
            assert StudySpec.model_validate_json(kept).digest == spec.digest, "the stored spec is the requested one"
            optuna_parts.remove_empty(self.optuna_storage, spec)
            optuna_parts.make(self.optuna_storage, spec)  # before the study, which workers take up at once
            with writing(self.engine) as connection:
                queries.insert_study(connection, name=spec.name, spec=kept, digest=spec.digest)
                made = queries.find_study(connection, spec.name)
                assert made is not None, "nobody else creates a study of this name now"
                sign_stored(connection, made)
            return self.get(spec.name), True

    def get(self, name: str) -> StoredStudy:
        """The study of that name, to work on.

        Raises:
            DsoptError: there is none, or this node does not trust it.
        """
        study = self.read(name)
        study.check_trust()
        return study

    def read(self, name: str) -> StoredStudy:
        """The study of that name, whether or not this node trusts it: to look at it, or to stop it.

        Raises:
            DsoptError: there is none.
        """
        study = self._find(name)
        if study is None:
            names = [header.name for header in self.headers()]
            meant = nearest(name, names, cutoff=0.6)
            there = f" There are: {', '.join(names)}." if names else f" There is none yet. {_CREATE}"
            hint = f" Did you mean '{meant}'?" if meant else there
            raise DsoptError(f"no study {name!r} in {self.shown_url}.{hint}")
        return study

    def headers(self) -> list[StudyHeader]:
        """All studies, oldest first, including those that only another version of dsopt can read."""
        return headers_of(self.engine)

    def header(self, name: str) -> StudyHeader:
        """The study of that name, whether or not it can be read.

        Raises:
            DsoptError: there is none.
        """
        found = next((header for header in self.headers() if header.name == name), None)
        if found is None:
            self.get(name)  # says what there is
            raise DsoptError(f"no study {name!r} in {self.shown_url}.")
        return found

    def state(self, study: StoredStudy) -> str | None:
        """The study's state now; None if it was deleted."""
        return self.now(study).state

    def now(self, study: StoredStudy) -> Now:
        """How the study stands now."""
        with self.engine.connect() as connection:
            row = queries.study_now(connection, study.id)
        if row is None:
            return Now(state=None, version=-1, decisions=-1, incarnation=-1)
        return Now(**{key: row[key] for key in Now._fields})

    @property
    def identity(self) -> str:
        """What identifies the database now, however a worker of this machine reaches it."""
        return identity_of(self.engine)

    def incarnation(self) -> Hashable:
        """What is another once a backup was restored, or another file was put in the place of this one."""
        with self.engine.connect() as connection:
            number = connection.execute(sa.select(incarnation(connection))).scalar_one()
        return number, file_of(self.engine)

    def forget(self) -> None:
        """Forgets what Optuna remembers of the database: it was restored."""
        self._optuna.forget()

    def stop(self, study: StoredStudy, note: str) -> bool:
        """Stops a study; workers end its current runs. False: it is already finished or stopped."""
        with writing(self.engine) as connection:
            return queries.change_study(connection, study.id, allowed=UNFINISHED, state="stopped", note=note)

    def resume(self, study: StoredStudy, *, was_finished: bool = False) -> bool:
        """Resumes a stopped study; with `was_finished`, also one that finished without a result.

        A baseline that did not run is tried again, and so are failed confirmation runs. False: it was in neither state.
        """
        from optuna.trial import TrialState

        from dsopt.store.records import trial_of

        allowed = ("stopped", "finished") if was_finished else ("stopped",)
        with writing(self.engine) as connection:
            if not queries.change_study(
                connection, study.id, allowed=allowed, state="created", note=None, finished_at=None
            ):
                return False
            for claim in claims.all_of(connection, study.id):
                if claim["stage"] == REFERENCE and trial_of(claim).state in (TrialState.PRUNED, TrialState.FAIL):
                    claims.release(connection, study_id=study.id, stage=REFERENCE, trial=claim["trial"])
            return True

    def delete(self, study: StoredStudy | StudyHeader) -> None:
        """Removes a study and its Optuna studies. Run directories and result files stay.

        Raises:
            DsoptError: it is running, or another study needs it.
        """
        import optuna

        from dsopt.store import workers
        from dsopt.store.needed import refuse_if_needed
        from dsopt.store.optuna_rows import delete_studies

        names = {f"{study.name}/{part}" for part in PARTS} & {*optuna.get_all_study_names(self.optuna_storage)}
        with writing(self.engine) as connection:
            now = queries.study_now(connection, study.id, locks=True)  # a worker's new rows would forbid this
            busy = [o["candidate"] for o in queries.attempts_of(connection, study.id) if o["state"] == "running"]
            if now is not None and now["state"] in UNFINISHED:  # a worker may be between two runs
                busy += [f"node {node}" for node in workers.at_work_on(connection, study.id)]
            if busy and now is not None and now["state"] != "stopped":
                raise DsoptError(
                    f"study '{study.name}' is running ({busy[0]}). Stop it first: dsopt study stop {study.name}"
                )
            if now is not None:  # otherwise another study has this name
                refuse_if_needed(connection, study.name)
                delete_studies(connection, names)
            queries.delete_study(connection, study.id)
        self._optuna.drop(study.id)

    def runs(self, study: StoredStudy) -> Sequence[queries.Row]:
        """Every attempt of a study in order, each with its figures if it was measured, or slow."""
        with self.engine.connect() as connection:
            return queries.attempts_of(connection, study.id)

    def attempts_for(self, study: StoredStudy, task: "Task") -> Sequence[queries.Row]:
        """The attempts of a trial, oldest first, each with its measurement's details."""
        with self.engine.connect() as connection:
            return queries.attempts_for(connection, study.id, task.part, task.trial)

    def _find(self, name: str) -> StoredStudy | None:
        with self.engine.connect() as connection:
            row = queries.find_study(connection, name)
        return None if row is None else _stored(row)


def _close(engine: sa.Engine, optuna_side: OptunaSide) -> None:
    optuna_side.close()
    engine.dispose()


def _stored(row: queries.Row) -> StoredStudy:
    from dsopt.store.keys import trusted_keys
    from dsopt.store.signatures import distrust_of, unsigned_spec_of

    distrust = distrust_of(row)
    return StoredStudy(
        spec=unsigned_spec_of(row),
        distrust=distrust,
        checked_by=row["signed_by"] if distrust is None and trusted_keys() else None,
        note=plain_text(row["note"] or "") or None,
        **{key: row[key] for key in ("id", "state", "created_at", "finished_at")},
    )
