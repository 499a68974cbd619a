"""The parts of a study: each is its own Optuna study."""

from collections.abc import Mapping
from typing import Any, Final

from dsopt.study.space import Candidate


class Part(str):
    """A part by its name: `z0` … `z3` for the ZeRO stages, `reference` for baseline and confirmation."""

    __slots__ = ()

    @classmethod
    def of(cls, stage: int) -> "Part":
        """The part of a ZeRO stage."""
        return cls(f"z{stage}")

    @property
    def stage(self) -> int | None:
        """Its ZeRO stage; None for the reference runs."""
        return None if self == REFERENCE else int(self[1:])

    @property
    def about(self) -> str:
        """What it holds, for people."""
        return "baseline and confirmation runs" if self.stage is None else f"ZeRO stage {self.stage}"

    def candidate(self, params: Mapping[str, Any]) -> Candidate | None:
        """The candidate that a trial's parameters describe; None without parameters, and for the reference runs."""
        return Candidate.from_params(self.stage, params) if self.stage is not None and params else None


REFERENCE: Final = Part("reference")
PARTS: Final = (REFERENCE, *map(Part.of, range(4)))  # all that a study may have
# attributes of a part's Optuna study
VERDICT: Final = "verdict"  # why a stage is closed, in words
AIO: Final = "aio"  # of the reference part: what dsopt measured of the disk to offload to
