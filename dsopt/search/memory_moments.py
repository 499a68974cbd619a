"""What a rank holds at the moments when its memory can be highest, as rows of a linear model.

    forward pass has ended   κ·(weights + optimizer + accumulated gradients) + λ·kept gradients
                             + β·reduce buffers + γ·live parameters + overhead + ρ·activations
    all gradients are there  κ·(weights + optimizer + gradients) + β·reduce buffers + γ·live parameters + overhead
    the optimizer steps      κ·(weights + optimizer + gradients) + σ·copies + γ·live parameters + overhead

λ is the part of the last step's gradients that a script keeps; with accumulation all of them exist. States follow from
stage, ranks, trainable parameters, offload and what was seen of a parameter; buffers from the settings of ZeRO;
activations from what the forward passes of runs left. Each stage has effects of its own of a few per cent.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dsopt.search.facts import ModelFacts
from dsopt.search.grid import Grid
from dsopt.search.kinds import Kinds
from dsopt.search.sharding import sharding_of
from dsopt.search.zero_buffers import live_parameters, reduce_buffers, step_copies
from dsopt.search.zero_settings import ZeroSettings
from dsopt.study.space import Setting
from dsopt.study.spec import StudySpec

Rows = NDArray[np.float64]

# weights of the linear model, of which the reserve is no part of a peak
WEIGHTS: Final = (
    "states",
    "reduce_buffers",
    "live_parameters",
    "kept_gradients",
    "step_copies",
    "overhead",
    "reserve",
    "activations",
)
STAGES: Final = (0, 1, 2, 3)
# after them, of each stage: an effect in bytes, then one relative to its states; then one of each kind of activations
_KINDS_FROM: Final = len(WEIGHTS) + 2 * len(STAGES)
SHARES: Final = slice(len(WEIGHTS) + len(STAGES), _KINDS_FROM)


class Moments:
    """Rows for the candidates of a study.

    Args:
        spec: the study.
        facts: of the model.
        activations: as a line over micro-batch sizes, first value and slope, for each kind of setting; `()` stands for
            every kind that is not there.
        kinds: which settings are of one kind.
        others: the kinds of settings that may change activations.
    """

    def __init__(
        self,
        spec: StudySpec,
        facts: ModelFacts,
        activations: Mapping[Setting, tuple[float, float]],
        kinds: Kinds,
        others: Sequence[Setting],
    ) -> None:
        self._spec = spec
        self._facts = facts
        self._zero = ZeroSettings(spec, facts.hidden_size)
        self._activations = activations
        self._kind_of = kinds.of
        self._others = others
        self._known: dict[tuple[int, Setting], tuple[Rows, float, float, float]] = {}

    def of(self, grid: Grid) -> tuple[Rows, Rows, Rows]:
        """Forward, backward and step; each has shape `(n, k)`."""
        known = [self._of_setting(stage, setting) for stage, setting in grid.settings]
        rows: Rows = np.array([row for row, *_ in known])[grid.which]
        gradients, buffers, copies = np.array([sizes for _, *sizes in known])[grid.which].T
        activations = self.activations(grid)
        accumulated = np.where(grid.gas > 1, gradients, 0.0)
        forward, backward, step = rows.copy(), rows.copy(), rows
        forward[:, WEIGHTS.index("activations")] = activations
        forward[:, WEIGHTS.index("kept_gradients")] = gradients - accumulated
        forward[:, _KINDS_FROM:] *= activations[:, None]
        step[:, WEIGHTS.index("step_copies")] = copies
        for moment, there in ((forward, accumulated), (backward, gradients), (step, gradients)):
            moment[:, 0] += there
            moment[:, SHARES] *= moment[:, :1]
            if moment is not step:
                moment[:, WEIGHTS.index("reduce_buffers")] = buffers
            if moment is not forward:
                moment[:, _KINDS_FROM:] = 0.0
        return forward, backward, step

    def activations(self, grid: Grid) -> Rows:
        """What a forward pass leaves, in bytes, without what runs showed on top; shape `(n,)`."""
        lines = [self._activations.get(self._kind_of(setting)) or self._activations[()] for _, setting in grid.settings]
        first, per_sample = np.array(lines)[grid.which].T
        size: Rows = first + per_sample * grid.micro_batch
        return size

    def _of_setting(self, stage: int, setting: Setting) -> tuple[Rows, float, float, float]:
        """A row without gradients and with ones for activations; gradients, reduce buffers and copies of a step."""
        known = self._known.get((stage, setting))
        if known is None:
            sharding = sharding_of(self._spec, self._facts, stage, setting)
            gradients = sharding.gradient_bytes(self._facts)
            kind = self._kind_of(setting)
            sizes = {
                "states": sharding.device_bytes(self._facts) - gradients,
                "live_parameters": live_parameters(self._facts, self._zero, stage, setting),
                "overhead": 1.0,
            }
            stages = [float(stage == other) for other in STAGES]
            kinds = [float(kind == other) for other in self._others]
            row = np.array([*(sizes.get(name, 0.0) for name in WEIGHTS), *stages, *stages, *kinds])
            buffers = reduce_buffers(self._spec, self._facts, self._zero, stage, setting)
            copies = step_copies(self._spec, self._facts, self._zero, sharding, setting)
            known = self._known[stage, setting] = (row, gradients, buffers, copies)
        return known
