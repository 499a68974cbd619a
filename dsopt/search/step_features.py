"""The features of a candidate that determine its step time, as numbers, and what is known of each beforehand."""

import math
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dsopt.search.device_speed import peak_flops
from dsopt.search.facts import ModelFacts
from dsopt.search.grid import Grid
from dsopt.search.least_memory import is_on, saves_activations
from dsopt.search.sharding import sharding_of
from dsopt.search.zero_settings import ZeroSettings
from dsopt.study.ds_defaults import ALLGATHER_BUCKET_SIZE, PREFETCH_BUCKET_SIZE, REDUCE_BUCKET_SIZE
from dsopt.study.space import NUM_NODES, ZERO, Knob, Setting, is_resource, is_script_flag
from dsopt.study.spec import StudySpec

Array: TypeAlias = NDArray[np.float64]
Prior: TypeAlias = dict[str, tuple[float, float]]

# coefficients: the expected share of the baseline's step, and the standard deviation of its logarithm
TERMS: Final = {
    "micro_step": (0.12, 1.2),
    "sample": (0.70, 0.8),
    "communication": (0.12, 1.3),
    "zero3": (0.04, 1.2),
    "optimizer": (0.05, 1.2),
    "optimizer_offload": (0.25, 1.0),
    "param_offload": (0.25, 1.0),
}
# what scales the logarithm of communication: expected, and its standard deviation
_SCALING: Final = {
    "stage 1": (0.0, 0.3),
    "stage 2": (0.1, 0.4),
    "stage 3": (0.1, 0.4),
    "all-reduce in place of reduce-scatter": (0.3, 0.3),
    "reduce bucket": (0.0, 0.15),
    "reduce bucket, squared": (0.05, 0.1),
    "allgather bucket": (0.0, 0.1),
    "prefetch": (-0.03, 0.1),
    "nodes": (0.3, 0.5),
}
# the part of the backward pass that hides communication, as a logit, without and with `overlap_comm`
_HIDING: Final = {"hidden without overlap": (-1.0, 1.0), "hidden with overlap": (0.8, 1.0)}
# what scales the logarithm of the whole step
_NOT_A_MULTIPLE_OF_8: Final = (0.025, 0.025)
_STAGE_SLOPE: Final = 0.01  # of log2 of the micro-batch size relative to the baseline's
# a size's kernels, alike at all stages: what its time differs from a smooth law, known at each octave
_BEND: Final = 0.025
_OCTAVES: Final = 14
_KNOB: Final = 0.015
SECOND: Final = {"throughput": 1.0, "latency": 1000.0}  # what a metric that whole steps show calls a second
_USED: Final = 0.45  # of what a device is good for
_OF_FLOPS: Final = 0.4  # standard deviation of the logarithm of that
_LEFT: Final = 0.8  # the same of what then remains to the host
_CONFIG_KNOB: Final = 0.1
_FLAG: Final = 0.25
_RECOMPUTING: Final = (0.2, 0.1)  # of activations, which is another forward pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """The features of n candidates.

    Attributes:
        micro_batch: sizes, `(n,)`.
        micro_steps: how many a step takes, one after the other: with a pipeline, until all have flowed through, `(n,)`.
        once, each: amounts of the terms in an optimizer step and in each micro-step, `(n, 7)`.
        scaling: what scales communication, `(n, 9)`.
        overlaps: 1 where communication overlaps the backward pass, `(n,)`.
        effects: what scales the whole step, `(n, e)`.
        sharpness: of the maximum of what host and device need in a micro-step; 1 is their sum, as on a CPU.
    """

    micro_batch: Array
    micro_steps: Array
    once: Array
    each: Array
    scaling: Array
    overlaps: Array
    effects: Array
    sharpness: float


class StepFeatures:
    """Turns candidates of a study into features.

    Attributes:
        prior: mean and standard deviation of the weight of every feature, in the order that `log_seconds` takes them.
    """

    def __init__(self, spec: StudySpec, facts: ModelFacts, own_seconds: float) -> None:
        self._spec = spec
        self._facts = facts
        self._zero = ZeroSettings(spec, facts.hidden_size)
        self._knobs = _free_values(spec, facts)
        self._sharpness = _OVERLAPPING if peak_flops(facts.device, "bf16") is not None else 1.0
        self._known: dict[tuple[int, Setting], tuple[Array, Array, Array, float, Array]] = {}
        self.prior = self._prior(own_seconds)

    @property
    def alike(self) -> list[str]:
        """The weights that are one group: effects of ZeRO's knobs, of which only their usual scale is known."""
        return [f"{key}={value!r}" for key, value in self._knobs if self._of_knob(key, value) == (0.0, _KNOB)]

    def of(self, grid: Grid) -> Features:
        """The features of n candidates."""
        rows = [self._of_setting(stage, setting) for stage, setting in grid.settings]
        once, each, scaling, overlaps, effects = (np.array(part)[grid.which] for part in zip(*rows, strict=True))
        return Features(
            micro_batch=grid.micro_batch,
            micro_steps=grid.gas + self._facts.pipeline_stages - 1,
            once=once,
            each=each,
            scaling=scaling,
            overlaps=overlaps,
            effects=np.hstack([self._by_size(grid), effects]),
            sharpness=self._sharpness,
        )

    def _of_setting(self, stage: int, setting: Setting) -> tuple[Array, Array, Array, float, Array]:
        known = self._known.get((stage, setting))
        if known is None:
            once, each = self._amounts(stage, setting)
            overlaps = float(stage >= 1 and self._zero(stage, setting, f"{ZERO}overlap_comm") is True)
            known = (once, each, self._scaling(stage, setting), overlaps, self._effects(stage, setting))
            self._known[stage, setting] = known
        return known

    def _amounts(self, stage: int, setting: Setting) -> tuple[Array, Array]:
        """What each term's coefficient multiplies, in a step and in each micro-step."""
        sharding = sharding_of(self._spec, self._facts, stage, setting)
        ranks = sharding.replicas
        trained = self._facts.trainable_params / self._facts.num_params
        once, each = ((ranks - 1) / ranks * moved for moved in _volume(stage, trained))
        updated = trained / (ranks if stage >= 1 else 1)
        optimizer, param = sharding.offload.optimizer, sharding.offload.param
        # the ranks of a node share its memory and cores
        on_host = updated * sharding.ranks_per_node * _slowness(optimizer)
        is_offloaded = optimizer != "none"
        return (
            np.array([0.0, 0.0, once, 0.0, 0.0 if is_offloaded else updated, on_host if is_offloaded else 0.0, 0.0]),
            np.array([1.0, 1.0, each, float(stage == 3), 0.0, 0.0, _slowness(param) if param != "none" else 0.0]),
        )

    def _scaling(self, stage: int, setting: Setting) -> Array:
        def zero(key: str) -> object:
            return self._zero(stage, setting, f"{ZERO}{key}")

        reduce_bucket = _decades(zero("reduce_bucket_size"), REDUCE_BUCKET_SIZE) if stage >= 1 else 0.0
        nodes = dict(setting).get(NUM_NODES)
        return np.array(
            [
                float(stage == 1),
                float(stage == 2),
                float(stage == 3),
                float(stage >= 1 and zero("reduce_scatter") is False),
                reduce_bucket,
                reduce_bucket**2,
                _decades(zero("allgather_bucket_size"), ALLGATHER_BUCKET_SIZE) if stage in (1, 2) else 0.0,
                _decades(zero("stage3_prefetch_bucket_size"), PREFETCH_BUCKET_SIZE) if stage == 3 else 0.0,
                math.log2(nodes / self._spec.resources.nodes) if isinstance(nodes, int) else 0.0,
            ]
        )

    def _effects(self, stage: int, setting: Setting) -> Array:
        """One feature for each value of a knob except the one in the user's own run."""
        own = {key: self._zero(stage, (), key) for key, _ in setting}
        has = {(key, repr(value)) for key, value in setting if value != own[key]}
        return np.array([float((key, repr(value)) in has) for key, value in self._knobs])

    def _by_size(self, grid: Grid) -> Array:
        """Effects of the micro-batch size: not a multiple of 8, a slope for each stage, a bend at each octave."""
        size = grid.micro_batch
        uneven = (size % 8 != 0) * np.minimum(1.0, 16.0 / size)
        stages = np.array([stage for stage, _ in grid.settings])[grid.which]
        slope = np.log2(size / self._facts.micro_batch)
        bends = np.maximum(0.0, 1 - np.abs(np.log2(size)[:, None] - np.arange(_OCTAVES)))
        return np.column_stack([uneven, *(slope * (stages == stage) for stage in range(4)), bends])

    def _prior(self, own_seconds: float) -> Prior:
        gas, is_wide = self._facts.gas + self._facts.pipeline_stages - 1, self._spec.resources.nodes > 1
        own_amounts = {
            "micro_step": gas,
            "sample": gas * self._facts.micro_batch,
            "communication": 1 if is_wide else 2,  # of all parameters; between nodes it is slower
            "zero3": gas,
            "param_offload": gas,
        }
        prior: Prior = {
            name: (math.log(share * own_seconds / own_amounts.get(name, 1)), deviation)
            for name, (share, deviation) in TERMS.items()
        }
        if (seconds := self._sample_seconds()) is not None:
            most = TERMS["sample"][0] + TERMS["micro_step"][0]  # of the step, which is what computing takes
            share = min(seconds * own_amounts["sample"] / own_seconds, most - TERMS["micro_step"][0])
            left = (most**self._sharpness - share**self._sharpness) ** (1 / self._sharpness)
            prior["sample"] = (math.log(share * own_seconds / own_amounts["sample"]), _OF_FLOPS)
            prior["micro_step"] = (math.log(left * own_seconds / gas), _LEFT)
        prior |= _SCALING | _HIDING | {"not a multiple of 8": _NOT_A_MULTIPLE_OF_8}
        prior |= {f"stage {stage} by size": (0.0, _STAGE_SLOPE) for stage in range(4)}
        prior |= {f"size {2**octave}": (0.0, _BEND) for octave in range(_OCTAVES)}
        return prior | {f"{key}={value!r}": self._of_knob(key, value) for key, value in self._knobs}

    def _of_knob(self, key: str, value: Knob) -> tuple[float, float]:
        """The effect of a knob's value in place of the user's own."""
        if saves_activations(key):
            return _RECOMPUTING[0] * (is_on(value) - is_on(self._spec.own_value(key))), _RECOMPUTING[1]
        if is_script_flag(key):
            return 0.0, _FLAG
        return 0.0, _KNOB if key.startswith(ZERO) else _CONFIG_KNOB

    def _sample_seconds(self) -> float | None:
        """How long a sample's operations take a rank, by what its device is good for; in the metric's terms.

        None if either is not known, or the metric is not the time of whole steps.
        """
        facts, second = self._facts, SECOND.get(self._spec.autotuning.metric)
        rate = peak_flops(facts.device, facts.autocast or facts.dtype)
        if rate is None or second is None or not facts.flops_per_step:
            return None
        return second * facts.flops_per_step / (facts.micro_batch * facts.gas) / (_USED * rate)


def log_seconds(features: Features, weights: Array) -> Array:
    """The logarithm of a step's seconds, shape `(..., n)`, by the formula of `search/steptime.py`.

    Communication c beside a backward pass of b seconds is exposed for c − η·c·b/(c + b): all but a part η of it is
    hidden where there is little, and never more than η·b.

    Args:
        features: of n candidates.
        weights: one for each feature, `(..., k)`.
    """
    coefficients = np.exp(weights[..., None, : len(TERMS)])
    scaling, hiding, effects = np.split(weights[..., len(TERMS) :], [len(_SCALING), len(_SCALING) + len(_HIDING)], -1)
    each = features.each * coefficients
    each[..., _SAMPLE] *= features.micro_batch
    once = features.once * coefficients
    scale = np.exp(scaling @ features.scaling.T)
    # on a GPU, the host launches kernels meanwhile, so that the longer of the two counts
    sharpness = features.sharpness
    compute = (each[..., _MICRO_STEP] ** sharpness + each[..., _SAMPLE] ** sharpness) ** (1 / sharpness)
    each[..., _MICRO_STEP], each[..., _SAMPLE] = compute, 0.0
    backward = _BACKWARD * compute
    bare, overlapped = hiding[..., :1], hiding[..., 1:]
    hidden = 1 / (1 + np.exp(-np.where(features.overlaps > 0, overlapped, bare)))
    for amounts in (once, each):
        moved = amounts[..., _COMMUNICATION] * scale
        amounts[..., _COMMUNICATION] = moved - hidden * moved * backward / (moved + backward)
    seconds: Array = np.log(once.sum(-1) + features.micro_steps * each.sum(-1)) + effects @ features.effects.T
    return seconds


_MICRO_STEP, _SAMPLE, _COMMUNICATION = 0, 1, 2
_OVERLAPPING: Final = 1.5  # as the published step times of small models show it
_BACKWARD: Final = 0.65  # of a micro-step's compute


def _volume(stage: int, trained: float) -> tuple[float, float]:
    """Elements that a rank moves, per parameter of the model: in a step, and in each micro-step."""
    if stage <= 1:
        return 2 * trained, 0.0
    return (trained, trained) if stage == 2 else (0.0, 2 + trained)


def _slowness(device: str) -> float:
    return 4.0 if device == "nvme" else 1.0


def _decades(value: object, usual: int) -> float:
    """How many powers of ten a bucket is larger than DeepSpeed's default."""
    return math.log10(value / usual) if isinstance(value, int | float) and value > 0 else 0.0


def _free_values(spec: StudySpec, facts: ModelFacts) -> list[tuple[str, Knob]]:
    """The values of knobs whose effect only runs can show."""
    values: dict[tuple[str, str], Knob] = {}
    for stage in spec.stages:
        for key, choices in spec.space(stage, facts.hidden_size).knobs.items():
            if not is_resource(key) and not key.endswith("offload_optimizer.device"):
                values |= {(key, repr(choice)): choice for choice in choices}
    return [(key, choice) for (key, _), choice in values.items()]
