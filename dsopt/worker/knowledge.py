"""What a worker has to know of a study before it decides."""

import tempfile
from dataclasses import replace
from pathlib import Path

from dsopt.errors import DsoptError
from dsopt.experiment.devices import DevicePool, default_ranks
from dsopt.experiment.results import exps_folder, results_folder
from dsopt.search.history import Earlier, History, Observation, observe
from dsopt.store.attempts import claimed_trials
from dsopt.store.studies import AIO, REFERENCE, Store, StoredStudy
from dsopt.study.candidate_run import candidate_command
from dsopt.study.comparison import specs_of_runs
from dsopt.study.space import NUM_GPUS, Candidate
from dsopt.study.spec import StudySpec


class HistoryReader:
    """Reads what counts of a study, from its Optuna studies and the claims; a closed stage is read once."""

    def __init__(self, store: Store, study: StoredStudy) -> None:
        self._store = store
        self._study = study
        self._offloads = "nvme" in study.spec.to_json()
        self._closed: dict[int, tuple[list[Observation], str]] = {}
        self._earlier = [_earlier(store, study, name) for name in study.spec.warm_start]

    def read(self) -> History:
        """What is known now."""
        counted = claimed_trials(self._store, self._study)
        stages: dict[int, list[Observation]] = {stage: [] for stage in self._study.spec.stages}
        verdicts: dict[int, str] = {}
        for stage in stages:
            if stage not in self._closed:
                part = f"z{stage}"
                stages[stage] = self._observe(part, stage, counted)
                verdict = self._store.optuna_study(self._study, part).user_attrs.get("verdict")
                if verdict is None:
                    continue  # stages behind the open one may hold what was imported
                self._closed[stage] = (stages[stage], verdict)
            stages[stage], verdicts[stage] = self._closed[stage]
        return History(
            reference=self._observe(REFERENCE, None, counted),
            stages=stages,
            verdicts=verdicts,
            maximize=self._study.spec.autotuning.maximize,
            aio=self._store.optuna_study(self._study, REFERENCE).user_attrs.get(AIO) if self._offloads else None,
            earlier=self._earlier,
        )

    def _observe(self, part: str, stage: int | None, counted: set[tuple[str, int]]) -> list[Observation]:
        trials = self._store.optuna_study(self._study, part).get_trials(deepcopy=False)
        return observe(trials, {number for name, number in counted if name == part}, stage)


def _earlier(store: Store, study: StoredStudy, name: str) -> Earlier:
    """An earlier study that this one begins with.

    Raises:
        DsoptError: there is none of that name.
    """
    try:
        found = store.get(name)
    except DsoptError as error:
        raise DsoptError(f"study '{study.name}': warm_start: {error}") from None
    plain = found.spec.model_copy(update={"warm_start": []})
    return Earlier(spec=plain, history=HistoryReader(store, replace(found, spec=plain)).read())


def load_history(store: Store, study: StoredStudy) -> History:
    """What counts of a study now."""
    return HistoryReader(store, study).read()


def check_folders(spec: StudySpec) -> None:
    """Makes the folders that runs write to, before anything is run.

    Raises:
        DsoptError: one of them cannot be made or written.
    """
    for key, path, make in (
        ("results_dir", spec.results_dir, results_folder),
        ("exps_dir", spec.exps_dir, exps_folder),
    ):
        folder = Path(spec.cwd) / path
        try:
            with tempfile.TemporaryFile(dir=make(spec)):
                pass
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise DsoptError(
                f"study '{spec.name}': autotuning.{key}: {str(folder)!r} cannot be written: {reason}. "
                "Mend the folder, or give another in a new study."
            ) from None


def ranks_of(spec: StudySpec, pool: DevicePool, candidate: Candidate | None = None) -> int:
    """How many devices of this node a run takes; one where it is simulated, however many it pretends to have.

    Raises:
        DsoptError: more than the pool has.
    """
    if spec.is_simulated:
        return 1
    command = candidate_command(spec, candidate)
    pool = pool_of(spec, pool)
    count = command.ranks or default_ranks(pool)
    if count > len(pool.indices):
        raise DsoptError(
            f"study '{spec.name}': command: {command.launcher.ranks[0]} {count}: this worker has {pool}. "
            "Give it more with --devices (on a machine without GPUs: --devices cpu:N), or ask for fewer."
        )
    return count


def pool_of(spec: StudySpec, pool: DevicePool) -> DevicePool:
    """The devices of a worker that a study's command lets it use: `--include` and `--exclude` name GPUs."""
    included, excluded = spec.resources.chosen_gpus
    if pool.kind != "gpu" or spec.resources.uses_hostfile or spec.is_simulated:
        return pool
    kept = [index for index in pool.indices if index not in excluded and (included is None or index in included)]
    return replace(pool, indices=tuple(kept))


def most_ranks_of(spec: StudySpec, pool: DevicePool) -> int:
    """How many devices of this node the largest run of a study takes.

    Raises:
        DsoptError: more than the pool has.
    """
    return max(_ranks_of_runs(spec, pool))


def fewest_ranks_of(spec: StudySpec, pool: DevicePool) -> int:
    """How many devices of this node the smallest run of a study takes."""
    return min(_ranks_of_runs(spec, pool))


def _ranks_of_runs(spec: StudySpec, pool: DevicePool) -> list[int]:
    given = spec.autotuning.num_gpus
    tuned = [
        Candidate(stage=0, micro_batch=1, gas=1, knobs=((NUM_GPUS, number),))
        for number in (given if isinstance(given, list) else [])
    ]
    return [ranks_of(run, pool, candidate) for run in specs_of_runs(spec) for candidate in [None, *tuned]]
