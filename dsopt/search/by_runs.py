"""The scores of configurations by their runs alone, where no model says what they have in common.

A run's score is its configuration's, what its node adds, and noise. Runs on one node share what that adds: it is no
reason to doubt how two configurations compare there, however little is known of the node.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from dsopt.search.nodes import NodeEffect, usual_of
from dsopt.search.posterior import Scores
from dsopt.search.speeds import Shown


def scores_by_runs(shown: Sequence[Shown], effects: Mapping[str, NodeEffect], launch: float) -> Scores:
    """The scores of n configurations on usual nodes.

    Args:
        shown: what runs have shown of each.
        effects: of m nodes, as they are believed to be.
        launch: standard deviation of the difference between launches.
    """
    names, count = list(effects), len(shown)
    known = np.array([[effects[name].mean, effects[name].variance] for name in names]).reshape(-1, 2)
    precision, total = np.diag(1.0 / known[:, 1]), known[:, 0] / known[:, 1]
    weight, seen, there = np.zeros(count), np.zeros(count), np.zeros((count, len(names)))
    for index, each in enumerate(shown):
        for score, variance, nodes in zip(each.scores, each.variances, each.ran_on, strict=True):
            of_run = 1.0 / (variance + launch**2)
            on = np.zeros(len(names))
            on[[names.index(node) for node in _slowest(nodes, effects)]] = 1.0
            weight[index] += of_run
            seen[index] += of_run * score
            there[index] += of_run * on
            precision += of_run * np.outer(on, on)
            total += of_run * score * on
    share = there / weight[:, None]  # how much of each configuration was on each node
    covariance = np.linalg.inv(precision - there.T @ share)
    mean = covariance @ (total - share.T @ seen)
    usual = usual_of(mean) if names else 0.0
    return Scores(
        mean=seen / weight - share @ mean + usual, common=share @ np.linalg.cholesky(covariance), own=1.0 / weight
    )


def _slowest(nodes: Sequence[str], effects: Mapping[str, NodeEffect]) -> list[str]:
    """The node that sets the pace of a run, if any of its nodes is known."""
    return sorted((node for node in nodes if node in effects), key=lambda node: effects[node].mean)[:1]
