"""What is known of the model and the devices, from a run or from what the user says about the model."""

from dataclasses import dataclass, replace

from dsopt.estimates.zero_memory import ParamBytes, bytes_per_param
from dsopt.protocol.events import Engine
from dsopt.study.autotuning import ModelInfo
from dsopt.study.ds_config import baseline_config, get_path
from dsopt.study.own_sizes import own_size
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, ZERO, Candidate, Setting
from dsopt.study.spec import StudySpec
from dsopt.study.trainer import filled_in


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What a run showed of the model and the device, as flat numbers.

    Attributes:
        num_params, trainable_params: parameters of the whole model.
        world_size: ranks.
        dtype: fp32, fp16 or bf16.
        autocast: what torch computes in, whatever that is; empty if in the same.
        device_memory_bytes: what one rank may use of its device.
        zero_stage, micro_batch, gas: what the engine ran with.
        peak_memory_bytes: the largest peak of any rank, as reserved from the device.
        peak_allocated_bytes: the same, as allocated for tensors; 0 if it was not reported.
        outside_bytes: in use on the device beside what torch reserved (context, communication libraries); 0 if it was
            not reported, as on the CPU.
        activation_bytes: what one forward pass of one micro-batch left allocated.
        largest_layer_params: the most parameters that one module holds itself.
        hidden_size, num_layers: of a transformer, if they could be read.
        flops_per_step: floating-point operations of one rank in one step, if they were counted.
        host_memory_bytes: memory of the node; 0 if it is not known.
        rows, elements, passes, step_rows, step_elements, is_evaluated: what the script fed, and how, as `Measured`.
        device: its name; empty if it is not known.
        sharing: ranks that share the samples of one replica, as those in a step show, beside AutoTP's; 1 if each has
            its own, or nobody saw it.
        autotp: ranks of an AutoTP group (`tensor_parallel.autotp_size`).
        pipeline_stages: parts of the model between which micro-batches flow; 1 without a pipeline.
        weight_bytes, gradient_bytes, optimizer_bytes: what the run was seen to hold for one parameter, wherever it
            kept it (`ParamBytes`); None if it was not seen.
        engines: how many engines that train a rank has built.
        own_ran: whether the user's own configuration was measured, so that these are of its run.
        own_sizes: micro-batch size and accumulation of the user's own run, as its engine told before it failed; None if
            what shows the rest is that run, or it told none.
        alloc_retries: how often a rank's allocator had to give cached blocks back, or ran out and was forgiven.
    """

    num_params: int
    trainable_params: int
    world_size: int
    dtype: str
    device_memory_bytes: int
    zero_stage: int
    micro_batch: int
    gas: int
    peak_memory_bytes: int
    activation_bytes: int
    largest_layer_params: int = 0
    hidden_size: int | None = None
    num_layers: int | None = None
    flops_per_step: float | None = None
    host_memory_bytes: int = 0
    rows: int = 0
    elements: int = 0
    passes: int = 0
    step_rows: float = 0.0
    step_elements: float = 0.0
    is_evaluated: bool = False
    peak_allocated_bytes: int = 0
    outside_bytes: int = 0
    device: str = ""
    sharing: int = 1
    autotp: int = 1
    pipeline_stages: int = 1
    weight_bytes: float | None = None
    gradient_bytes: float | None = None
    optimizer_bytes: float | None = None
    autocast: str = ""
    engines: int = 1
    alloc_retries: int = 0
    own_sizes: tuple[int, int] | None = None
    own_ran: bool = True

    @property
    def needed_bytes(self) -> int:
        """What decides whether memory runs out: tensors at their peak, and what torch does not count.

        Blocks that torch has cached do not count: it gives them back first. Where a run has not told what torch does
        not count, as on the CPU, it is the peak that was reserved.
        """
        if not self.outside_bytes:
            return self.peak_memory_bytes
        return (self.peak_allocated_bytes or self.peak_memory_bytes) + self.outside_bytes

    @property
    def held(self) -> ParamBytes:
        """What one parameter needs: as seen, else as data type and Adam have it."""
        usual = bytes_per_param(self.dtype)
        if not self.weight_bytes:
            return usual
        return ParamBytes(
            self.weight_bytes,
            usual.gradient if self.gradient_bytes is None else self.gradient_bytes,
            usual.optimizer if self.optimizer_bytes is None else self.optimizer_bytes,
        )

    def candidate(self, knobs: Setting = ()) -> Candidate:
        """What ran, by its own account: stage and sizes are the engine's. It says nothing about other settings."""
        return Candidate(stage=self.zero_stage, micro_batch=self.micro_batch, gas=self.gas, knobs=knobs)


def with_model_info(facts: ModelFacts, info: ModelInfo) -> ModelFacts:
    """What a run showed; what the user says about the model replaces it."""
    return replace(
        facts,
        num_params=info.num_params,
        trainable_params=info.trainable_num_params or info.num_params,
        activation_bytes=info.activation_mem_per_gpu * facts.micro_batch or facts.activation_bytes,
        hidden_size=info.hidden_size or facts.hidden_size,
        num_layers=info.num_layers or facts.num_layers,
    )


def facts_without_a_run(spec: StudySpec, engine: Engine | None) -> ModelFacts | None:
    """What is known if nothing was measured; None if that is not enough to compute model states.

    The model is from `model_info`, else from an engine that was built before its run failed. Devices are from that
    engine, else from the command, the configuration and `memory_per_device`; if none of them gives a device's memory,
    it is 0. A failed run counts as having filled its device.
    """
    info, ranks = spec.autotuning.model_info, spec.resources.ranks
    if engine is not None:
        facts = _of_engine(engine)
    elif info is not None and ranks is not None:
        facts = _of_command(spec, info, ranks * spec.resources.nodes)
    else:
        return None
    return facts if info is None else with_model_info(facts, info)


def _of_engine(engine: Engine) -> ModelFacts:
    return ModelFacts(
        num_params=engine.num_params,
        trainable_params=engine.trainable_params,
        world_size=engine.world_size,
        dtype=engine.dtype,
        autocast=engine.autocast,
        device_memory_bytes=engine.device_memory_bytes,
        zero_stage=engine.zero_stage,
        micro_batch=engine.micro_batch,
        gas=engine.gas,
        peak_memory_bytes=engine.device_memory_bytes,
        activation_bytes=0,
        largest_layer_params=engine.largest_layer_params,
        hidden_size=engine.hidden_size,
        num_layers=engine.num_layers,
        host_memory_bytes=engine.host_memory_bytes,
        device=engine.device,
        pipeline_stages=engine.pipeline_stages,
        autotp=engine.autotp,
        engines=engine.engines,
    )


def _of_command(spec: StudySpec, info: ModelInfo, world_size: int) -> ModelFacts:
    device = spec.memory_per_device or 0
    stage = get_path(baseline_config(spec.ds_config), f"{ZERO}stage")
    return ModelFacts(
        num_params=info.num_params,
        trainable_params=info.num_params,
        world_size=world_size,
        dtype=configured_dtype(spec),
        device_memory_bytes=device,
        zero_stage=stage if isinstance(stage, int) else 0,
        micro_batch=own_size(spec, MICRO_BATCH),
        gas=own_size(spec, ACCUMULATION),
        peak_memory_bytes=device,
        activation_bytes=0,
    )


def configured_dtype(spec: StudySpec) -> str:
    """The data type that the configuration asks for; "auto" means what the Hugging Face Trainer's flag says."""
    config = filled_in(spec.ds_config, spec.launch, spec.autotuning.arg_mappings)
    return next((dtype for dtype in ("bf16", "fp16") if get_path(config, f"{dtype}.enabled") is True), "fp32")
