"""What is said of the best agrees with itself."""

import math

import numpy as np
import pytest

from dsopt.search.history import BASELINE, History
from dsopt.search.posterior import Scores
from dsopt.search.standing import Standing, standing_of
from dsopt.study.compared import ComparedRun
from dsopt.study.spec import Confirmation
from tests.made_up import facts, observation, spec


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


@pytest.mark.parametrize("slow", [0.0, math.log(0.7)])
@pytest.mark.parametrize(("configurations", "nodes", "rounds"), [(3, 1, 3), (3, 3, 3), (4, 8, 3), (6, 4, 4)])
def test_intervals_of_a_comparison_over_nodes_hold(configurations: int, nodes: int, rounds: int, slow: float) -> None:
    """Launches differ by 0.7 %, nodes by 0.5 %, and one may be slow. The seeds are fixed."""
    names = [BASELINE, *(f"z{number}" for number in range(1, configurations))]
    study = spec().model_copy(
        update={"compare": [ComparedRun(name=name, command="t.py") for name in names[1:]],
                "confirmation": Confirmation(rounds=rounds)}
    )  # fmt: skip
    held = []
    for seed in range(60):
        random = np.random.default_rng(seed)
        effects, levels = random.normal(0, 0.005, nodes), random.normal(5, 0.1, configurations)
        effects[0] += slow
        runs = [
            observation(None, math.exp(level + effects[node] + random.normal(0, 0.007)), name=name, round=round_,
                        ran_on=(f"n{node}",), facts=facts(), half_width=0.004)
            for name, level in zip(names, levels, strict=True)
            for round_, node in enumerate((random.permutation(nodes) if nodes >= rounds else [0] * rounds)[:rounds], 1)
        ]  # fmt: skip
        standing = standing_of(study, History(reference=runs, stages={}))
        assert standing is not None
        for name, level in zip(names[1:], levels[1:], strict=True):
            low, high = standing.ratio(name, BASELINE).interval
            held.append(low <= math.exp(level - levels[0]) <= high)
    assert sum(held) / len(held) > 0.9
