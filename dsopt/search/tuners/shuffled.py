"""DeepSpeed's `random`: the candidates shuffled, with the trial's number as the seed."""

import random
from collections.abc import Sequence

from dsopt.search.tuners.choice import Choice
from dsopt.study.space import Candidate


def order(choice: Choice) -> Sequence[Candidate]:
    """Any order."""
    return random.Random(choice.trial).sample(choice.candidates, len(choice.candidates))  # noqa: S311 - no secret
