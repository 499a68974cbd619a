"""The learning rate for another global batch size than the user's."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dsopt.protocol.text import significant
from dsopt.report.goal import comparative, times_text
from dsopt.report.readable import readable
from dsopt.search.facts import ModelFacts
from dsopt.search.global_batch import global_batch, own_batch, with_own_batch
from dsopt.search.history import BASELINE, History
from dsopt.search.standing import Ratio, ratio_of
from dsopt.study.candidate_run import candidate_command, run_config
from dsopt.study.command import LaunchCommand
from dsopt.study.ds_config import get_path, set_path
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec
from dsopt.study.trainer import LEARNING_RATE

# where DeepSpeed's configuration holds learning rates that scale with the optimizer's
_RATES: Final = (
    "optimizer.params.lr",
    "optimizer.params.muon_lr",
    "optimizer.params.adam_lr",
    "scheduler.params.warmup_min_lr",
    "scheduler.params.warmup_max_lr",
    "scheduler.params.cycle_max_lr",
    "scheduler.params.cycle_min_lr",
)
# numbers of steps, there and as flags of the Trainer
_STEPS: Final = (
    "scheduler.params.warmup_num_steps",
    "scheduler.params.total_num_steps",
    "scheduler.params.cycle_first_step_size",
    "scheduler.params.cycle_second_step_size",
    "scheduler.params.decay_step_size",
)
_STEP_FLAGS: Final = ("--max_steps", "--warmup_steps")
_MUCH: Final = 4  # times; a batch larger than that may need more samples to the same loss


def batches_text(best: int, own: int) -> str:
    """The global batches of a configuration and the user's own, a warning if much of a gain may come from them."""
    return f"{'WARNING: ' if best > _MUCH * own else ''}Its global batch is {best} samples, yours {own}."


@dataclass(frozen=True, slots=True, kw_only=True)
class SameBatch:
    """The best that was measured with the user's own global batch.

    Attributes:
        metric: of the study.
        candidate: its name for people; empty if nothing else was measured with it.
        ratio: how many times as good as the user's configuration it is; None if that does not run.
    """

    metric: str
    candidate: str
    ratio: Ratio | None

    def text(self) -> str:
        """What remains of the gain without a larger batch."""
        if not self.candidate:
            return (
                "Nothing else was measured with your own global batch; with another --name, tune --keep-global-batch "
                "searches with it."
            )
        if self.ratio is None:
            return f"The best with your own global batch: {self.candidate}."
        if self.ratio.factor <= 1:
            return f"With your own global batch, nothing that was measured is {comparative(self.metric)} than yours."
        times = times_text(self.metric, self.ratio.factor, "yours")
        told = f"The best with your own global batch, {self.candidate}, is {times}"
        low, high = self.ratio.interval
        doubt = "" if low > 1 else f": it may be no {comparative(self.metric)}"
        return f"{told} (95 % interval {low:.2f} to {high:.2f}){doubt}."


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAdvice:
    """The best configuration trains with another global batch than the user's.

    Attributes:
        study: its name.
        own, best: global batch sizes, in samples per optimizer step.
        same: the best that was measured with the user's.
        is_linear: whether the rate scales with the batch, as for SGD, or with its root.
        rates: the known learning rates of the best, by where they are set.
        steps: the known numbers of steps, and of steps of warm-up, by where they are set.
        is_seen: whether dsopt saw that the script's batches follow the micro-batch size, where that is another one.
    """

    study: str
    own: int
    best: int
    is_linear: bool
    rates: Mapping[str, float]
    steps: Mapping[str, int]
    same: SameBatch
    is_seen: bool = True

    @property
    def factor(self) -> float:
        """The factor by which to multiply the learning rate.

        √(B′/B) keeps the variance of the gradient's expectation; SGD and momentum do better with B′/B (DeepSpeed's
        autotuning tutorial).
        """
        ratio = self.best / self.own
        return ratio if self.is_linear else math.sqrt(ratio)

    def text(self, applied: bool = False) -> str:
        """The advice in a few sentences."""
        unseen = " WARNING: dsopt could not see the batches that your script feeds: check that they follow this size."
        told = [self._batches(), self._rates(applied=applied), self._steps(), self.same.text()]
        return " ".join(told) + ("" if self.is_seen else unseen)

    @property
    def times(self) -> float:
        """How many times as large as the user's the global batch is."""
        return self.best / self.own

    def short(self) -> str:
        """The batches in one short sentence, for places that show the factor and little more."""
        return batches_text(self.best, self.own)

    def _batches(self) -> str:
        told = f"The best trains with a global batch of {self.best} samples, your own with {self.own}"
        if self.times <= _MUCH:
            return f"{told}."
        return (
            f"WARNING: {told}: {significant(self.times, 3)} times as many. Much of the speed may come from that, and "
            "such a batch may need more samples to the same loss."
        )

    def _steps(self) -> str:
        share = self.own / self.best
        shown = f"{significant(share, 3)} times as many" if share > 1 else f"{significant(100 * share, 3)} % of the"
        told = f"The same samples then take {shown} steps: set numbers of steps, of warm-up too, accordingly"
        changes = [f"{place} {steps} → {max(1, round(steps * share))}" for place, steps in self.steps.items()]
        return f"{told}: {', '.join(changes)}." if changes else f"{told}."

    def _rates(self, *, applied: bool) -> str:
        rule = f"{self.best}/{self.own}" if self.is_linear else f"√({self.best}/{self.own})"
        changes = ", ".join(
            f"{place} {_rate(rate)} → {_rate(rate * self.factor)}" for place, rate in self.rates.items()
        )
        told = f": {changes}" if changes else ""
        if applied and not changes:
            return (
                f"WARNING: dsopt has changed no learning rate, because it knows none. Multiply yours by {rule} "
                f"= {significant(self.factor)}, or map its flag: autotuning.arg_mappings, optimizer.params.lr."
            )
        if applied:
            return f"The learning rate was scaled by {rule} = {significant(self.factor)}{told}."
        how = f" (dsopt study best {self.study} --apply-lr-scaling writes it)" if changes else ""
        return f"Scale the learning rate by {rule} = {significant(self.factor)}{told}{how}."


def batch_advice(spec: StudySpec, history: History, best: Candidate | None) -> BatchAdvice | None:
    """The advice for a study's best configuration; None if the batch is the user's or is not known."""
    facts = history.facts_for(spec)
    if best is None or facts is None:
        return None
    own, found = own_batch(spec, history, facts), global_batch(spec, facts, best)
    if own is None or own == found:
        return None
    kind = str(get_path(spec.ds_config, "optimizer.type") or "").lower()
    config, command = run_config(spec, best), candidate_command(spec, best)
    is_seen = best.micro_batch == facts.micro_batch or max(facts.rows, facts.step_rows) > 0 or spec.is_simulated
    same = _same_batch(spec, history, facts)
    return BatchAdvice(
        study=spec.name,
        own=own,
        best=found,
        is_linear=kind == "sgd",
        rates=_known_rates(spec, config, command),
        steps=_known_steps(spec, config, command),
        same=same,
        is_seen=is_seen,
    )


def _same_batch(spec: StudySpec, history: History, facts: ModelFacts) -> SameBatch:
    found = max(with_own_batch(spec, history, facts), key=history.score, default=None)
    if found is None or found.candidate is None or found.value is None:
        return SameBatch(metric=spec.autotuning.metric, candidate="", ratio=None)
    ratio = ratio_of(spec, history, found.name, BASELINE)
    return SameBatch(metric=spec.autotuning.metric, candidate=readable(found.candidate), ratio=ratio)


def scale_rates(
    advice: BatchAdvice, config: Mapping[str, Any], command: LaunchCommand
) -> tuple[dict[str, Any], LaunchCommand]:
    """A configuration and command with every known learning rate scaled."""
    scaled = copy.deepcopy(dict(config))
    for place, rate in advice.rates.items():
        if place.startswith("-"):
            command = command.with_script_value(place, _rate(rate * advice.factor))
        else:
            set_path(scaled, place, float(_rate(rate * advice.factor)))
    return scaled, command


def _known_rates(spec: StudySpec, config: Mapping[str, Any], command: LaunchCommand) -> dict[str, float]:
    rates: dict[str, float] = {}
    for path in _RATES:
        value = get_path(config, path)
        if isinstance(value, int | float) and not isinstance(value, bool) and value:
            rates[path] = float(value)
    mapped = [flag for path, flag in spec.autotuning.arg_mappings.items() if path in _RATES]
    for flag in dict.fromkeys([LEARNING_RATE, *mapped]):
        typed = _number(command.script_value(flag))
        if typed is not None:
            rates[flag] = typed
    return rates


def _known_steps(spec: StudySpec, config: Mapping[str, Any], command: LaunchCommand) -> dict[str, int]:
    """Numbers of steps; a share, or -1 for none, is no number of steps."""
    found = {path: get_path(config, path) for path in _STEPS}
    steps = {path: value for path, value in found.items() if isinstance(value, int) and value > 1}
    mapped = [flag for path, flag in spec.autotuning.arg_mappings.items() if path in _STEPS]
    for flag in dict.fromkeys([*_STEP_FLAGS, *mapped]):
        typed = command.script_value(flag)
        if typed is not None and typed.isdecimal() and int(typed) > 1:
            steps[flag] = int(typed)
    return steps


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def _rate(rate: float) -> str:
    return f"{rate:.4g}"
