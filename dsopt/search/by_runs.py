"""The scores of configurations by their runs alone, where no model says what they have in common.

A run's score is its configuration's, what its node adds, and noise. Runs on one node share what that adds: it is no
reason to doubt how two configurations compare there, however little is known of the node.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dsopt.search.nodes import NodeEffect, expected_of, runs_of, slowest_of, usual_of
from dsopt.search.odd_runs import with_oddness
from dsopt.search.posterior import Scores
from dsopt.search.speeds import Shown

Array = NDArray[np.float64]


class ByRuns:
    """What runs tell of n configurations on usual nodes.

    Args:
        shown: what runs have shown of each.
        effects: of m nodes, as they are believed to be.
    """

    def __init__(self, shown: Sequence[Shown], effects: Mapping[str, NodeEffect]) -> None:
        runs = runs_of(shown)
        self._count = len(shown)
        self._which = np.array([run.which for run in runs], dtype=int)
        self._scores = np.array([run.score for run in runs], dtype=float)
        self._variances = np.array([run.variance for run in runs], dtype=float)
        odd = [with_oddness(each.scores, each.variances, each.ran_on) for each in shown]
        self._odd = np.concatenate(odd) if odd else np.zeros(0)
        self._has_odd = not np.array_equal(self._odd, self._variances)
        # the node that sets the pace of each run; -1: none that is known
        places: dict[str | None, int] = {name: place for place, name in enumerate(effects)}
        self._on = np.array([places.get(slowest_of(run.nodes, effects), -1) for run in runs], dtype=int)
        prior = [expected_of(effect) for effect in effects.values()]  # the same runs tell the rest, once
        self._means = np.array([effect.mean for effect in prior])
        self._precisions = np.array([1.0 / effect.variance for effect in prior])

    def at(self, launch: float) -> tuple[Scores, float]:
        """The scores, `(n,)`, if launches differ by this standard deviation; and how well that explains the runs.

        The latter is the logarithm of a probability, whatever the true scores (restricted maximum likelihood; Patterson
        and Thompson, 1971), up to a constant.
        """
        scores, evidence = self._solved(1.0 / (self._variances + launch**2))
        if self._has_odd:
            scores, _ = self._solved(1.0 / (self._odd + launch**2))
        return scores, evidence

    def _solved(self, precision: Array) -> tuple[Scores, float]:
        """The same, if runs have these precisions, `(runs,)`."""
        known = self._on >= 0
        nodes, of_known = len(self._means), precision[known]
        weight = np.bincount(self._which, precision, self._count)
        seen = np.bincount(self._which, precision * self._scores, self._count)
        there = np.zeros((self._count, nodes))
        np.add.at(there, (self._which[known], self._on[known]), of_known)
        share = there / weight[:, None]  # how much of each configuration was on each node
        joint = np.diag(self._precisions + np.bincount(self._on[known], of_known, nodes)) - there.T @ share
        total = self._precisions * self._means - share.T @ seen
        total += np.bincount(self._on[known], of_known * self._scores[known], nodes)
        covariance = np.linalg.inv(joint)
        mean = covariance @ total
        left = float(precision @ self._scores**2 + self._precisions @ self._means**2)
        left -= float(seen @ (seen / weight) + total @ mean)
        evidence = np.log(precision).sum() - np.log(weight).sum() - np.linalg.slogdet(joint)[1] - left
        scores = Scores(
            mean=seen / weight - share @ mean + (usual_of(mean) if nodes else 0.0),
            common=share @ np.linalg.cholesky(covariance),
            own=1.0 / weight,
        )
        return scores, 0.5 * float(evidence)
