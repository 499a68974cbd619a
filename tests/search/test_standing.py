"""What is said of the best agrees with itself."""

import numpy as np
import pytest

from dsopt.search.posterior import Scores
from dsopt.search.standing import Standing


def scores_of(deviation: float) -> Scores:
    own = np.full(2, deviation**2 / 2)
    return Scores(mean=np.array([0.0, 0.03]), common=np.zeros((2, 0)), own=own)


def test_how_likely_the_best_is_the_fastest_agrees_with_the_interval_beside_it() -> None:
    """Launches that may differ much more than is most probable leave as much doubt of the one as of the other."""
    possible = [scores_of(0.005), scores_of(0.05)]
    standing = Standing(
        names=["baseline", "z1"],
        probabilities=np.array([0.6, 0.4]),
        scores=possible,
        usual=possible[0],
        runs=4,
        nodes={},
    )
    wins, regret = standing.certainty()
    assert wins["z1"] == pytest.approx(standing.chance("z1", "baseline"), abs=0.01)
    assert wins["z1"] + wins["baseline"] == pytest.approx(1.0)
    assert wins["z1"] < 0.92  # most probably launches differ by so little that it were certain
    assert standing.ratio("z1", "baseline").interval[0] < 1
    assert 0.002 < regret < 0.01
