"""How many devices of a worker a study's runs need, and which ones they may use."""

from dataclasses import replace

from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool, default_ranks
from dsopt.study.candidate_run import candidate_command
from dsopt.study.comparison import specs_of_runs
from dsopt.study.space import NUM_GPUS, Candidate
from dsopt.study.spec import StudySpec


def ranks_of(spec: StudySpec, pool: DevicePool, candidate: Candidate | None = None) -> int:
    """How many devices of this node a run needs; 0 if it is simulated, however many it pretends to have.

    Raises:
        DsoptError: it needs more than the pool has.
    """
    if spec.is_simulated:
        return 0
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
    """How many devices of this node the largest run of a study needs.

    Raises:
        DsoptError: it needs more than the pool has.
    """
    return max(_ranks_of_runs(spec, pool))


def fewest_ranks_of(spec: StudySpec, pool: DevicePool) -> int:
    """How many devices of this node the smallest run of a study needs."""
    return min(_ranks_of_runs(spec, pool))


def _ranks_of_runs(spec: StudySpec, pool: DevicePool) -> list[int]:
    given = spec.autotuning.num_gpus
    tuned = [
        Candidate(stage=0, micro_batch=1, gas=1, knobs=((NUM_GPUS, number),))
        for number in (given if isinstance(given, list) else [])
    ]
    return [ranks_of(run, pool, candidate) for run in specs_of_runs(spec) for candidate in [None, *tuned]]
