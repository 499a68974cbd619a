"""What a worker has to know of a study before it decides."""

from dsopt.errors import DsoptError
from dsopt.experiment.devices import DevicePool, default_ranks
from dsopt.search.history import History, Observation, observe
from dsopt.store.attempts import claimed_trials
from dsopt.store.studies import REFERENCE, Store, StoredStudy
from dsopt.study.spec import StudySpec


def load_history(store: Store, study: StoredStudy) -> History:
    """What counts of a study, from its Optuna studies and the claims."""
    counted = claimed_trials(store, study)
    stages: dict[int, list[Observation]] = {}
    verdicts: dict[int, str] = {}
    reference: list[Observation] = []
    for part in study.parts:
        optuna_study = store.optuna_study(study, part)
        numbers = {number for name, number in counted if name == part}
        trials = optuna_study.get_trials(deepcopy=False)
        if part == REFERENCE:
            reference = observe(trials, numbers, None)
            continue
        stage = int(part.removeprefix("z"))
        stages[stage] = observe(trials, numbers, stage)
        verdict = optuna_study.user_attrs.get("verdict")
        if verdict:
            verdicts[stage] = verdict
    maximize = study.spec.autotuning.maximize
    return History(reference=reference, stages=stages, verdicts=verdicts, maximize=maximize)


def ranks_of(spec: StudySpec, pool: DevicePool) -> int:
    """How many devices a run of the study takes.

    Raises:
        DsoptError: more than the pool has.
    """
    given = spec.launch.option("--num_gpus", "--num_accelerators")
    count = int(given) if given is not None else default_ranks(pool)
    if count > len(pool.indices):
        raise DsoptError(
            f"study '{spec.name}': command: --num_gpus {count}: this worker has {pool}. "
            "Give it more with --devices (on a machine without GPUs: --devices cpu:N), or ask for fewer."
        )
    return count
