"""The `autotuning` section, with the keys and defaults of DeepSpeed's tutorial."""

from typing import Annotated, Final, Literal

from pydantic import AliasChoices, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from dsopt.study.strict import Strict
from dsopt.study.tuners import known_tuners


def _mappings(value: object) -> object:
    """Flags as people write them: with stray spaces in keys, with or without leading dashes.

    `check_mappings` checks the keys later, against the configuration.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("expected an object of DeepSpeed keys and the script's flags")
    result = {}
    for key, flag in value.items():
        name = str(key).strip()
        if not isinstance(flag, str) or not flag.strip():
            raise ValueError(f"{name}: expected the script's flag, such as --per_device_train_batch_size")
        if name in result:
            raise ValueError(f"{name} appears twice")
        result[name] = flag.strip() if flag.strip().startswith("-") else f"--{flag.strip()}"
    return result


def _tuner(value: object) -> object:
    """A tuner's name, of dsopt's or of another package's (`study/tuners.py`), in any case."""
    if not isinstance(value, str):
        return value
    by_name = {name.lower(): name for name in known_tuners()}
    found = by_name.get(value.strip().lower())
    if found is None:
        *others, last = (repr(known) for known in known_tuners())
        expected = f"{', '.join(others)} or {last}"
        raise PydanticCustomError("literal_error", "Input should be {expected}", {"expected": expected})
    return found


def _metric(value: object) -> object:
    """Names in any case: the documents write FLOPS, DeepSpeed's code flops."""
    if not isinstance(value, str):
        return value
    name = value.strip()
    return "FLOPS" if name.lower() in ("flops", "flops_per_gpu") else name.lower()


def _counts(value: object) -> object:
    """One number, or a list of different ones to try."""
    listed = value if isinstance(value, list) else [value]
    if any(isinstance(number, bool) or not isinstance(number, int) or number < 1 for number in listed) or not listed:
        raise ValueError("expected a whole number of at least 1, or a list of such numbers to try")
    if len(set(listed)) < len(listed):
        raise ValueError("a number appears twice in the list")
    return value


class ModelInfo(Strict):
    """What the user knows about the model; dsopt uses it instead of a profile if the baseline does not run.

    Attributes:
        num_params, trainable_num_params: parameters of the whole model.
        activation_mem_per_gpu: bytes that one forward pass of one sample leaves allocated.
        hidden_size, num_layers: of the transformer.
        profile: DeepSpeed's switch for its own profiler; dsopt ignores it.
    """

    num_params: int = Field(ge=1)
    trainable_num_params: int | None = Field(None, ge=1)
    activation_mem_per_gpu: int = Field(0, ge=0)
    hidden_size: int | None = Field(None, ge=1)
    num_layers: int | None = Field(None, ge=1)
    profile: bool = False

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.trainable_num_params is not None and self.trainable_num_params > self.num_params:
            raise ValueError(f"trainable_num_params is more than num_params, {self.num_params}")
        return self


_UNITS: Final = {"throughput": "samples/s", "throughput_per_gpu": "samples/s/GPU", "FLOPS": "FLOPS/GPU"}


class Autotuning(Strict):
    """DeepSpeed's `autotuning` section, with the tutorial's defaults.

    Attributes:
        enabled: DeepSpeed's own switch; dsopt ignores it.
        results_dir: where run folders and result files go; by default `autotuning_results`.
        exps_dir: where the descriptions of the experiments go; by default `autotuning_exps`.
        overwrite: creating a finished study again starts it from scratch; dsopt keeps the files.
        metric: what to make best: `throughput` (samples/s), `throughput_per_gpu` (the same per GPU, so the cheapest
            where all cost the same), `latency` (ms per optimizer step), `FLOPS` (per GPU); `forward`, `backward`,
            `step` (ms of it).
        start_profile_step, end_profile_step: measure exactly these steps; if you give neither, dsopt detects the
            warm-up.
        fast: tune only ZeRO stages and micro-batch sizes; `false` adds the documented knobs of each stage.
        num_nodes, num_gpus: nodes, and GPUs per node; a list is a dimension. By default those of the command.
        max_train_batch_size, min_train_batch_size: bounds of micro-batch × accumulation × ranks ÷ `mp_size`.
        min_train_micro_batch_size_per_gpu: the smallest micro-batch size to try.
        max_train_micro_batch_size_per_gpu: the largest; by default 1024, and none with `stage_order: sequential`.
        mp_size: ranks that share a model replica.
        num_tuning_micro_batch_sizes: with `stage_order: sequential`, how many micro-batch sizes of a stage to explore;
            otherwise the models choose.
        tuner_type: `model_based`, `random`, `gridsearch`, or a sampler of Optuna: `tpe`, `gp`, `auto`, `cmaes`.
        tuner_early_stopping: the search ends after this many runs without a better one (per stage with
            `stage_order: sequential`, where 5 is the default). By default, the search over all stages ends when no run
            is worth its time.
        tuner_num_trials: at most this many runs per stage.
        arg_mappings: the script's flags that repeat a key of the configuration, by its path
            (`zero_optimization.stage`) or its name alone (`stage`). dsopt knows those of the Hugging Face Trainer.
        model_info: what you know of the model; by default dsopt reads it from the first run.
    """

    enabled: bool = True
    results_dir: str | None = None
    exps_dir: str | None = None
    overwrite: bool = False
    metric: Annotated[
        Literal["throughput", "throughput_per_gpu", "latency", "FLOPS", "forward", "backward", "step"],
        BeforeValidator(_metric),
    ] = "throughput"
    start_profile_step: int = Field(3, ge=0, validation_alias=AliasChoices("start_profile_step", "start_step"))
    end_profile_step: int = Field(5, ge=0, validation_alias=AliasChoices("end_profile_step", "end_step"))
    fast: bool = True
    num_nodes: Annotated[int | list[int] | None, BeforeValidator(_counts)] = None
    num_gpus: Annotated[int | list[int] | None, BeforeValidator(_counts)] = None
    max_train_batch_size: int | None = Field(None, ge=1)
    min_train_batch_size: int = Field(1, ge=1)
    min_train_micro_batch_size_per_gpu: int = Field(1, ge=1)
    max_train_micro_batch_size_per_gpu: int | None = Field(None, ge=1)
    mp_size: int = Field(1, ge=1)
    num_tuning_micro_batch_sizes: int = Field(3, ge=1)
    tuner_type: Annotated[str, BeforeValidator(_tuner)] = "model_based"
    tuner_early_stopping: int | None = Field(None, ge=1)
    tuner_num_trials: int = Field(50, ge=1)
    arg_mappings: Annotated[dict[str, str], BeforeValidator(_mappings)] = Field(default_factory=dict)
    model_info: ModelInfo | None = None

    @property
    def patience(self) -> int:
        """How many runs without a better one end a stage that is searched by itself: DeepSpeed's default is 5."""
        return self.tuner_early_stopping or 5

    @property
    def window(self) -> tuple[int, int] | None:
        """First and last step to measure, if the user set them; otherwise dsopt detects the warm-up."""
        given = {"start_profile_step", "end_profile_step"} & self.model_fields_set
        return (self.start_profile_step, self.end_profile_step) if given else None

    @property
    def unit(self) -> str:
        """The metric's unit, as people read it."""
        return _UNITS.get(self.metric, "ms/step")

    @property
    def maximize(self) -> bool:
        """Whether a larger metric is better."""
        return self.metric in ("throughput", "throughput_per_gpu", "FLOPS")
