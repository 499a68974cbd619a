"""`model_based`: first what the models hold to be worth most."""

from collections.abc import Sequence

import numpy as np

from dsopt.search.forecast import Forecast
from dsopt.search.tuners.choice import Choice
from dsopt.study.space import Candidate


def order(choice: Choice) -> Sequence[Candidate]:
    """Candidates by their worth."""
    return ranked(choice.candidates, choice.forecast)


def ranked(candidates: Sequence[Candidate], forecast: Forecast | None) -> Sequence[Candidate]:
    """Candidates by their worth (`Outlook.worth`); in their order without a forecast."""
    if forecast is None:
        return candidates
    best_first = np.argsort(-forecast.of(candidates).worth, kind="stable")
    return [candidates[int(index)] for index in best_first]
