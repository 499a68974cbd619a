"""Candidates as arrays: what models predict for thousands of them at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dsopt.study.space import Candidate, Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """n candidates, whose stages and settings repeat.

    Attributes:
        candidates: the n candidates.
        settings: the different pairs of stage and setting among them.
        which: index into `settings` of each candidate, shape `(n,)`.
        micro_batch, gas: sizes of each candidate, shape `(n,)`.
    """

    candidates: Sequence[Candidate]
    settings: Sequence[tuple[int, Setting]]
    which: NDArray[np.intp]
    micro_batch: NDArray[np.float64]
    gas: NDArray[np.float64]

    @classmethod
    def of(cls, candidates: Sequence[Candidate]) -> "Grid":
        """The grid of these candidates, in their order."""
        indices: dict[tuple[int, Setting], int] = {}
        which = [indices.setdefault((c.stage, c.knobs), len(indices)) for c in candidates]
        return cls(
            candidates=candidates,
            settings=list(indices),
            which=np.array(which, dtype=np.intp),
            micro_batch=np.array([c.micro_batch for c in candidates], dtype=float),
            gas=np.array([c.gas for c in candidates], dtype=float),
        )
