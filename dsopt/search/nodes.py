"""How much faster or slower each node is than usual, from the runs that went on there.

    y = expected(c) + slopes(c)·w + d_c + b_n + noise

y is the score of a run of configuration c on node n; w is what the step-time model has wrong, d what the configuration
has for itself, b the node's effect. All are Gaussian but b, which is near 0 for most nodes and far from it for a bad
one: Student's t with few degrees of freedom, by iteratively reweighted least squares (Lange, Little and Taylor, 1989).
A run on several nodes goes at the pace of the slowest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dsopt.search.speeds import Shown
from dsopt.study.launch_noise import UNEXPLAINED, USUAL

Array = NDArray[np.float64]

_USUAL: Final = 0.01  # scale of the effects of nodes
_FREEDOM: Final = 2.0  # degrees of it
_OWN: Final = 2 * UNEXPLAINED  # of a configuration; generous, so that no node is blamed for what a model does not know
_ANYTHING: Final = 100.0  # of a logarithm
_ITERATIONS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEffect:
    """What a node adds to the score of a run, as a Gaussian."""

    mean: float
    variance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a model expects of the scores of n configurations, with k weights that it may have wrong.

    Attributes:
        mean: `(n,)`.
        slopes: by the weights, `(n, k)`.
        off: the prior means of the weights, less what they are taken to be, `(k,)`.
        precision: of that prior, `(k, k)`.
    """

    mean: Array
    slopes: Array
    off: Array
    precision: Array


def node_effects(shown: Sequence[Shown], expected: Expected, own: float = _OWN) -> dict[str, NodeEffect]:
    """The effect of each node that runs went on, 0 being usual; none if that was one node at most.

    Args:
        shown: what runs have shown of each of n configurations.
        expected: what a model expects of them.
        own: standard deviation of what it does not know of each.
    """
    runs = [
        (index, score, variance, nodes)
        for index, each in enumerate(shown)
        for score, variance, nodes in zip(each.scores, each.variances, each.ran_on, strict=True)
    ]
    names = sorted({name for *_, nodes in runs for name in nodes})
    if len(names) < 2:
        return {}
    which = np.array([index for index, *_ in runs])
    noise = 1.0 / (np.array([variance for _, _, variance, _ in runs]) + USUAL**2)
    seen = np.array([score for _, score, *_ in runs]) - expected.mean[which]
    each_own = np.eye(len(shown))[which]
    weights, few = len(expected.off), len(shown)
    prior = np.zeros((weights + few + len(names),) * 2)
    prior[:weights, :weights] = expected.precision
    prior[weights : weights + few, weights : weights + few] = np.eye(few) / own**2
    means = np.concatenate([expected.off, np.zeros(few + len(names))])
    at = np.arange(weights + few, len(means))  # where the effects of nodes are
    effects = np.zeros(len(names))
    for _ in range(_ITERATIONS):
        on = _slowest(runs_on=[nodes for *_, nodes in runs], names=names, effects=effects)
        design = np.hstack([expected.slopes[which], each_own, on])
        prior[at, at] = (_FREEDOM + 1) / (_FREEDOM * _USUAL**2 + effects**2)
        precision = prior + (design.T * noise) @ design
        found = np.linalg.solve(precision, prior @ means + design.T @ (noise * seen))
        effects = found[at]
    variances = np.diag(np.linalg.inv(precision))[at]
    effects = effects - np.sort(effects)[len(names) // 2]  # half of the nodes or more are usual; of two, the faster one
    return {
        name: NodeEffect(mean=float(mean), variance=float(variance))
        for name, mean, variance in zip(names, effects, variances, strict=True)
    }


def effect_on(nodes: Sequence[str], effects: Mapping[str, NodeEffect]) -> NodeEffect:
    """The effect on a run on these nodes."""
    known = [effects[name] for name in nodes if name in effects]
    return min(known, key=lambda effect: effect.mean, default=NodeEffect(mean=0.0, variance=0.0))


def effects_by_runs_alone(shown: Sequence[Shown]) -> dict[str, NodeEffect]:
    """The same where configurations have nothing in common: by runs of one of them on several nodes."""
    none = np.zeros((len(shown), 0))
    expected = Expected(mean=np.zeros(len(shown)), slopes=none, off=np.zeros(0), precision=np.zeros((0, 0)))
    return node_effects(shown, expected, own=_ANYTHING)


def without(shown: Sequence[Shown], effects: Mapping[str, NodeEffect]) -> list[Shown]:
    """What runs have shown, as if all of them had gone on usual nodes."""
    return [_without(each, [effect_on(nodes, effects) for nodes in each.ran_on]) for each in shown]


def _without(shown: Shown, effects: Sequence[NodeEffect]) -> Shown:
    return replace(
        shown,
        scores=[score - effect.mean for score, effect in zip(shown.scores, effects, strict=True)],
        variances=[variance + effect.variance for variance, effect in zip(shown.variances, effects, strict=True)],
    )


def _slowest(*, runs_on: Sequence[Sequence[str]], names: Sequence[str], effects: Array) -> Array:
    """1 where a node sets the pace of a run; shapes `(runs, nodes)`."""
    on = np.zeros((len(runs_on), len(names)))
    for row, nodes in enumerate(runs_on):
        if nodes:
            on[row, min((names.index(name) for name in nodes), key=lambda index: float(effects[index]))] = 1.0
    return on
