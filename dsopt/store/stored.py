"""What is stored of a study, as data: whoever has it need not reach the database."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dsopt.errors import DsoptError
from dsopt.study.part import REFERENCE, Part

if TYPE_CHECKING:  # who only lists studies reads none
    from dsopt.study.spec import StudySpec


def parts_of(spec: "StudySpec") -> list[Part]:
    """The parts of a study with this spec."""
    return [REFERENCE, *map(Part.of, spec.stages)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStudy:
    """A study as it is stored. Times are seconds since the epoch.

    Attributes:
        note: why it was stopped.
        checked_by: fingerprint of the key by which its signature was checked when it was read; None: it was not.
        distrust: why this node runs nothing of it, and writes nothing where it says; None: it may.
    """

    id: str
    spec: "StudySpec"
    state: str
    note: str | None
    created_at: float
    finished_at: float | None
    checked_by: str | None = None
    distrust: str | None = None

    def check_trust(self) -> None:
        """Refuses a study that this node does not trust. Looking at it and stopping it need no trust.

        Raises:
            DsoptError: no key of this node has signed it, or it was altered.
        """
        if self.distrust is not None:
            raise DsoptError(self.distrust)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def parts(self) -> list[Part]:
        """The parts that have an Optuna study: one per ZeRO stage, and one for the baseline and the confirmation."""
        return parts_of(self.spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyHeader:
    """What is known of a study without reading its spec.

    `workers` are those that live and work on it. It is left if it has begun, is not over, and there are none.
    """

    id: str
    name: str
    state: str
    created_at: float
    workers: int = 0
    is_left: bool = False
