"""The learning rate for another global batch size than the user's."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dsopt.search.history import History
from dsopt.search.sharding import replicas
from dsopt.study.candidate_run import candidate_command, run_config
from dsopt.study.command import LaunchCommand
from dsopt.study.ds_config import get_path, set_path
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec
from dsopt.study.trainer import DEFAULTS, LEARNING_RATE

# where DeepSpeed's configuration holds learning rates that scale with the optimizer's
_RATES: Final = (
    "optimizer.params.lr",
    "scheduler.params.warmup_max_lr",
    "scheduler.params.cycle_max_lr",
    "scheduler.params.cycle_min_lr",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAdvice:
    """The best configuration trains with another global batch than the user's.

    Attributes:
        own, best: global batch sizes, in samples per optimizer step.
        is_linear: whether the rate scales with the batch, as for SGD, or with its root.
        rates: the known learning rates of the best, by where they are set.
        is_seen: whether dsopt saw that the script's batches follow the micro-batch size, where that is another one.
    """

    own: int
    best: int
    is_linear: bool
    rates: Mapping[str, float]
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
        return self._advice(applied=applied) + ("" if self.is_seen else unseen)

    def _advice(self, *, applied: bool) -> str:
        rule = f"{self.best}/{self.own}" if self.is_linear else f"√({self.best}/{self.own})"
        changes = ", ".join(
            f"{place} {_rate(rate)} → {_rate(rate * self.factor)}" for place, rate in self.rates.items()
        )
        told = f": {changes}" if changes else ""
        head = f"The best trains with a global batch of {self.best} samples, your own with {self.own}."
        if applied and not changes:
            return (
                f"{head} WARNING: dsopt has changed no learning rate, because it knows none. Multiply yours by {rule} "
                f"= {self.factor:.3g}, or map its flag: autotuning.arg_mappings, optimizer.params.lr."
            )
        if applied:
            return f"{head} The learning rate was scaled by {rule} = {self.factor:.3g}{told}."
        how = " (--apply-lr-scaling writes it)" if changes else ""
        return f"{head} Scale the learning rate by {rule} = {self.factor:.3g}{told}{how}."


def batch_advice(spec: StudySpec, history: History, best: Candidate | None) -> BatchAdvice | None:
    """The advice for a study's best configuration; None if the batch is the user's or is not known."""
    baseline = history.find("baseline")
    facts = baseline.facts if baseline else None
    if best is None or facts is None:
        return None
    own_batch = facts.micro_batch * facts.gas * replicas(spec, facts, ())
    best_batch = best.micro_batch * best.gas * replicas(spec, facts, best.knobs)
    if own_batch == best_batch:
        return None
    kind = str(get_path(spec.ds_config, "optimizer.type") or "").lower()
    rates = _known_rates(spec, run_config(spec, best), candidate_command(spec, best))
    is_seen = best.micro_batch == facts.micro_batch or max(facts.rows, facts.step_rows) > 0 or spec.is_simulated
    return BatchAdvice(own=own_batch, best=best_batch, is_linear=kind == "sgd", rates=rates, is_seen=is_seen)


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
        if isinstance(value, int | float) and not isinstance(value, bool):
            rates[path] = float(value)
    mapped = [flag for path, flag in spec.autotuning.arg_mappings.items() if path in _RATES]
    for flag in dict.fromkeys([LEARNING_RATE, *mapped]):
        typed = _number(command.script_value(flag))
        if typed is not None:
            rates[flag] = typed
    if command.script_switch(LEARNING_RATE) is None and get_path(config, "optimizer.params.lr") == "auto":
        rates[LEARNING_RATE] = DEFAULTS[LEARNING_RATE]
    return rates


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def _rate(rate: float) -> str:
    return f"{rate:.4g}"
