"""What the best configuration changes against the user's own, key by key, and what each change is worth."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from dsopt.report.failures import has_alternatives
from dsopt.report.goal import baseline_text
from dsopt.report.optimal import optimal_candidate
from dsopt.report.readable import readable_name
from dsopt.report.setup import STAGE, differences, follows_stage, own_setup, setup_of
from dsopt.search.global_batch import configured_batch
from dsopt.search.history import BASELINE, History, Observation
from dsopt.search.sharding import replicas
from dsopt.search.standing import Comparison, compare, ratio_of
from dsopt.study.candidate_run import candidate_command
from dsopt.study.ds_config import TRAIN_BATCH
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, NUM_GPUS, NUM_NODES, Candidate
from dsopt.study.spec import StudySpec

_BATCH_FACTORS: Final = (MICRO_BATCH, ACCUMULATION, NUM_NODES, NUM_GPUS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What one change is worth: the best against the measured trial that differs from it in this key alone.

    Attributes:
        factor: ratio of their metrics; above 1 is better, whatever the metric.
        interval: its 95 % interval.
        best, other: names of the two.
        label: what people read for `other`.
    """

    factor: float
    interval: tuple[float, float]
    best: str
    other: str
    label: str

    @property
    def is_within_noise(self) -> bool:
        """Whether the change may be worth nothing."""
        return self.interval[0] <= 1 <= self.interval[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One key whose value in the best differs from the user's.

    Attributes:
        key: a path in DeepSpeed's configuration, a flag of the script, `num_gpus` or `num_nodes`.
        old, new: the user's value and the best's; None means not given. A flag without a value is an empty text.
        worth: None if no measured trial shows it.
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
        comparison: the result, with the factor of all changes together.
        alternatives: whether anything but the user's own was measured.
        changes: what the best changes; empty when it is the user's own.
        following: what changes with them.
    """

    study: str
    metric: str
    unit: str
    comparison: Comparison
    alternatives: bool
    changes: Sequence[Change]
    following: Sequence[Following]

    def to_json(self) -> dict[str, Any]:
        """All of it as data."""
        content = asdict(self) | {"sentence": self.sentence()}
        for data, change in zip(content["changes"], self.changes, strict=True):
            if change.worth is not None:
                data["worth"]["is_within_noise"] = change.worth.is_within_noise
        return content

    def text(self) -> str:
        """A table of the changes, and what they are worth together."""
        return "\n".join([*table(self), *([""] if self.changes else []), self.sentence()])

    def sentence(self) -> str:
        """What all changes are worth together, and which single worths are unknown."""
        if not self.alternatives:
            return "Nothing to compare: only your own configuration was measured, so dsopt cannot judge the others."
        if not self.changes:
            return "Nothing to change: your own configuration is the best."
        result = self.comparison
        if result.speedup is None:
            said = ["No speed-up can be given, because your configuration does not run."]
        else:
            head = "All changes together" if len(self.changes) > 1 else "This change"
            said = [f"{head}: {baseline_text(self.metric, result.speedup, result.interval)}"]
        unknown = [change.key for change in self.changes if change.worth is None]
        if len(unknown) < len(self.changes) and len(self.changes) > 1:
            said.append(
                "Each worth is that of one change with all the others already made, so they need not multiply to "
                "the total."
            )
        if unknown:
            worth, them = ("worth", "it") if len(unknown) == 1 else ("separate worths", "just one of them")
            said.append(
                f"The {worth} of {_listed(unknown)} {'is' if len(unknown) == 1 else 'are'} unknown: no measured trial "
                f"has your value of {them} and otherwise equals the best."
            )
        return " ".join(said)


def best_diff(spec: StudySpec, history: History) -> Diff:
    """Compares the best configuration with the user's own.

    Only for histories for which `compare` gives a result.

    Args:
        spec: the study.
        history: everything that counts of it.
    """
    comparison = compare(spec, history)
    assert comparison is not None
    best = optimal_candidate(spec, history)
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
                worth = _worth(spec, history, comparison.best, pairs[key]) if key in pairs else None
                changes.append(Change(key=key, old=old, new=new, worth=worth))
        following += _batch(spec, history, best, own, found)
        following += _mapped_flags(spec, best)
    return Diff(
        study=spec.name,
        metric=spec.autotuning.metric,
        unit=spec.autotuning.unit,
        comparison=comparison,
        alternatives=has_alternatives(spec, history),
        changes=changes,
        following=following,
    )


def _pairs(spec: StudySpec, history: History, best: Candidate, own: Mapping[str, Any]) -> dict[str, Observation]:
    """For each key, the measured trial that equals the best except that this key has the user's value.

    The user's own run comes first: a candidate that is the same under another name has no runs.
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


def _worth(spec: StudySpec, history: History, name: str, other: Observation) -> Worth | None:
    """The best against another, by what all runs say; an imported figure is not compared with any other."""
    found = ratio_of(spec, history, name, other.name)
    if found is None:
        return None
    label = readable_name(other.name, other.candidate)
    return Worth(factor=found.factor, interval=found.interval, best=name, other=other.name, label=label)


def _batch(
    spec: StudySpec, history: History, best: Candidate, own: Mapping[str, Any], changed: Mapping[str, object]
) -> list[Following]:
    """The global batch, if it differs."""
    facts = history.facts
    if facts is None:
        return []
    micro_batch, gas = own.get(MICRO_BATCH), own.get(ACCUMULATION)
    old = spec.ds_config.get(TRAIN_BATCH)
    if isinstance(micro_batch, int) and isinstance(gas, int):
        old = micro_batch * gas * replicas(spec, facts, ())
    elif isinstance(old, int):
        old = configured_batch(spec, facts)
    new = best.micro_batch * best.gas * replicas(spec, facts, best.knobs)
    because = [key for key in _BATCH_FACTORS if key in changed]
    return [] if old == new else [Following(key=TRAIN_BATCH, old=old, new=new, because=because)]


def _mapped_flags(spec: StudySpec, best: Candidate) -> list[Following]:
    """The script's flags that repeat a key of the configuration, if they differ."""
    own, command = candidate_command(spec, None), candidate_command(spec, best)
    flags = {flag: key for key, flag in spec.autotuning.arg_mappings.items() if flag not in best.script_flags}
    both = {flag: (own.script_switch(flag), command.script_switch(flag)) for flag in flags}
    return [
        Following(key=flag, old=old, new=new, because=(flags[flag],)) for flag, (old, new) in both.items() if old != new
    ]


def _listed(keys: Sequence[str]) -> str:
    return keys[0] if len(keys) == 1 else f"{', '.join(keys[:-1])} and {keys[-1]}"


def table(result: Diff) -> list[str]:
    """One line per change, in aligned columns; empty if there is none."""
    rows = [(c.key, shown(c.key, c.old), shown(c.key, c.new), worth_text(c.worth)) for c in result.changes]
    rows += [(f.key, shown(f.key, f.old), shown(f.key, f.new), follows_text(f.because)) for f in result.following]
    if not result.changes:
        return []
    rows.insert(0, ("key", "yours", "best", "worth"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows]


def shown(key: str, value: object) -> str:
    """A value for people: as JSON has it, text without quotes."""
    if value is None:
        return "not given"
    if value == "" and key.startswith("-"):
        return "given"
    return value if isinstance(value, str) and value else json.dumps(value)


def worth_text(worth: Worth | None) -> str:
    """What a change is worth, against which trial, and how sure that is."""
    if worth is None:
        return "unknown"
    interval = f" ({worth.interval[0]:.2f}–{worth.interval[1]:.2f})"
    doubt = ", within noise" if worth.is_within_noise else ""
    return f"{worth.factor:.2f}×{interval} against {worth.label}{doubt}"


def follows_text(because: Sequence[str]) -> str:
    """Which changes a key follows from."""
    return f"follows from {', '.join(because)}"
