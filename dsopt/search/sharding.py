"""How a candidate spreads model states: over which ranks, and what it offloads."""

from dataclasses import dataclass
from typing import Final, cast

from dsopt.estimates.zero_memory import Offload, OffloadDevice, device_state_bytes, host_state_bytes
from dsopt.search.facts import ModelFacts
from dsopt.study.space import NUM_GPUS, NUM_NODES, OFFLOADS, ZERO, Setting
from dsopt.study.spec import StudySpec

_AUTOTP: Final = "tensor_parallel.autotp_size"
_SECONDARY: Final = f"{ZERO}zero_hpz_partition_size"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """What decides how large a rank's model states are.

    Attributes:
        stage: ZeRO stage.
        nodes, ranks_per_node: what the job runs on.
        model_parallel: ranks that share one replica (`mp_size`, or those of AutoTP).
        offload: where optimizer states and parameters live.
        secondary: ranks that share another copy of the weights at ZeRO 3 (`zero_hpz_partition_size`); 1 without one.
    """

    stage: int
    nodes: int
    ranks_per_node: int
    model_parallel: int
    offload: Offload
    secondary: int = 1

    @property
    def replicas(self) -> int:
        """Data-parallel replicas."""
        return max(1, self.nodes * self.ranks_per_node // self.model_parallel)

    def device_bytes(self, facts: ModelFacts) -> float:
        """Model states on one rank's device."""
        return (
            device_state_bytes(
                self.stage,
                params=facts.num_params,
                trainable=facts.trainable_params,
                ranks=self.replicas,
                dtype=facts.dtype,
                offload=self.offload,
                largest_layer=facts.largest_layer_params * self.model_parallel,  # a rank has its part of it whole
                held=facts.held,
            )
            / self.model_parallel
        ) + (self._secondary_bytes(facts) if self.offload.param == "none" else 0.0)

    def gradient_bytes(self, facts: ModelFacts) -> float:
        """The gradients among them."""
        if self.offload.optimizer != "none" and self.stage >= 2:
            return 0.0
        share = self.replicas if self.stage >= 2 else 1
        return facts.held.gradient * facts.trainable_params / share / self.model_parallel

    def updated_params(self, facts: ModelFacts) -> float:
        """Parameters that this rank updates with states on its device."""
        if self.offload.optimizer != "none":
            return 0.0
        return facts.trainable_params / (self.replicas if self.stage >= 1 else 1) / self.model_parallel

    def host_bytes(self, facts: ModelFacts, *, accumulates: bool = False) -> float:
        """Model states in one node's host memory; `accumulates`: with more than one micro-step a step."""
        secondary = self._secondary_bytes(facts) * self.ranks_per_node if self.offload.param == "cpu" else 0.0
        return secondary + host_state_bytes(
            self.stage,
            params=facts.num_params,
            trainable=facts.trainable_params,
            ranks=self.nodes * self.ranks_per_node,
            ranks_per_node=self.ranks_per_node,
            dtype=facts.dtype,
            offload=self.offload,
            held=facts.held,
            accumulates=accumulates,
        )

    def _secondary_bytes(self, facts: ModelFacts) -> float:
        """A rank's share of the secondary copy of the weights, which lies where the first one does.

        Source: `_partition_param_sec` in `deepspeed/runtime/zero/partition_parameters.py`, 0.19.8.
        """
        if self.stage < 3 or self.secondary <= 1:
            return 0.0
        return facts.held.weight * facts.num_params / self.secondary / self.model_parallel


def world_size(spec: StudySpec, facts: ModelFacts, setting: Setting) -> tuple[int, int]:
    """Nodes, and ranks on each, that a candidate with this setting runs on; the baseline's if it sets neither."""
    chosen = dict(setting)
    nodes, ranks = chosen.get(NUM_NODES), chosen.get(NUM_GPUS)
    own_nodes = spec.resources.nodes
    own_ranks = max(1, facts.world_size // own_nodes)
    return nodes if isinstance(nodes, int) else own_nodes, ranks if isinstance(ranks, int) else own_ranks


def replicas(spec: StudySpec, facts: ModelFacts, setting: Setting) -> int:
    """Data-parallel replicas of a candidate: `train_batch_size` is micro-batch × accumulation × these.

    Ranks share one as the user says (`mp_size`), else as the run showed. Whether they also share its weights, the run
    does not show: in sequence parallelism each has all of them.
    """
    nodes, ranks = world_size(spec, facts, setting)
    shared = spec.autotuning.mp_size
    if shared == 1:
        shared = facts.sharing * autotp_of(spec, facts, setting)
    return max(1, nodes * ranks // shared)


def autotp_of(spec: StudySpec, facts: ModelFacts, setting: Setting) -> int:
    """The ranks of a candidate's AutoTP group: what the configurations leave open, the script decides."""
    given = dict(setting).get(_AUTOTP, spec.own_value(_AUTOTP))
    if isinstance(given, int) and given > 0:
        return given
    return 1 if _AUTOTP in spec.search.ds_config else facts.autotp


def sharding_of(spec: StudySpec, facts: ModelFacts, stage: int, setting: Setting) -> Sharding:
    """The sharding of a candidate: the user's configuration with the candidate's stage and setting."""
    nodes, ranks = world_size(spec, facts, setting)
    return Sharding(
        stage=stage,
        nodes=nodes,
        ranks_per_node=ranks,
        model_parallel=max(spec.autotuning.mp_size, autotp_of(spec, facts, setting)),
        offload=offload_of(spec, stage, setting),
        secondary=_secondary_of(spec, setting),
    )


def _secondary_of(spec: StudySpec, setting: Setting) -> int:
    """The ranks that share the secondary copy of the weights, as the setting says, else the user's configuration."""
    given = dict(setting).get(_SECONDARY, spec.own_value(_SECONDARY))
    return given if isinstance(given, int) else 1


def offload_of(spec: StudySpec, stage: int, setting: Setting) -> Offload:
    """What a candidate offloads: as its setting says, else as the user's configuration does, if the stage can."""
    chosen = dict(setting)
    optimizer, param = (
        chosen.get(f"{ZERO}{section}.device") or own for section, own in zip(OFFLOADS, spec.offload, strict=True)
    )
    if stage < 3:
        # only ZeRO 3 can offload parameters, or optimizer states to NVMe
        param, optimizer = "none", "none" if stage == 0 or optimizer == "nvme" else optimizer
    return Offload(optimizer=cast(OffloadDevice, optimizer), param=cast(OffloadDevice, param))
