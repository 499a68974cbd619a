"""The global batch: samples of all ranks in one optimizer step."""

from collections.abc import Iterator

from dsopt.search.facts import ModelFacts
from dsopt.search.history import BASELINE, History, Observation
from dsopt.search.sharding import replicas
from dsopt.study.ds_config import TRAIN_BATCH
from dsopt.study.own_sizes import own_size
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, Candidate, Setting
from dsopt.study.spec import StudySpec


def global_batch(spec: StudySpec, facts: ModelFacts, candidate: Candidate) -> int:
    """That of a candidate."""
    return candidate.micro_batch * candidate.gas * replicas(spec, facts, candidate.knobs)


def own_batch(spec: StudySpec, history: History, facts: ModelFacts) -> int:
    """That of the user's own configuration: as its run showed, else as the configuration says."""
    baseline = history.find(BASELINE)
    shown = baseline.facts if baseline is not None else None
    return configured_batch(spec, facts) if shown is None else batch_of_run(spec, shown, ())


def batch_of_run(spec: StudySpec, shown: ModelFacts, setting: Setting) -> int:
    """That of a run of this setting, by what it showed."""
    return shown.micro_batch * shown.gas * replicas(spec, shown, setting)


def configured_batch(spec: StudySpec, facts: ModelFacts) -> int:
    """That of the user's own configuration, as it says; what it leaves open is as in the run that shows the model."""
    given = spec.ds_config.get(TRAIN_BATCH)
    if isinstance(given, int):
        return given
    sizes = [
        shown if spec.ds_config.get(key) == "auto" and own_size(spec, key) == 1 else own_size(spec, key)
        for key, shown in ((MICRO_BATCH, facts.micro_batch), (ACCUMULATION, facts.gas))
    ]
    return sizes[0] * sizes[1] * replicas(spec, facts, ())


def kept_sizes(spec: StudySpec, facts: ModelFacts, setting: Setting) -> dict[int, int] | None:
    """With `global_batch: keep`, each micro-batch size that divides it, with its accumulation; None without."""
    if spec.global_batch != "keep":
        return None
    share, rest = divmod(configured_batch(spec, facts), replicas(spec, facts, setting))
    if rest:
        return {}
    return {size: share // size for size in range(1, share + 1) if share % size == 0}


def with_own_batch(spec: StudySpec, history: History, facts: ModelFacts) -> Iterator[Observation]:
    """The candidates that were measured here with the user's global batch."""
    own = own_batch(spec, history, facts)
    for seen in history.measured:
        if seen.candidate is not None and seen.imported is None and global_batch(spec, facts, seen.candidate) == own:
            yield seen
