"""DeepSpeed's `gridsearch`: the candidates as they are enumerated."""

from collections.abc import Sequence

from dsopt.search.tuners.choice import Choice
from dsopt.study.space import Candidate


def order(choice: Choice) -> Sequence[Candidate]:
    """The order of enumeration."""
    return choice.candidates
