"""How much device memory a candidate needs: ZeRO's formulas, calibrated on what runs have shown."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsopt.search.history import ModelFacts, Observation
from dsopt.study.space import Candidate


def state_bytes(stage: int, *, params: int, trainable: int, ranks: int, dtype: str) -> float:
    """Bytes of parameters, gradients and optimizer states on one rank, with Adam.

    Source: ZeRO (Rajbhandari et al., 2020), section 3; per parameter 16 bytes in all, of which 12 are optimizer states
    in mixed precision and 8 in fp32. Only trainable parameters have gradients and optimizer states.
    """
    weight, gradient, optimizer = (4, 4, 8) if dtype == "fp32" else (2, 2, 12)
    weights = weight * params / (ranks if stage >= 3 else 1)
    gradients = gradient * trainable / (ranks if stage >= 2 else 1)
    optimizers = optimizer * trainable / (ranks if stage >= 1 else 1)
    return weights + gradients + optimizers


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryModel:
    """Peak memory of one rank = states(stage) + overhead + micro-batch × bytes a sample.

    Attributes:
        facts: model and device.
        overhead_bytes: what a rank takes whatever the stage and micro-batch: buffers, workspaces, libraries.
        sample_bytes: what each sample of a micro-batch adds.
        out_of_memory: candidates that ran out of memory, as lower bounds.
    """

    facts: ModelFacts
    overhead_bytes: float
    sample_bytes: float
    out_of_memory: tuple[Candidate, ...]

    @classmethod
    def fit(cls, facts: ModelFacts, observations: Sequence[Observation]) -> "MemoryModel":
        """Calibrates on the peaks of all measured runs.

        With runs at two or more micro-batch sizes, overhead and bytes a sample are a least-squares line through what
        the states leave over; before that, the activations that the first run's forward pass left are the slope.
        """
        seen = [o.facts for o in observations if o.facts is not None] + [facts]
        sizes = np.array([f.micro_batch for f in seen], dtype=float)
        left = np.array([f.peak_memory_bytes - _states(f, f.zero_stage) for f in seen], dtype=float)
        slope = facts.activation_bytes / facts.micro_batch
        if len(set(sizes)) >= 2:
            slope = max(0.0, float(np.polyfit(sizes, left, 1)[0]))
        return cls(
            facts=facts,
            overhead_bytes=float(np.mean(left - slope * sizes)),
            sample_bytes=slope,
            out_of_memory=tuple(o.candidate for o in observations if o.reason == "oom" and o.candidate is not None),
        )

    def estimate(self, stage: int, micro_batch: int) -> float:
        """Predicted peak of one rank, in bytes."""
        return max(0.0, _states(self.facts, stage) + self.overhead_bytes) + self.sample_bytes * micro_batch

    def fits(self, candidate: Candidate) -> bool:
        """Whether a candidate is expected to run; never when a smaller one of the same settings ran out of memory."""
        for known in self.out_of_memory:
            same = (known.stage, known.gas, known.knobs) == (candidate.stage, candidate.gas, candidate.knobs)
            if same and known.micro_batch <= candidate.micro_batch:
                return False
        return self.estimate(candidate.stage, candidate.micro_batch) <= self.facts.device_memory_bytes

    def largest_micro_batch(self, stage: int) -> int | None:
        """The largest micro-batch size that is expected to fit, or None where memory is no limit that is known."""
        if self.sample_bytes <= 0:
            return None
        room = self.facts.device_memory_bytes - self.estimate(stage, 0)
        return max(0, int(room / self.sample_bytes))


def _states(facts: ModelFacts, stage: int) -> float:
    return state_bytes(
        stage, params=facts.num_params, trainable=facts.trainable_params, ranks=facts.world_size, dtype=facts.dtype
    )
