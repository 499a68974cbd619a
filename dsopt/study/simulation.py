"""The `simulation` section of a study: the cluster and the model of a dry run, which trains nothing."""

from typing import Annotated, Final

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self

from dsopt.study.documents import nearest
from dsopt.study.quantity import parse_bytes
from dsopt.study.strict import Strict

# what `dsopt.simulated` knows by name
GPUS: Final = (
    *("L4-24GB", "A10-24GB", "RTX3090-24GB", "RTX4090-24GB", "V100-32GB", "A100-40GB", "A6000-48GB", "L40S-48GB"),
    *("A100-80GB", "H100-80GB", "H200-141GB"),
)
MODELS: Final = (
    *("distilbert", "bert-base", "bert-large", "deberta-v2-xxlarge", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"),
    *("opt-1.3b", "pythia-2.8b", "pythia-6.9b", "pythia-12b", "qwen2.5-0.5b", "qwen2.5-1.5b", "tinyllama-1.1b"),
    *("llama-3.2-3b", "llama-2-7b", "mistral-7b", "llama-3-8b", "llama-2-13b", "qwen2.5-32b", "codellama-34b"),
    "llama-2-70b",
)

# what the start of a run counts for in a dry run, which starts at once
DRY_START_SECONDS: Final = 25.0


def _named(value: object) -> object:
    """A name alone is short for an object with that name."""
    return {"name": value} if isinstance(value, str) else value


def _known(names: tuple[str, ...]) -> BeforeValidator:
    def check(value: object) -> object:
        if value is None or value in names:
            return value
        meant = nearest(str(value), set(names), cutoff=0.6)
        hint = f"did you mean '{meant}'" if meant else f"expected one of {', '.join(names)}"
        raise ValueError(f"unknown name; {hint}")

    return BeforeValidator(check)


class SimulatedGpu(Strict):
    """A GPU by name, or by its numbers.

    Attributes:
        name: such as `H100-80GB`.
        memory: bytes of the device, such as `64GiB`.
        tflops: dense 16-bit operations a second, in 10¹².
        fp32_tflops: the same in fp32.
        memory_bandwidth: bytes a second.
    """

    name: Annotated[str | None, _known(GPUS)] = None
    memory: Annotated[int | None, BeforeValidator(parse_bytes)] = Field(None, ge=1)
    tflops: float | None = Field(None, gt=0)
    fp32_tflops: float | None = Field(None, gt=0)
    memory_bandwidth: Annotated[int | None, BeforeValidator(parse_bytes)] = Field(None, ge=1)

    @model_validator(mode="after")
    def _is_told(self) -> Self:
        if self.name is None and (self.memory is None or self.tflops is None):
            raise ValueError("expected a GPU's name such as H100-80GB, or memory and tflops")
        return self


class SimulatedModel(Strict):
    """A transformer by name, or by its shape. Given values override those of the name.

    Attributes:
        name: such as `llama-3-8b`.
        layers, hidden, heads, vocab: of the transformer.
        params, trainable_params: of the whole model; without them they follow from the shape.
        intermediate: width of the feed-forward part.
        sequence: tokens a sample.
        flash_attention: whether attention keeps no scores.
        checkpointing: whether layers are recomputed; the script's flag `--gradient_checkpointing` turns it on, too.
    """

    name: Annotated[str | None, _known(MODELS)] = None
    layers: int | None = Field(None, ge=1)
    hidden: int | None = Field(None, ge=1)
    heads: int | None = Field(None, ge=1)
    intermediate: int | None = Field(None, ge=1)
    vocab: int | None = Field(None, ge=1)
    sequence: int | None = Field(None, ge=1)
    params: int | None = Field(None, ge=1)
    trainable_params: int | None = Field(None, ge=1)
    flash_attention: bool = True
    checkpointing: bool = False

    @model_validator(mode="after")
    def _is_told(self) -> Self:
        if self.name is None and (self.layers is None or self.hidden is None):
            raise ValueError("expected a model's name such as gpt2-xl, or layers and hidden")
        if self.params is not None and (self.trainable_params or 0) > self.params:
            raise ValueError(f"trainable_params is more than params, {self.params}")
        return self


class Simulation(Strict):
    """What is simulated.

    Attributes:
        gpu: a GPU's name, or its numbers.
        model: a model's name, or its shape.
        gpus, nodes: GPUs of a node, and nodes, in the cluster; without them, those of the command.
        noise: coefficient of variation of a step's time.
        seed: another one is another cluster of the same kind.
    """

    gpu: Annotated[SimulatedGpu, BeforeValidator(_named)]
    model: Annotated[SimulatedModel, BeforeValidator(_named)]
    gpus: int | None = Field(None, ge=1, le=64)
    nodes: int | None = Field(None, ge=1, le=1024)
    noise: float = Field(0.02, ge=0, le=0.5)
    seed: int = Field(0, ge=0)
