"""The global batch: samples of all ranks in one optimizer step."""

import math
from collections.abc import Iterator

from dsopt.search.facts import ModelFacts
from dsopt.search.history import BASELINE, History, Observation
from dsopt.search.sharding import autotp_of, replicas
from dsopt.study.ds_config import TRAIN_BATCH
from dsopt.study.own_sizes import is_open, own_size
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, Candidate, Setting
from dsopt.study.spec import StudySpec


def global_batch(spec: StudySpec, facts: ModelFacts, candidate: Candidate) -> int:
    """That of a candidate."""
    return candidate.micro_batch * candidate.gas * replicas(spec, facts, candidate.knobs)


def own_batch(spec: StudySpec, history: History, facts: ModelFacts) -> int | None:
    """That of the user's own configuration: as its run showed, else as the configuration says; None: nothing tells.

    Args:
        spec: the study.
        history: what has run.
        facts: of the history.
    """
    baseline = history.find(BASELINE)
    if baseline is not None and baseline.facts is not None:
        return batch_of_run(spec, baseline.facts, ())
    return None if facts.own_sizes is None and open_sizes(spec) else configured_batch(spec, facts)


def open_sizes(spec: StudySpec) -> list[str]:
    """The keys that decide on the user's own global batch, and whose values only the script knows."""
    if isinstance(spec.ds_config.get(TRAIN_BATCH), int):
        return []
    return [key for key in (MICRO_BATCH, ACCUMULATION) if is_open(spec, key)]


def batch_of_run(spec: StudySpec, shown: ModelFacts, setting: Setting) -> int:
    """That of a run of this setting, by what it showed."""
    return shown.micro_batch * shown.gas * replicas(spec, shown, setting)


def configured_batch(spec: StudySpec, facts: ModelFacts) -> int:
    """That of the user's own configuration, as it says.

    What it leaves open is as their own engine told, else as in the run that shows the model.
    """
    given = spec.ds_config.get(TRAIN_BATCH)
    if isinstance(given, int):
        return given // autotp_of(spec, facts, ())  # DeepSpeed counts the samples of its ranks apart
    told, left = facts.own_sizes or (facts.micro_batch, facts.gas), open_sizes(spec)
    sizes = zip((MICRO_BATCH, ACCUMULATION), told, strict=True)
    return replicas(spec, facts, ()) * math.prod(shown if key in left else own_size(spec, key) for key, shown in sizes)


def kept_sizes(spec: StudySpec, facts: ModelFacts, setting: Setting) -> dict[int, int] | None:
    """With `global_batch: keep`, each micro-batch size that divides it, with its accumulation; None without."""
    if spec.global_batch != "keep":
        return None
    share, rest = divmod(configured_batch(spec, facts), replicas(spec, facts, setting))
    if rest:
        return {}
    return {size: share // size for size in range(1, share + 1) if share % size == 0}


def keeping_accumulation(spec: StudySpec, facts: ModelFacts, setting: Setting, micro_batch: int) -> int | None:
    """The accumulation with which a micro-batch size keeps the user's global batch, where their own sizes did not run.

    None: no accumulation does, nothing tells that batch, or their own sizes did run.
    """
    if facts.own_ran or (facts.own_sizes is None and open_sizes(spec)):
        return None
    gas, rest = divmod(configured_batch(spec, facts), replicas(spec, facts, setting) * micro_batch)
    return None if rest else gas


def with_own_batch(spec: StudySpec, history: History, facts: ModelFacts) -> Iterator[Observation]:
    """The candidates that were measured here with the user's global batch."""
    own = own_batch(spec, history, facts)
    for seen in history.measured:
        if seen.candidate is not None and seen.imported is None and global_batch(spec, facts, seen.candidate) == own:
            yield seen
