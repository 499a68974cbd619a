"""How much memory a candidate needs: ZeRO's formulas, calibrated on what runs have shown."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

import numpy as np

from dsopt.search.history import ModelFacts, Observation
from dsopt.search.zero_memory import Offload, OffloadDevice, device_state_bytes, host_state_bytes
from dsopt.study.space import NUM_GPUS, NUM_NODES, OFFLOADS, ZERO, Candidate, Setting, is_resource
from dsopt.study.spec import StudySpec

# A host that is filled to the brim kills processes; what else runs there needs its share.
_HOST_SHARE: Final = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """What decides how large a rank's model states are.

    Attributes:
        stage: ZeRO stage.
        nodes, ranks_per_node: what the job runs on.
        model_parallel: ranks that share one replica (`mp_size`).
        offload: where optimizer states and parameters live.
    """

    stage: int
    nodes: int
    ranks_per_node: int
    model_parallel: int
    offload: Offload

    def device_bytes(self, facts: ModelFacts) -> float:
        """Model states on one rank's device."""
        return (
            device_state_bytes(
                self.stage,
                params=facts.num_params,
                trainable=facts.trainable_params,
                ranks=max(1, self.nodes * self.ranks_per_node // self.model_parallel),
                dtype=facts.dtype,
                offload=self.offload,
                largest_layer=facts.largest_layer_params,
            )
            / self.model_parallel
        )

    def host_bytes(self, facts: ModelFacts) -> float:
        """Model states in one node's host memory."""
        return host_state_bytes(
            self.stage,
            params=facts.num_params,
            trainable=facts.trainable_params,
            ranks=self.nodes * self.ranks_per_node,
            ranks_per_node=self.ranks_per_node,
            dtype=facts.dtype,
            offload=self.offload,
        )


def world_size(spec: StudySpec, facts: ModelFacts, setting: Setting) -> tuple[int, int]:
    """Nodes, and ranks on each, that a candidate with this setting runs on; the baseline's where it tunes neither."""
    chosen = dict(setting)
    nodes, ranks = chosen.get(NUM_NODES), chosen.get(NUM_GPUS)
    own_nodes = spec.resources.nodes
    own_ranks = max(1, facts.world_size // own_nodes)
    return nodes if isinstance(nodes, int) else own_nodes, ranks if isinstance(ranks, int) else own_ranks


def replicas(spec: StudySpec, facts: ModelFacts, setting: Setting) -> int:
    """Data-parallel replicas of a candidate: `train_batch_size` is micro-batch × accumulation × these."""
    nodes, ranks = world_size(spec, facts, setting)
    return max(1, nodes * ranks // spec.autotuning.mp_size)


def sharding_of(spec: StudySpec, facts: ModelFacts, stage: int, setting: Setting) -> Sharding:
    """The sharding of a candidate: the user's configuration with the candidate's stage and setting."""
    chosen = dict(setting)
    optimizer, param = (
        chosen.get(f"{ZERO}{section}.device") or own for section, own in zip(OFFLOADS, spec.offload, strict=True)
    )
    if stage < 3:
        # parameters are offloaded at ZeRO 3 alone, and optimizer states to NVMe too
        param, optimizer = "none", "none" if stage == 0 or optimizer == "nvme" else optimizer
    nodes, ranks = world_size(spec, facts, setting)
    return Sharding(
        stage=stage,
        nodes=nodes,
        ranks_per_node=ranks,
        model_parallel=spec.autotuning.mp_size,
        offload=Offload(optimizer=cast(OffloadDevice, optimizer), param=cast(OffloadDevice, param)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryModel:
    """Peak memory of one rank = states(sharding) + overhead + micro-batch × bytes a sample.

    Attributes:
        spec: the study.
        facts: model and device.
        overhead_bytes: what a rank takes whatever the stage and micro-batch: buffers, workspaces, libraries.
        sample_bytes: what each sample of a micro-batch adds.
        out_of_memory: candidates that ran out of memory, as lower bounds.
    """

    spec: StudySpec
    facts: ModelFacts
    overhead_bytes: float
    sample_bytes: float
    out_of_memory: tuple[Candidate, ...]

    @classmethod
    def fit(
        cls, spec: StudySpec, facts: ModelFacts, observations: Sequence[Observation], setting: Setting = ()
    ) -> "MemoryModel":
        """Calibrates on the peaks of measured runs.

        With runs at two or more micro-batch sizes, overhead and bytes a sample are a least-squares line through what
        the states leave over; before that, the activations that the first run's forward pass left are the slope.
        Where knobs change the activations themselves, such as checkpointing, only runs with the values of `setting`
        count, once there is one.
        """
        kind = _activation_knobs(setting)
        alike = [o for o in observations if o.candidate and _activation_knobs(o.candidate.knobs) == kind]
        measured = [o for o in alike if o.facts is not None] or [o for o in observations if o.facts is not None]
        points = [
            (o.facts, sharding_of(spec, facts, o.candidate.stage, o.candidate.knobs))
            for o in measured
            if o.facts is not None and o.candidate is not None
        ]
        if not kind or not points:
            points.append((facts, sharding_of(spec, facts, facts.zero_stage, ())))
        sizes = np.array([f.micro_batch for f, _ in points], dtype=float)
        left = np.array([f.peak_memory_bytes - s.device_bytes(f) for f, s in points], dtype=float)
        slope = points[-1][0].activation_bytes / points[-1][0].micro_batch
        if len(set(sizes)) >= 2:
            slope = max(0.0, float(np.polyfit(sizes, left, 1)[0]))
        return cls(
            spec=spec,
            facts=facts,
            overhead_bytes=float(np.mean(left - slope * sizes)),
            sample_bytes=slope,
            out_of_memory=tuple(o.candidate for o in observations if o.reason == "oom" and o.candidate is not None),
        )

    def estimate(self, stage: int, micro_batch: int, setting: Setting = ()) -> float:
        """Predicted peak of one rank, in bytes."""
        states = sharding_of(self.spec, self.facts, stage, setting).device_bytes(self.facts)
        return max(0.0, states + self.overhead_bytes) + self.sample_bytes * micro_batch

    def host_estimate(self, stage: int, setting: Setting = ()) -> float:
        """Host memory that offloaded states of one node take, in bytes."""
        return sharding_of(self.spec, self.facts, stage, setting).host_bytes(self.facts)

    def why_not(self, candidate: Candidate) -> str | None:
        """Why a candidate is not expected to run, if so; never when a smaller one of its settings ran out of memory."""
        for known in self.out_of_memory:
            same = (known.stage, known.gas, known.knobs) == (candidate.stage, candidate.gas, candidate.knobs)
            if same and known.micro_batch <= candidate.micro_batch:
                return f"{known.name} ran out of memory, and it is no larger"
        host, host_has = (
            self.host_estimate(candidate.stage, candidate.knobs),
            self.facts.host_memory_bytes * _HOST_SHARE,
        )
        if host_has and host > host_has:
            return f"would need about {_gib(host)} of host memory for what is offloaded, of {_gib(host_has)} on a node"
        needed = self.estimate(candidate.stage, candidate.micro_batch, candidate.knobs)
        if needed > self.facts.device_memory_bytes:
            size, has = candidate.micro_batch, self.facts.device_memory_bytes
            return f"would need about {_gib(needed)} a device at micro-batch {size}, of {_gib(has)}"
        return None

    def fits(self, candidate: Candidate) -> bool:
        """Whether a candidate is expected to run."""
        return self.why_not(candidate) is None

    def largest_micro_batch(self, stage: int, setting: Setting = ()) -> int | None:
        """The largest micro-batch size that is expected to fit, or None where memory is no limit that is known."""
        if self.sample_bytes <= 0:
            return None
        room = self.facts.device_memory_bytes - self.estimate(stage, 0, setting)
        return max(0, int(room / self.sample_bytes))


def _activation_knobs(setting: Setting) -> Setting:
    """The knobs that may change what a forward pass leaves: the script's flags and what lies outside of ZeRO."""
    return tuple((key, value) for key, value in setting if not key.startswith(ZERO) and not is_resource(key))


def _gib(size: float) -> str:
    return f"{size / 2**30:.2f} GiB"
