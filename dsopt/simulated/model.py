"""Shapes: the transformer that is trained, the devices and nodes it is trained on, and what no data sheet says."""

from dataclasses import dataclass
from typing import Final

ELEMENT_BYTES: Final = {"fp32": 4, "fp16": 2, "bf16": 2}
GIB: Final = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A transformer and how its script trains it.

    Attributes:
        params, trainable_params: of the whole model; LoRA trains few.
        intermediate: width of the feed-forward part.
        is_gated: whether that part has a gate (three matrices instead of two).
        has_logits: whether the loss is over the vocabulary at every token (language models), or over few classes.
        is_flash: whether attention keeps no scores (FlashAttention).
        is_checkpointing: whether layers are recomputed in the backward pass.
        sequence: tokens a sample.
        dtype: `fp32`, `fp16` or `bf16`, if DeepSpeed's configuration says nothing.
    """

    name: str
    params: int
    trainable_params: int
    layers: int
    hidden: int
    heads: int
    intermediate: int
    vocab: int
    sequence: int
    is_gated: bool = False
    has_logits: bool = True
    is_flash: bool = False
    is_checkpointing: bool = False
    dtype: str = "fp32"

    @property
    def largest_layer_params(self) -> int:
        """Elements of the largest single weight."""
        return max(self.vocab, self.intermediate) * self.hidden

    @property
    def layer_params(self) -> int:
        """Elements of one layer's matrices: all that is neither embedding nor head."""
        return max(1, (self.params - self.vocab * self.hidden) // self.layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU by its data sheet: bytes as `torch.cuda` reports them, dense operations and bytes per second."""

    name: str
    memory_bytes: int
    half_flops_per_second: float
    single_flops_per_second: float
    memory_bytes_per_second: float
    processors: int
    pcie_bytes_per_second: float

    def flops_per_second(self, dtype: str) -> float:
        """Peak of dense matrix products; fp32 without TF32, as torch has it by default."""
        return self.single_flops_per_second if dtype == "fp32" else self.half_flops_per_second


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Nodes of equal GPUs.

    Attributes:
        intra_bytes_per_second: what a collective moves through one GPU within a node.
        inter_bytes_per_second: what a collective moves through all network cards of a node.
        host_memory_bytes: of one node.
    """

    device: Device
    nodes: int
    gpus_per_node: int
    intra_bytes_per_second: float
    inter_bytes_per_second: float
    host_memory_bytes: int

    @property
    def ranks(self) -> int:
        """All GPUs."""
        return self.nodes * self.gpus_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What no data sheet says about a model on a cluster. Drawn at random, or calibrated to published figures.

    Attributes:
        efficiency: share of the device's peak that large matrix products reach.
        half_tokens: tokens a micro-batch at which they reach half of that (for a hidden size of 2048).
        alignment_loss: what an odd micro-batch size costs, in large ones.
        falloff: loss per doubling of the tokens beyond `falloff_tokens`.
        traffic: bytes that element-wise kernels move, in units of the activations.
        launch_seconds: host time for the kernels of one layer, forward and backward.
        hook_seconds: what stage 0 to 3 adds per layer and micro-step (hooks, copies, small synchronisations).
        activation_factor: activations of this implementation in units of the formula.
        logit_bytes: bytes per element of the logits at their peak, gradients and copies included.
        workspace_bytes: the largest workspace that a library takes.
        fragmentation: mean share that the caching allocator wastes.
        irreducible: share of it that it cannot give back before it runs out.
        stage_fragmentation: the same share, added at stage 0 to 3.
        keeps_gradients: whether gradients stay allocated between steps (`zero_grad(set_to_none=False)`).
        context_bytes: what each rank holds beyond torch's counters (CUDA context, libraries).
        rank_bytes: the same, per doubling of ranks (communication buffers).
        overlap: share of what could be hidden behind the backward pass that is hidden.
        contention: slow-down of what communication hides behind.
        intra_latency_seconds, inter_latency_seconds: of a collective, per doubling of GPUs and of nodes.
        half_message_bytes: message size at which a collective reaches half of its bandwidth.
        congestion: loss of bandwidth between nodes, per doubling of nodes.
        optimizer_seconds: fixed cost of an optimizer step.
        host_adam_params_per_second: what the CPUs of a node update.
        data_seconds_per_sample: data loading that is not hidden.
        outside_seconds: of each step, outside of forward, backward and step (logging, scheduler, loss).
        gpu_spread, node_spread: standard deviation of the speed of GPUs and of nodes.
        idiosyncrasy: standard deviation of what no smooth model explains.
        launch_spread: standard deviation of what a launch has in common.
        correlation: of one step's noise with the next one's.
        start_seconds: from the start of the ranks to the first step.
    """

    efficiency: float = 0.5
    half_tokens: float = 800.0
    alignment_loss: float = 0.02
    falloff: float = 0.005
    falloff_tokens: float = 32768.0
    traffic: float = 4.0
    launch_seconds: float = 1.2e-3
    hook_seconds: tuple[float, float, float, float] = (0.0, 1e-4, 3e-4, 1e-3)
    activation_factor: float = 1.0
    logit_bytes: float = 10.0
    workspace_bytes: float = 256e6
    fragmentation: float = 0.04
    irreducible: float = 0.25
    stage_fragmentation: tuple[float, float, float, float] = (0.0, 0.0, 0.005, 0.01)
    keeps_gradients: bool = False
    context_bytes: float = 1.0e9
    rank_bytes: float = 1.0e8
    overlap: float = 0.8
    contention: float = 0.05
    intra_latency_seconds: float = 1.5e-5
    inter_latency_seconds: float = 4e-5
    half_message_bytes: float = 8e6
    congestion: float = 0.04
    optimizer_seconds: float = 3e-3
    host_adam_params_per_second: float = 1.5e9
    data_seconds_per_sample: float = 5e-5
    outside_seconds: float = 2e-3
    gpu_spread: float = 0.01
    node_spread: float = 0.015
    idiosyncrasy: float = 0.01
    launch_spread: float = 0.0075
    correlation: float = 0.25
    start_seconds: float = 25.0
