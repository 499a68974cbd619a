"""DeepSpeed's `random`: the candidates shuffled, with the trial's number as the seed."""

import random
from collections.abc import Iterator

from dsopt.search.tuners.choice import Choice
from dsopt.study.space import Candidate


def order(choice: Choice) -> Iterator[Candidate]:
    """Any order, drawn as far as it is asked for."""
    draw, left = random.Random(choice.trial), list(choice.candidates)  # noqa: S311 - no secret
    while left:
        index = draw.randrange(len(left))
        yield left[index]
        left[index] = left[-1]
        left.pop()
