"""The study spec: everything a person says about one tuning job, checked at the edge."""

import hashlib
import json
import re
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from dsopt.study.command import LaunchCommand
from dsopt.study.ds_config import user_zero, zero_stages
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, StageSpace, stage_space

MAPPABLE = (MICRO_BATCH, ACCUMULATION)
_BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_bytes(value: object) -> object:
    """A number of bytes from a number or from text such as `24GiB`, `80GB` or `512M` (powers of 1000 without an i)."""
    if not isinstance(value, str):
        return value
    match = _BYTES.fullmatch(value.strip())
    if match is None:
        raise ValueError("expected a number of bytes, such as 24GiB or 80GB")
    number, prefix, binary = match.groups()
    if len(number) > 18:
        raise ValueError("expected a number of bytes that a device can have")
    return int(float(number) * (1024 if binary else 1000) ** _POWER[prefix.lower()])


def _mappings(value: object) -> object:
    """Flags as people write them: stray spaces in keys, with and without the leading dashes."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("expected an object of DeepSpeed keys and the script's flags")
    result = {}
    for key, flag in value.items():
        name = str(key).strip()
        if name not in MAPPABLE:
            raise ValueError(f"cannot map '{name}'; expected one of {', '.join(MAPPABLE)}")
        if not isinstance(flag, str) or not flag.strip():
            raise ValueError(f"{name}: expected the script's flag, such as --per_device_train_batch_size")
        result[name] = flag.strip() if flag.strip().startswith("-") else f"--{flag.strip()}"
    return result


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Autotuning(_Strict):
    """DeepSpeed's `autotuning` section, with the tutorial's defaults."""

    enabled: bool = True
    results_dir: str | None = None
    exps_dir: str | None = None
    overwrite: bool = False
    metric: Literal["throughput", "latency", "FLOPS"] = "throughput"
    start_profile_step: int = Field(3, ge=0, validation_alias=AliasChoices("start_profile_step", "start_step"))
    end_profile_step: int = Field(5, ge=0, validation_alias=AliasChoices("end_profile_step", "end_step"))
    fast: bool = True
    max_train_batch_size: int | None = Field(None, ge=1)
    min_train_micro_batch_size_per_gpu: int = Field(1, ge=1)
    max_train_micro_batch_size_per_gpu: int | None = Field(None, ge=1)
    mp_size: int = Field(1, ge=1)
    num_tuning_micro_batch_sizes: int = Field(3, ge=1)
    tuner_type: Annotated[
        Literal["model_based", "random", "gridsearch"],
        BeforeValidator(lambda v: v.strip() if isinstance(v, str) else v),
    ] = "model_based"
    tuner_early_stopping: int = Field(5, ge=1)
    tuner_num_trials: int = Field(50, ge=1)
    arg_mappings: Annotated[dict[str, str], BeforeValidator(_mappings)] = Field(default_factory=dict)

    @property
    def window(self) -> tuple[int, int] | None:
        """First and last step to measure, where the user set them; otherwise warm-up is detected."""
        given = {"start_profile_step", "end_profile_step"} & self.model_fields_set
        return (self.start_profile_step, self.end_profile_step) if given else None

    @property
    def unit(self) -> str:
        """The metric's unit, as people read it."""
        return {"throughput": "samples/s", "latency": "ms/step", "FLOPS": "FLOPS/GPU"}[self.metric]

    @property
    def maximize(self) -> bool:
        """Whether a larger metric is better."""
        return self.metric != "latency"


class MeasurementBudget(_Strict):
    """How long one run is measured.

    Attributes:
        precision: half-width of the 95 % interval of the mean step time, relative to it, that ends a run.
        max_steps: optimizer steps after which a run ends whatever its interval.
        max_seconds: the same in seconds, counted from the end of the first step.
    """

    precision: float = Field(0.02, gt=0, lt=1)
    max_steps: int = Field(300, ge=5)
    max_seconds: float = Field(120.0, gt=0)


class Confirmation(_Strict):
    """How the best is confirmed: so many finalists and the baseline, measured again in so many interleaved rounds."""

    finalists: int = Field(2, ge=1)
    rounds: int = Field(3, ge=2)


class StudySpec(_Strict):
    """One tuning job. Immutable once created; its hash tells two specs apart.

    Attributes:
        name: the study's name, also the prefix of its Optuna studies.
        command: the launch command exactly as typed today.
        cwd: folder the command is started in, absolute.
        ds_config: DeepSpeed's configuration without its `autotuning` section.
        timeout_seconds: a run that has not been measured by then is ended.
        memory_per_device: cap on what one rank may use of its device, in bytes.
        max_attempts: how often a candidate is launched when the run dies without an exception of its own.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    command: str
    cwd: str
    ds_config: dict[str, Any]
    autotuning: Autotuning = Field(default_factory=lambda: Autotuning())
    timeout_seconds: float = Field(900.0, gt=0)
    memory_per_device: Annotated[int | None, BeforeValidator(parse_bytes)] = Field(None, ge=1)
    measurement: MeasurementBudget = Field(default_factory=lambda: MeasurementBudget())
    confirmation: Confirmation = Field(default_factory=lambda: Confirmation())
    max_attempts: int = Field(2, ge=1)

    @property
    def launch(self) -> LaunchCommand:
        """The command, taken apart."""
        return LaunchCommand.parse(self.command, f"study '{self.name}': command")

    @property
    def stages(self) -> tuple[int, ...]:
        """ZeRO stages to explore, ascending."""
        return zero_stages(self.ds_config)

    def space(self, stage: int) -> StageSpace:
        """The tuning space of one stage."""
        return stage_space(stage, fast=self.autotuning.fast, user_zero=user_zero(self.ds_config))

    @property
    def micro_batch_list(self) -> tuple[int, ...] | None:
        """The micro-batch sizes to try where the user lists them."""
        value = self.ds_config.get(MICRO_BATCH)
        return tuple(sorted(set(value))) if isinstance(value, list) else None

    @property
    def results_dir(self) -> str:
        """Where run directories and the final files go, relative to `cwd` or absolute."""
        return self.autotuning.results_dir or f"autotuning_results/{self.name}"

    @property
    def exps_dir(self) -> str:
        """Where the experiment descriptions go, relative to `cwd` or absolute."""
        return self.autotuning.exps_dir or f"autotuning_exps/{self.name}"

    def to_json(self) -> str:
        """The spec as canonical JSON text; only what was set stands in it, so that defaults may improve."""
        return json.dumps(self.model_dump(mode="json", exclude_unset=True), sort_keys=True)

    @property
    def digest(self) -> str:
        """SHA-256 of what would change a result: everything but `overwrite`."""
        content = json.loads(self.to_json())
        content.get("autotuning", {}).pop("overwrite", None)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
