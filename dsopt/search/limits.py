"""The batch sizes that a user allows."""

from collections.abc import Sequence

from dsopt.search.facts import ModelFacts
from dsopt.search.global_batch import keeping_accumulation, kept_sizes
from dsopt.search.sharding import replicas
from dsopt.study.own_sizes import is_open, keeps_accumulation, own_size, smallest_micro_batch
from dsopt.study.space import ACCUMULATION, Candidate, Setting
from dsopt.study.spec import StudySpec


def accumulations(spec: StudySpec, facts: ModelFacts, setting: Setting = ()) -> tuple[int, ...]:
    """The accumulations to try: the user's, else what the user's own run had; all that go with a kept batch."""
    kept = kept_sizes(spec, facts, setting)
    if kept is not None:
        return tuple(sorted(kept.values()))
    return spec.accumulation_list or (_own_accumulation(spec, facts),)


def _own_accumulation(spec: StudySpec, facts: ModelFacts) -> int:
    """That of the user's own run; where it did not run, the facts may be of any candidate."""
    if facts.own_ran or (facts.own_sizes is None and is_open(spec, ACCUMULATION)):
        return facts.gas
    return own_size(spec, ACCUMULATION) if facts.own_sizes is None else facts.own_sizes[1]


def accumulations_with(spec: StudySpec, facts: ModelFacts, setting: Setting, micro_batch: int) -> tuple[int, ...]:
    """The accumulations to try with a micro-batch size.

    If the user fixes none and gives no list, but a `max_train_batch_size`, this includes the one that fills it, as in
    DeepSpeed's autotuner. Where the user's own sizes did not run, it includes the one that keeps their global batch.
    """
    kept = kept_sizes(spec, facts, setting)
    if kept is not None:
        return (kept[micro_batch],) if micro_batch in kept else ()
    given, total = accumulations(spec, facts), spec.autotuning.max_train_batch_size
    if len(given) > 1 or keeps_accumulation(spec):
        return given
    fills = given[0] if total is None else max(1, total // (replicas(spec, facts, setting) * micro_batch))
    keeps = None if spec.accumulation_list else keeping_accumulation(spec, facts, setting, micro_batch)
    return tuple(sorted({min(given[0], fills), fills, *([keeps] if keeps else [])}))


def listed_sizes(spec: StudySpec, facts: ModelFacts, setting: Setting) -> tuple[int, ...] | None:
    """The micro-batch sizes to try, if the user lists them, or keeps the global batch; None: as memory allows.

    Of those that keep it, the ones below the user's own are for where that does not fit (`smallest_micro_batch`).
    """
    kept = kept_sizes(spec, facts, setting)
    if kept is None or spec.micro_batch_list is not None:
        return spec.micro_batch_list
    least, most = spec.autotuning.min_train_micro_batch_size_per_gpu, largest_in_budget(spec, facts, setting)
    return tuple(size for size in kept if size >= least and (most is None or size <= most))


def largest_in_budget(spec: StudySpec, facts: ModelFacts, setting: Setting, gas: int = 1) -> int | None:
    """The largest micro-batch size within `max_train_batch_size` and `max_train_micro_batch_size_per_gpu`.

    None: neither is given.
    """
    total, each = spec.autotuning.max_train_batch_size, spec.autotuning.max_train_micro_batch_size_per_gpu
    limits = [each] if each is not None else []
    if total is not None:
        limits.append(max(1, total // (replicas(spec, facts, setting) * gas)))
    return min(limits, default=None)


def in_budget(spec: StudySpec, facts: ModelFacts, setting: Setting, sizes: Sequence[int], gas: int) -> tuple[int, ...]:
    """The micro-batch sizes whose `train_batch_size` the user allows with a setting and an accumulation."""
    least, most = spec.autotuning.min_train_batch_size, spec.autotuning.max_train_batch_size
    ranks = replicas(spec, facts, setting)

    kept = kept_sizes(spec, facts, setting)

    def is_allowed(size: int) -> bool:
        if kept is not None and kept.get(size) != gas:
            return False
        batch = size * gas * ranks
        return (most is None or batch <= most or (size, gas) == (1, 1)) and batch >= least

    return tuple(filter(is_allowed, sizes))


def is_tried(spec: StudySpec, facts: ModelFacts, candidate: Candidate) -> bool:
    """Whether a study tries a candidate's batch sizes."""
    size, sizes = candidate.micro_batch, listed_sizes(spec, facts, candidate.knobs)
    if sizes is None:
        most = largest_in_budget(spec, facts, candidate.knobs)
        is_size = size >= smallest_micro_batch(spec) and (most is None or size <= most)
    else:
        is_size = size in sizes
    gases = accumulations_with(spec, facts, candidate.knobs, size)
    is_allowed = bool(in_budget(spec, facts, candidate.knobs, (size,), candidate.gas))
    return is_size and candidate.gas in gases and is_allowed
