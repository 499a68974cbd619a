"""When dsopt has seen enough of a run, and what the run must agree with."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dsopt.experiment.stake import Stake
from dsopt.study.space import Candidate
from dsopt.study.spec import MeasurementBudget


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSizes:
    """Sizes of the user's own run: of its batches (rows, elements), micro-batch, accumulation, forward passes a step.

    0 if rows, elements, the elements of a step or passes are unknown.

    Attributes:
        whose: the run that showed them, in words: another one, if the user's own could not be measured.
    """

    rows: int
    micro_batch: int
    gas: int
    elements: int = 0
    passes: int = 0
    step_elements: float = 0.0
    whose: str = "your own run"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRules:
    """When dsopt has seen enough of a run, and what the run must agree with.

    Attributes:
        measurement: precision wanted, and the step and time budget.
        window: first and last step to measure, if the user set them.
        floor: the earliest first and last step if dsopt detects the warm-up: DeepSpeed's own window.
        timeout_seconds: dsopt ends a run that it has not measured by then.
        expected: the candidate whose settings the engine must report, or None for the user's own configuration.
        needs_flops: whether the run must count floating-point operations.
        needs_pass: the pass of a step that dsopt must see: `forward`, `backward` or `step`.
        own: sizes of the user's own run, if known.
        is_evaluated: whether the first run of the study that ran shows passes without gradients as a part of training
            (`experiment/evaluation.py`); None: this is the first.
        varied: the paths in DeepSpeed's configuration at which the candidate differs from the user's own.
        arg_mappings: the flags of the script that dsopt sets with the configuration, by its keys.
        own_flag: what the user's own run has for the flag of the micro-batch size; None: it has or there is none.
        must_be_sound: whether to refuse a figure that rests on skipped steps or on a loss that is not finite.
        stake: what further steps are worth, by what is known before the run. None: it ends when it is precise.
    """

    measurement: MeasurementBudget
    window: tuple[int, int] | None
    floor: tuple[int, int]
    timeout_seconds: float
    expected: Candidate | None
    needs_flops: bool
    needs_pass: str | None = None
    own: OwnSizes | None = None
    is_evaluated: bool | None = None
    varied: frozenset[str] = frozenset()
    arg_mappings: Mapping[str, str] = field(default_factory=dict)
    own_flag: str | None = None
    must_be_sound: bool = False
    stake: Stake | None = None
