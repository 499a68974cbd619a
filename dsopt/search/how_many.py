"""How many candidates a study has beside the user's own configuration, where it says how large they may be."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dsopt.search.baseline_twin import baseline_test
from dsopt.search.facts import ModelFacts
from dsopt.search.history import BASELINE, History, Observation
from dsopt.search.limits import accumulations, accumulations_with, in_budget, largest_in_budget, listed_sizes
from dsopt.search.verdicts import ONLY_OWN
from dsopt.study.ds_config import get_path
from dsopt.study.own_sizes import keeps_accumulation, own_size, smallest_micro_batch
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, ZERO, Candidate, Setting, StageSpace
from dsopt.study.spec import StudySpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """How many candidates one stage has beside the user's own configuration.

    Attributes:
        usual: those that are at least as large as the user's own micro-batch size.
        all: with the smaller ones, which are tried only where that size may not fit.
    """

    usual: int
    all: int


def others_before(spec: StudySpec) -> Mapping[int, Others] | None:
    """The same before the first run, by stage; None if only memory limits them, or if what counts is not known yet."""
    tuning, ranks = spec.autotuning, spec.resources.ranks
    goes_by_ranks = tuning.max_train_batch_size is not None or tuning.min_train_batch_size > 1
    if ranks is None and (goes_by_ranks or spec.global_batch == "keep"):
        return None
    if 3 in spec.stages and not tuning.fast and tuning.model_info is None:
        return None  # the first run tells the hidden size, and some values come from that
    facts = _as_configured(spec, (ranks or 1) * spec.resources.nodes)
    own = Observation(
        trial=0, name=BASELINE, round=0, candidate=None, phase="explore", state="running", reason=None, message="",
        value=None, facts=facts,
    )  # fmt: skip
    return others_of(spec, facts, History(reference=[own], stages={}))


def others_of(spec: StudySpec, facts: ModelFacts, history: History) -> Mapping[int, Others] | None:
    """How many candidates each stage has, tried or not; None if only memory limits their sizes.

    Args:
        spec: the study.
        facts: what is known of the model, the ranks, and the sizes of the user's own run.
        history: has the user's own run, which is not run again as a candidate.
    """
    known = history.learnt.get(_Counted)  # it does not change from run to run, and large spaces take a while
    if not isinstance(known, _Counted) or known.facts != facts:
        is_own, found = baseline_test(spec, history), {}
        for stage in spec.stages:
            found[stage] = _of_stage(spec, facts, spec.space(stage, facts.hidden_size), is_own)
        counted = {stage: others for stage, others in found.items() if others is not None}
        known = _Counted(facts=facts, others=counted if len(counted) == len(found) else None)
        history.learnt[_Counted] = known
    return known.others


def is_alone(spec: StudySpec, history: History) -> bool:
    """Whether the user's own configuration ran and is the only candidate: nothing else was tried, nor is there more.

    There may be more that runs have ruled out, such as other values of what the script sets itself.
    """
    facts, own = history.facts_for(spec), history.find(BASELINE)
    if facts is None or own is None or own.facts is None or history.observations:
        return False
    others = others_of(spec, facts, history)
    is_only = bool(history.verdicts) and set(history.verdicts.values()) == {ONLY_OWN}
    return is_only or (others is not None and not any(stage.usual for stage in others.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    facts: ModelFacts
    others: Mapping[int, Others] | None


def _of_stage(
    spec: StudySpec, facts: ModelFacts, space: StageSpace, is_own: Callable[[Candidate], bool]
) -> Others | None:
    usual = every = 0
    for group in space.groups():
        pairs = _sizes(spec, facts, space, group)
        if pairs is None:
            return None
        settings, (size, gas) = space.settings(group), (facts.micro_batch, facts.gas)
        own = (size, gas) in pairs and any(
            is_own(Candidate(stage=space.stage, micro_batch=size, gas=gas, knobs=setting)) for setting in settings
        )
        floor = 1 if spec.micro_batch_list is not None else smallest_micro_batch(spec)
        every += len(settings) * len(pairs) - own
        usual += len(settings) * sum(size >= floor for size, _ in pairs) - own
    return Others(usual=usual, all=every)


def _as_configured(spec: StudySpec, world_size: int) -> ModelFacts:
    """The user's own run as command and configuration say it; nothing is known of its model."""
    stage = get_path(spec.own_config, f"{ZERO}stage")
    return ModelFacts(
        num_params=0,
        trainable_params=0,
        world_size=world_size,
        dtype="fp32",
        device_memory_bytes=0,
        zero_stage=stage if isinstance(stage, int) else 0,
        micro_batch=own_size(spec, MICRO_BATCH),
        gas=own_size(spec, ACCUMULATION),
        peak_memory_bytes=0,
        activation_bytes=0,
    )


def _sizes(spec: StudySpec, facts: ModelFacts, space: StageSpace, group: Setting) -> list[tuple[int, int]] | None:
    """The pairs of micro-batch size and accumulation that a study allows for a group of settings."""
    sizes = listed_sizes(spec, facts, group)
    if sizes is None:
        first = space.settings(group)[0]
        gas = accumulations(spec, facts)[0] if keeps_accumulation(spec) else 1
        most = largest_in_budget(spec, facts, first, gas)
        if most is None:
            return None
        sizes = tuple(range(spec.autotuning.min_train_micro_batch_size_per_gpu, most + 1))
    return [
        (size, gas)
        for size in sizes
        for gas in accumulations_with(spec, facts, group, size)
        if in_budget(spec, facts, group, (size,), gas)
    ]
