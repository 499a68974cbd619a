"""The tuners, which say in what order to try candidates: one file each, and one line in `study/tuners.py`."""

from typing import cast

from dsopt.errors import DsoptError
from dsopt.search.tuners.choice import Tuner
from dsopt.study.tuners import known_tuners


def tuner_named(name: str) -> Tuner:
    """The tuner that a study names.

    Raises:
        DsoptError: another package provides it, which is not installed here or cannot be imported.
    """
    entry = known_tuners().get(name)
    if entry is None:
        raise DsoptError(f"tuner_type: '{name}' is not installed here. Install the package that provides it.")
    try:
        return cast(Tuner, entry.load())
    except Exception as error:  # whatever somebody else's module raises
        raise DsoptError(f"tuner_type: '{name}': {entry.value} cannot be imported: {error}.") from None
