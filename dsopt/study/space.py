"""The tuning space: what dsopt may try at each ZeRO stage, and the candidates that follow from it."""

import hashlib
import itertools
import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

from dsopt.study.ds_defaults import PARAM_PERSISTENCE_THRESHOLD, PREFETCH_BUCKET_SIZE
from dsopt.study.zero_stages import makes_difference

# None means "not given"
Knob: TypeAlias = bool | int | float | str | None
Setting: TypeAlias = tuple[tuple[str, Knob], ...]
STAGES: Final = (0, 1, 2, 3)

MICRO_BATCH: Final = "train_micro_batch_size_per_gpu"
ACCUMULATION: Final = "gradient_accumulation_steps"
NUM_GPUS: Final = "num_gpus"
NUM_NODES: Final = "num_nodes"
ZERO: Final = "zero_optimization."
OFFLOADS: Final = ("offload_optimizer", "offload_param")
# wide enough for every micro-batch size and accumulation, so that all trials of a study share one distribution
LARGEST: Final = 2**20

_LONGEST_NAME: Final = 150  # a file system takes 255 bytes, and `.json` or a number may follow

_BUCKETS: Final[tuple[Knob, ...]] = (50_000_000, 500_000_000, 1_000_000_000)
_SWITCH: Final[tuple[Knob, ...]] = (True, False)

_GRADIENTS: Final[dict[str, tuple[Knob, ...]]] = {
    "overlap_comm": _SWITCH,
    "reduce_scatter": _SWITCH,
    "reduce_bucket_size": _BUCKETS,
    "contiguous_gradients": _SWITCH,
}
# DeepSpeed's documented tuning spaces (DEFAULT_TUNING_SPACE_ZERO_0 … 3), used with `fast: false`, without the keys that
# DeepSpeed does not read: `allgather_bucket_size` and `allgather_partitions` (see `study/zero_stages.py`).
DEFAULT_KNOBS: Final[dict[int, dict[str, tuple[Knob, ...]]]] = {
    0: {},
    1: {"reduce_bucket_size": _BUCKETS},
    2: _GRADIENTS,
    3: _GRADIENTS,
}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Candidate:
    """One point of a stage's tuning space.

    Attributes:
        stage: ZeRO stage, 0 to 3.
        micro_batch: samples per GPU and micro-step.
        gas: micro-steps per optimizer step (gradient accumulation steps).
        knobs: everything else that is tuned, in the space's order. A key is a path in DeepSpeed's configuration such
            as `zero_optimization.overlap_comm`, a flag of the training script such as `--gradient_checkpointing`
            (None: absent; empty: given without a value), or `num_gpus` and `num_nodes` (per node, and nodes).
    """

    stage: int
    micro_batch: int
    gas: int
    knobs: Setting = ()

    @property
    def name(self) -> str:
        """The canonical name of DeepSpeed's tutorial, such as `z1_rbs5e+07_gas1_tmbspg11`.

        It is the name of a folder and of a row, so one that is too long for them ends with a digest.
        """
        initials = _abbreviations(tuple(key for key, _ in self.knobs))
        parts = [initials[key] + _shown(key, value) for key, value in self.knobs]
        name = "_".join([f"z{self.stage}", *parts, f"gas{self.gas}", f"tmbspg{self.micro_batch}"])
        if len(name) <= _LONGEST_NAME:
            return name
        return f"{name[: _LONGEST_NAME - 17]}_{hashlib.sha256(name.encode()).hexdigest()[:16]}"

    @property
    def params(self) -> dict[str, Knob]:
        """The candidate as parameters of an Optuna trial; the stage is the study's."""
        return {MICRO_BATCH: self.micro_batch, ACCUMULATION: self.gas, **dict(self.knobs)}

    @classmethod
    def from_params(cls, stage: int, params: Mapping[str, Any]) -> "Candidate":
        """The candidate that the `params` of an Optuna trial describe."""
        knobs = tuple((key, value) for key, value in params.items() if key not in (MICRO_BATCH, ACCUMULATION))
        return cls(stage=stage, micro_batch=params[MICRO_BATCH], gas=params[ACCUMULATION], knobs=knobs)

    @property
    def script_flags(self) -> dict[str, Knob]:
        """The knobs that are flags of the training script."""
        return {key: value for key, value in self.knobs if is_script_flag(key)}

    @property
    def config_values(self) -> dict[str, Knob]:
        """The knobs that are paths in DeepSpeed's configuration."""
        return {key: value for key, value in self.knobs if not is_script_flag(key) and not is_resource(key)}

    def resource(self, key: str) -> int | None:
        """`num_gpus` or `num_nodes`, where it is tuned."""
        value = dict(self.knobs).get(key)
        return value if isinstance(value, int) else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageSpace:
    """What dsopt may try at one ZeRO stage, other than batch sizes: knobs with their values, in order."""

    stage: int
    knobs: Mapping[str, tuple[Knob, ...]]

    def groups(self) -> Sequence[Setting]:
        """Every combination of the knobs that change what fits a device; each has its own range of micro-batches."""
        return _groups(self)

    def settings(self, group: Setting | None = None) -> Sequence[Setting]:
        """Every combination of knob values, or those of one group. dsopt finds the range with the first one.

        Combinations that differ only in what has no effect, such as a pinned buffer without offload, appear once.
        """
        return _settings(self, group)

    def candidates(
        self, micro_batches: Sequence[int], gases: Sequence[int], group: Setting | None = None
    ) -> Sequence[Candidate]:
        """Every combination of these micro-batch sizes and accumulations with the stage's (or a group's) settings."""
        return tuple(_by_name(self, tuple(micro_batches), tuple(gases), group).values())

    def untried(
        self, tried: Collection[str], micro_batches: Sequence[int], gases: Sequence[int], group: Setting | None = None
    ) -> list[Candidate]:
        """The same without those whose names are given."""
        by_name = _by_name(self, tuple(micro_batches), tuple(gases), group)
        return [by_name[name] for name in itertools.filterfalse(tried.__contains__, by_name)]

    def _repeats_another(self, setting: Setting) -> bool:
        chosen = dict(setting)
        for section in OFFLOADS:
            prefix = f"{ZERO}{section}."
            if chosen.get(f"{prefix}device", "not tuned") in (None, "none"):
                details = [key for key in chosen if key.startswith(prefix) and not key.endswith(".device")]
                if any(chosen[key] != self.knobs[key][0] for key in details):
                    return True
        scatter = f"{ZERO}reduce_scatter"
        if self.stage == 3 and scatter in chosen and chosen.get(f"{ZERO}contiguous_gradients") is False:
            return chosen[scatter] != self.knobs[scatter][0]  # ZeRO 3 reads it only with contiguous gradients
        return False


# A plan asks again and again for the same candidates, which may be thousands. What is remembered belongs to one object
# (`eq=False`): two spaces that Python calls equal may differ, because True == 1.


@lru_cache(maxsize=256)
def _groups(space: StageSpace) -> Sequence[Setting]:
    return tuple(dict.fromkeys(group_of(setting) for setting in space.settings()))


@lru_cache(maxsize=256)
def _settings(space: StageSpace, group: Setting | None) -> Sequence[Setting]:
    fixed = dict(group or ())
    values = [[fixed[key]] if key in fixed else list(choices) for key, choices in space.knobs.items()]
    settings = (tuple(zip(space.knobs, combination, strict=True)) for combination in itertools.product(*values))
    return tuple(setting for setting in settings if not space._repeats_another(setting))


@lru_cache(maxsize=256)
def _by_name(
    space: StageSpace, micro_batches: tuple[int, ...], gases: tuple[int, ...], group: Setting | None
) -> Mapping[str, Candidate]:
    candidates = (
        Candidate(stage=space.stage, micro_batch=micro_batch, gas=gas, knobs=setting)
        for gas in gases
        for micro_batch in micro_batches
        for setting in space.settings(group)
    )
    return {candidate.name: candidate for candidate in candidates}


def group_of(setting: Setting) -> Setting:
    """The part of a setting that changes what fits a device: all but the knobs of ZeRO's communication."""
    return tuple((key, value) for key, value in setting if not key.startswith(ZERO) or key.endswith(".device"))


def activation_knobs(setting: Setting) -> Setting:
    """The knobs that may change what a forward pass leaves: the script's flags and what lies outside of ZeRO."""
    return tuple((key, value) for key, value in setting if not key.startswith(ZERO) and not is_resource(key))


def is_script_flag(key: str) -> bool:
    """Whether a knob is a flag of the training script."""
    return key.startswith("-")


def is_resource(key: str) -> bool:
    """Whether a knob is a number of GPUs or nodes."""
    return key in (NUM_GPUS, NUM_NODES)


def stage_space(
    stage: int,
    *,
    fast: bool,
    user_zero: Mapping[str, Any],
    further: Mapping[str, tuple[Knob, ...]] | None = None,
    hidden_size: int | None = None,
) -> StageSpace:
    """The space of one stage: the documented knobs, replaced by the user's values and lists.

    A single value of the user's is fixed by the base configuration and is not a dimension. A list is one, even with
    `fast`, which leaves out only the documented knobs.

    Args:
        stage: ZeRO stage.
        fast: DeepSpeed's `fast`: no documented knobs.
        user_zero: the user's `zero_optimization`, offload sections included.
        further: dimensions outside of it: resources, script flags, other paths of the configuration.
        hidden_size: the model's, if known. ZeRO 3 has defaults that depend on it (`trainer_defaults`); dsopt tries them
            in addition to DeepSpeed's own.
    """
    documented = {} if fast else _documented(stage, hidden_size)
    knobs = {
        key: applying
        for key, values in (further or {}).items()
        if (applying := tuple(v for v in values if makes_difference(key.removeprefix(ZERO), v, stage)))
    }
    knobs |= {f"{ZERO}{key}": values for key, values in documented.items() if key not in user_zero}
    for path, values in listed_values(user_zero):
        applying = tuple(value for value in values if makes_difference(path, value, stage))
        if applying:
            knobs[f"{ZERO}{path}"] = applying
    return StageSpace(stage=stage, knobs=knobs)


def _documented(stage: int, hidden_size: int | None) -> dict[str, tuple[Knob, ...]]:
    knobs = dict(DEFAULT_KNOBS[stage])
    if stage == 3 and hidden_size:
        usual = {
            **knobs,
            "stage3_prefetch_bucket_size": (PREFETCH_BUCKET_SIZE,),
            "stage3_param_persistence_threshold": (PARAM_PERSISTENCE_THRESHOLD,),
        }
        for key, value in trainer_defaults(hidden_size).items():
            knobs[key] = tuple(dict.fromkeys([value, *usual[key]]))
    return knobs


def trainer_defaults(hidden_size: int) -> dict[str, int]:
    """What Hugging Face's Trainer fills in for "auto" in `zero_optimization`, by the model's hidden size.

    Source: `transformers/integrations/deepspeed.py`.
    """
    square = hidden_size * hidden_size
    return {
        "reduce_bucket_size": square,
        "stage3_prefetch_bucket_size": int(0.9 * square),
        "stage3_param_persistence_threshold": 10 * hidden_size,
    }


def listed_values(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, list[Any]]]:
    """The paths in the user's `zero_optimization`, including offload sections, that have a list of values to try."""
    for key, value in section.items():
        if key in OFFLOADS and isinstance(value, Mapping):
            yield from listed_values(value, f"{prefix}{key}.")
        elif isinstance(value, list) and prefix + key != "stage":
            yield prefix + key, value


@lru_cache(maxsize=256)
def _abbreviations(keys: tuple[str, ...]) -> Mapping[str, str]:
    """The initials of each key's words; if two keys share them, the whole key instead."""
    initials = {key: "".join(word[:1] for word in re.split(r"[._-]+", _said(key))) for key in keys}
    shared = {short for short in initials.values() if list(initials.values()).count(short) > 1}
    return {key: _said(key) if short in shared else short for key, short in initials.items()}


def _said(key: str) -> str:
    return key.removeprefix(ZERO).removesuffix(".device").lstrip("-")


def _shown(key: str, value: Knob) -> str:
    if isinstance(value, bool) or (is_script_flag(key) and value in (None, "")):
        return "T" if value or value == "" else "F"
    if value is None:
        return "none"
    if isinstance(value, int | float) and value > 9000:
        short = f"{value:g}"
        return short if float(short) == value else str(value)
    text = str(value)
    plain = re.sub(r"[^A-Za-z0-9.+-]+", "-", text)[:40]
    return plain if plain == text else f"{plain}{zlib.crc32(text.encode()):08x}"  # two values never share a name
