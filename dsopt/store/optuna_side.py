"""Optuna's side of a storage: opened when somebody first asks for it, since to import Optuna takes time."""

from typing import TYPE_CHECKING

import sqlalchemy as sa

from dsopt.store.stored import StoredStudy
from dsopt.study.part import Part

if TYPE_CHECKING:
    import optuna


class OptunaSide:
    """Optuna's storage and studies on a database.

    Args:
        engine: of the database.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._rdb: optuna.storages.RDBStorage | None = None
        self._storage: optuna.storages.BaseStorage | None = None
        self._studies: dict[tuple[str, Part], optuna.Study] = {}

    @property
    def storage(self) -> "optuna.storages.BaseStorage":
        """Optuna's storage, with its cache of finished trials."""
        if self._storage is None:
            import optuna

            from dsopt.store.optuna_storage import open_optuna

            self._rdb = self._rdb or open_optuna(self._engine)
            self._storage = optuna.storages.get_storage(self._rdb)
        return self._storage

    def study(self, study: StoredStudy, part: Part) -> "optuna.Study":
        """The Optuna study of one part. A database stores neither sampler nor pruner: the caller sets them.

        Raises:
            DsoptError: it was deleted.
        """
        key = (study.id, part)
        if key not in self._studies:
            import optuna

            from dsopt.store.optuna_rows import part_deleted

            try:
                self._studies[key] = optuna.load_study(
                    study_name=f"{study.name}/{part}",
                    storage=self.storage,
                    sampler=optuna.samplers.RandomSampler(seed=0),
                    pruner=optuna.pruners.NopPruner(),
                )
            except KeyError:
                raise part_deleted(f"{study.name}/{part}") from None
        return self._studies[key]

    def drop(self, study_id: str) -> None:
        """Forgets a study that is deleted."""
        self._studies = {key: known for key, known in self._studies.items() if key[0] != study_id}

    def forget(self) -> None:
        """Forgets all that was read: the database was restored."""
        self._studies.clear()
        self._storage = None

    @property
    def engines(self) -> "list[sa.Engine]":
        """What it asks the database through, once it has."""
        return [] if self._rdb is None else [self._rdb.engine]

    def close(self) -> None:
        """Closes its connections."""
        if self._rdb is not None:
            from dsopt.store.optuna_storage import close_optuna

            close_optuna(self._rdb)
