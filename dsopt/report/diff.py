"""What the best configuration changes against the user's own, key by key, and what each change was worth."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from dsopt.report.doubts import RunQuality
from dsopt.report.setup import STAGE, differences, follows_stage, own_setup, setup_of
from dsopt.report.summary import optimal_candidate, speedup_text
from dsopt.search.confirm import Comparison, compare, confirmed_ratio, launch_half_width
from dsopt.search.history import BASELINE, History, Observation
from dsopt.search.sharding import replicas
from dsopt.study.candidate_run import candidate_command
from dsopt.study.ds_config import TRAIN_BATCH
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, NUM_GPUS, NUM_NODES, Candidate
from dsopt.study.spec import StudySpec

_BATCH_FACTORS: Final = (MICRO_BATCH, ACCUMULATION, NUM_NODES, NUM_GPUS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What one change is worth: the best against the measured trial that differs from it in this key alone.

    Attributes:
        factor: ratio of their metrics, turned so that above 1 is better whatever the metric.
        interval: its 95 % interval; None when it cannot be told.
        best, other: names of the two.
        is_confirmed: whether both were measured in the confirmation, or are single runs of the search.
    """

    factor: float
    interval: tuple[float, float] | None
    best: str
    other: str
    is_confirmed: bool

    @property
    def is_within_noise(self) -> bool:
        """Whether the change may be worth nothing, as far as the interval is known."""
        return self.interval is not None and self.interval[0] <= 1 <= self.interval[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One key that the best has otherwise than the user.

    Attributes:
        key: a path in DeepSpeed's configuration, a flag of the script, `num_gpus` or `num_nodes`.
        old, new: the user's value and the best's; None is not given. A flag without a value is empty text.
        worth: None when no trial was measured that tells.
    """

    key: str
    old: object
    new: object
    worth: Worth | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """A key that changes only because others do: `because` names them."""

    key: str
    old: object
    new: object
    because: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """The best configuration of a study against the user's own.

    Attributes:
        study, metric, unit: what it is about.
        comparison: the confirmed result, with the factor of all changes together.
        changes: what the best changes; empty when it is the user's own.
        following: what changes with them.
    """

    study: str
    metric: str
    unit: str
    comparison: Comparison
    changes: Sequence[Change]
    following: Sequence[Following]

    def to_json(self) -> dict[str, Any]:
        """All of it as data."""
        content = asdict(self) | {"sentence": self.sentence()}
        for data, change in zip(content["changes"], self.changes, strict=True):
            if change.worth is not None:
                data["worth"]["is_within_noise"] = change.worth.is_within_noise
        return content

    def sentence(self) -> str:
        """What all changes are worth together, and what is not known of the single ones."""
        if not self.changes:
            return "There is nothing to change: the best is your own configuration."
        result = self.comparison
        if result.speedup is None:
            said = ["No speed-up can be given, because your configuration does not run."]
        else:
            head = "All together" if len(self.changes) > 1 else "That is"
            said = [f"{head}: {speedup_text(result.speedup, result.interval)}"]
        unknown = [change.key for change in self.changes if change.worth is None]
        if len(unknown) < len(self.changes) and len(self.changes) > 1:
            said.append(
                "A worth is that of one change where all the others are made already; they need not multiply to "
                "the whole."
            )
        if unknown:
            verb, them = ("is", "it") if len(unknown) == 1 else ("are", "one of them")
            said.append(
                f"What {_listed(unknown)} {verb} worth alone is not known: no measured trial has your value of {them} "
                "and is otherwise the best."
            )
        return " ".join(said)


def best_diff(spec: StudySpec, history: History, qualities: Sequence[RunQuality]) -> Diff:
    """Compares the best configuration with the user's own.

    Only for histories that `compare` gives a result for.

    Args:
        spec: what the study asks.
        history: all that counts of it.
        qualities: of every measured run, for the intervals of single ones.
    """
    comparison = compare(history)
    assert comparison is not None
    best = optimal_candidate(history)
    changes: list[Change] = []
    following: list[Following] = []
    if best is not None:
        own = own_setup(spec, history, best)
        found = dict(differences(own, setup_of(spec, best)))
        pairs = _pairs(spec, history, best, own)
        for key, (old, new) in found.items():
            if follows_stage(key, old, new):
                following.append(Following(key=key, old=old, new=new, because=(STAGE,)))
            else:
                worth = _worth(history, comparison.best, pairs[key], qualities) if key in pairs else None
                changes.append(Change(key=key, old=old, new=new, worth=worth))
        following += _batch(spec, history, best, own, found)
        following += _mapped_flags(spec, best)
    return Diff(
        study=spec.name,
        metric=spec.autotuning.metric,
        unit=spec.autotuning.unit,
        comparison=comparison,
        changes=changes,
        following=following,
    )


def _pairs(spec: StudySpec, history: History, best: Candidate, own: Mapping[str, Any]) -> dict[str, Observation]:
    """For each key the measured trial that is the best but for this key, in which it is the user's.

    The user's own comes first: a candidate that is the same under another name has no runs of its own.
    """
    target = setup_of(spec, best)
    wanted = dict(differences(own, target))
    baseline = history.find(BASELINE)
    runs = [(baseline, own)] if baseline is not None and baseline.value is not None else []
    runs += [(o, setup_of(spec, o.candidate)) for o in history.measured if o.candidate is not None]
    pairs: dict[str, Observation] = {}
    for run, setup in runs:
        apart = {key: both for key, both in differences(setup, target) if not follows_stage(key, *both)}
        if len(apart) == 1 and all(wanted.get(key) == both for key, both in apart.items()):
            pairs.setdefault(next(iter(apart)), run)
    return pairs


def _worth(history: History, name: str, other: Observation, qualities: Sequence[RunQuality]) -> Worth | None:
    """The best against another: by the confirmation if both were in it, else by their single runs in the search.

    The interval of single runs is the wider one of two: that of the steps within the runs, and that of the differences
    between launches, where the confirmation shows them. A figure that was imported is compared with none.
    """
    confirmed = confirmed_ratio(history, name, other.name)
    if confirmed is not None:
        return Worth(
            factor=confirmed.factor, interval=confirmed.interval, best=name, other=other.name, is_confirmed=True
        )
    best = next(o for o in history.measured if o.name == name)
    if best.imported is not None or other.imported is not None:
        return None
    value = best.value
    assert value is not None
    assert other.value is not None
    factor = value / other.value if history.maximize else other.value / value
    halves = {q.name: q.interval_percent / 100 for q in qualities if not q.drifting}
    interval = None
    if name in halves and other.name in halves:
        half = math.hypot(halves[name], halves[other.name], launch_half_width(history))
        interval = (factor * math.exp(-half), factor * math.exp(half))
    return Worth(factor=factor, interval=interval, best=name, other=other.name, is_confirmed=False)


def _batch(
    spec: StudySpec, history: History, best: Candidate, own: Mapping[str, Any], changed: Mapping[str, object]
) -> list[Following]:
    """The global batch, where it is another."""
    facts = history.facts
    if facts is None:
        return []
    micro_batch, gas = own.get(MICRO_BATCH), own.get(ACCUMULATION)
    old = spec.ds_config.get(TRAIN_BATCH)
    if isinstance(micro_batch, int) and isinstance(gas, int):
        old = micro_batch * gas * replicas(spec, facts, ())
    new = best.micro_batch * best.gas * replicas(spec, facts, best.knobs)
    because = [key for key in _BATCH_FACTORS if key in changed]
    return [] if old == new else [Following(key=TRAIN_BATCH, old=old, new=new, because=because)]


def _mapped_flags(spec: StudySpec, best: Candidate) -> list[Following]:
    """The script's flags that repeat a key of the configuration, where they are others."""
    own, command = candidate_command(spec, None), candidate_command(spec, best)
    flags = {flag: key for key, flag in spec.autotuning.arg_mappings.items() if flag not in best.script_flags}
    both = {flag: (own.script_switch(flag), command.script_switch(flag)) for flag in flags}
    return [
        Following(key=flag, old=old, new=new, because=(flags[flag],)) for flag, (old, new) in both.items() if old != new
    ]


def _listed(keys: Sequence[str]) -> str:
    return keys[0] if len(keys) == 1 else f"{', '.join(keys[:-1])} and {keys[-1]}"
