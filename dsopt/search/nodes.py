"""How much faster or slower each node is than usual, from the runs that went on there; and each place elsewhere.

    y = expected(c) + slopes(c)·w + d_c + b_n + noise

y is the score of a run of configuration c on node n; w is what the step-time model has wrong, d what the configuration
has for itself, b the node's effect. All are Gaussian but b, which is near 0 for most nodes and far from it for a bad
one: Student's t with few degrees of freedom, by iteratively reweighted least squares (Lange, Little and Taylor, 1989),
which may have several solutions.
A run on several nodes goes at the pace of the slowest. Of a node whose matrix products, copies or all-reduces were
measured to be slow, b_n is expected to lie anywhere between nothing and the slowest of these: which of them a step
waits for is what runs show. Another tuner's figures are expected to be anywhere between right and 1.5 times too good.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dsopt.search.places import is_elsewhere, is_imported
from dsopt.search.speeds import Shown
from dsopt.study.launch_noise import UNEXPLAINED, USUAL

Array = NDArray[np.float64]

_USUAL: Final = 0.01  # scale of the effects of nodes
_TOO_GOOD: Final = 0.4  # by how much another tuner's figures may well be, as a logarithm
_FREEDOM: Final = 2.0  # degrees of it
_OWN: Final = 2 * UNEXPLAINED  # of a configuration; generous, so that no node is blamed for what a model does not know
_SUSPECT: Final = 0.03  # what no single run may say of a node
_ANYTHING: Final = 100.0  # of a logarithm
_FAR: Final = 1.0  # of what is expected, as a logarithm: from there the runs alone tell
_ITERATIONS: Final = 20
_SETTLED: Final = 1e-5  # of a logarithm
_MOST: Final = 1024  # nodes; with more, no effect is estimated


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEffect:
    """What a node adds to the score of a run, as a Gaussian, and by how many runs there."""

    mean: float
    variance: float
    runs: int = 0


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


def node_effects(
    shown: Sequence[Shown], expected: Expected, behind: Mapping[str, float], own: float = _OWN
) -> dict[str, NodeEffect]:
    """The effect of each place that runs went on, 0 being that of usual nodes; none if that was one place at most.

    A study's only node is the usual one.

    One odd run convicts no node: an effect that is not small, nor what was measured, is what is left of it without the
    run that says most. It leaves the doubt, so that what ran there is worth another run.

    Args:
        shown: what runs have shown of each of n configurations.
        expected: what a model expects of them.
        behind: how far nodes were measured to be behind usual ones, as logarithms; absent: not measured.
        own: standard deviation of what it does not know of each.
    """
    runs = runs_of(shown)
    places = sorted({name for run in runs for name in run.nodes})
    own_nodes = [name for name in places if not is_elsewhere(name)]
    has_usual = len(own_nodes) == 1 or any(not run.nodes for run in runs)
    names = [name for name in places if name not in own_nodes or len(own_nodes) > 1]
    if len(names) + has_usual < 2 or not 0 < len(names) <= _MOST:
        return {}
    prior = _prior(names, behind)
    fitted = _fit(runs, prior, expected, own)
    means, variances = fitted.means.copy(), fitted.variances.copy()
    is_odd = (fitted.means < prior.lowest - _SUSPECT) | (fitted.means > prior.highest + _SUSPECT)
    for index in np.flatnonzero(is_odd):
        there = [number for number, run in enumerate(runs) if names[index] in run.nodes]
        most = max(there, key=lambda number: fitted.left[number] * np.sign(fitted.means[index]))
        again = _fit([run for number, run in enumerate(runs) if number != most], prior, expected, own)
        if abs(again.means[index]) < abs(means[index]):
            doubt = (fitted.means[index] - again.means[index]) / 2
            means[index], variances[index] = again.means[index], again.variances[index] + doubt**2
    if len(own_nodes) > 1:
        means -= usual_of(means[[name in own_nodes for name in names]])
    counts = Counter(name for run in runs for name in run.nodes)
    return {
        name: NodeEffect(mean=float(mean), variance=float(variance), runs=counts[name])
        for name, mean, variance in zip(names, means, variances, strict=True)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run of the configuration with this index."""

    which: int
    score: float
    variance: float
    nodes: tuple[str, ...]


def runs_of(shown: Sequence[Shown]) -> list[Run]:
    """All runs of some configurations."""
    return [
        Run(which=index, score=score, variance=variance, nodes=nodes)
        for index, each in enumerate(shown)
        for score, variance, nodes in zip(each.scores, each.variances, each.ran_on, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fitted:
    """Means and variances of the effects of m nodes, `(m,)`, and what runs show beyond all but those, `(runs,)`.

    `evidence` is the logarithm of the probability around there, as the Gaussian of that height and width has it.
    """

    means: Array
    variances: Array
    left: Array
    evidence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prior:
    """Between which values the effects of m places are expected, equally likely anywhere there; `(m,)`."""

    names: Sequence[str]
    lowest: Array
    highest: Array

    @property
    def means(self) -> Array:
        return (self.lowest + self.highest) / 2

    @property
    def scales(self) -> Array:
        """By how much an effect differs from what is expected."""
        return np.maximum(_USUAL, (self.highest - self.lowest) / math.sqrt(12))


def _prior(names: Sequence[str], behind: Mapping[str, float]) -> _Prior:
    """What is expected of places before runs: of nodes by what was measured of them."""
    lost = np.array([min(0.0, behind.get(name, 0.0)) for name in names])
    lost[lost > -_SUSPECT] = 0.0
    return _Prior(names=names, lowest=lost, highest=np.where([is_imported(name) for name in names], _TOO_GOOD, 0.0))


def _fit(runs: Sequence[Run], expect: _Prior, expected: Expected, own: float) -> _Fitted:
    """The effects of nodes by all of these runs.

    Runs may be explained by usual nodes and odd configurations as well as by odd nodes. The likelier explanation of the
    two counts, sought from what is expected and from what runs show by themselves; the other leaves its doubt.
    """
    sums = _Sums(runs, expect.names, expected, own)
    modes = [_mode(sums, expect, expected, apart) for apart in (0.0, _FAR)]
    best = max(modes, key=lambda mode: mode.evidence)
    shares = np.exp([mode.evidence - best.evidence for mode in modes])
    squares = [mode.variances + (mode.means - best.means) ** 2 for mode in modes]
    return replace(best, variances=np.average(squares, axis=0, weights=shares))


class _Sums:
    """What n configurations' runs come to, without what each configuration has for itself.

    That is eliminated first (Schur complement): a study has thousands of configurations.

    Attributes:
        which: the configuration of each run, `(runs,)`.
        noise: the precision of each, `(runs,)`.
        seen: its score beyond what is expected, `(runs,)`.
        of_own: variance that is left of each configuration's own part once its runs are known, `(n,)`.
    """

    def __init__(self, runs: Sequence[Run], names: Sequence[str], expected: Expected, own: float) -> None:
        index_of = {name: index for index, name in enumerate(names)}
        self.which = np.array([run.which for run in runs], dtype=int)
        self.noise = 1.0 / (np.array([run.variance for run in runs]) + USUAL**2)
        self.seen = np.array([run.score for run in runs]) - expected.mean[self.which]
        self.of_own = 1.0 / (own**-2.0 + np.bincount(self.which, self.noise, len(expected.mean)))
        self._slopes = expected.slopes[self.which]
        self._on = [[index_of[name] for name in run.nodes if name in index_of] for run in runs]
        self._nodes, self._count = len(names), len(expected.mean)
        self._known: dict[bytes, tuple[Array, Array, Array]] = {}

    def of(self, effects: Array) -> tuple[Array, Array, Array]:
        """Design, `(runs, k)`, precision, `(k, k)`, and total, `(k,)`, by weights and nodes of these effects."""
        slowest = [min(on, key=effects.__getitem__, default=-1) if len(on) != 1 else on[0] for on in self._on]
        key = np.array(slowest).tobytes()
        if key not in self._known:
            self._known[key] = self._summed(np.array(slowest, dtype=int))
        return self._known[key]

    def _summed(self, slowest: NDArray[np.intp]) -> tuple[Array, Array, Array]:
        on = np.zeros((len(slowest), self._nodes))  # 1 where a node sets the pace of a run
        on[slowest >= 0, slowest[slowest >= 0]] = 1.0
        design = np.hstack([self._slopes, on])
        weighted = design * self.noise[:, None]
        there = np.zeros((self._count, design.shape[1]))
        np.add.at(there, self.which, weighted)
        seen_there = np.bincount(self.which, self.noise * self.seen, self._count)
        precision = design.T @ weighted - (there.T * self.of_own) @ there
        return design, precision, weighted.T @ self.seen - there.T @ (self.of_own * seen_there)


def _mode(sums: _Sums, expect: _Prior, expected: Expected, apart: float) -> _Fitted:
    """The effects of nodes where their density is highest, sought from where they are so far from what is expected."""
    weights = len(expected.off)
    means = np.concatenate([expected.off, expect.means])
    prior = np.zeros((len(means),) * 2)
    prior[:weights, :weights] = expected.precision
    at = np.arange(weights, len(means))  # where the effects of nodes are
    scales = _FREEDOM * expect.scales**2
    effects, squares = expect.means, np.full(len(expect.names), apart**2)
    for _ in range(_ITERATIONS):
        design, by_runs, total = sums.of(effects)
        prior[at, at] = (_FREEDOM + 1) / (scales + squares)
        precision = prior + by_runs
        found = np.linalg.solve(precision, prior @ means + total)
        before, effects = effects, found[at]
        squares = (effects - expect.means) ** 2
        if np.abs(effects - before).max() < _SETTLED:
            break
    rest = sums.seen - design @ found
    of_each = sums.of_own * np.bincount(sums.which, sums.noise * rest, len(sums.of_own))
    off = found[:weights] - expected.off
    log_density = -0.5 * (sums.noise @ rest**2 - of_each @ (of_each / sums.of_own) + off @ expected.precision @ off)
    log_density -= (_FREEDOM + 1) / 2 * np.log1p(squares / scales).sum()
    return _Fitted(
        means=effects,
        variances=np.diag(np.linalg.inv(precision))[at],
        left=sums.seen - expected.slopes[sums.which] @ found[:weights] - of_each[sums.which],
        evidence=float(log_density - 0.5 * np.linalg.slogdet(precision)[1]),
    )


def expected_of(effect: NodeEffect) -> NodeEffect:
    """What to expect of a node before its runs, once it is known whether it is odd: next to nothing if it is not."""
    mean = effect.mean if abs(effect.mean) > _SUSPECT else 0.0
    return replace(effect, mean=mean, variance=max(effect.variance, _USUAL**2))


def usual_of(effects: Array) -> float:
    """The effect of a usual node: half of the nodes or more are; of two, the faster one."""
    return float(np.sort(effects)[len(effects) // 2])


def slowest_of(nodes: Sequence[str], effects: Mapping[str, NodeEffect]) -> str | None:
    """The node that sets the pace of a run on these, if any of them is known."""
    return min((name for name in nodes if name in effects), key=lambda name: effects[name].mean, default=None)


def effect_on(nodes: Sequence[str], effects: Mapping[str, NodeEffect]) -> NodeEffect:
    """The effect on a run on these nodes."""
    slowest = slowest_of(nodes, effects)
    return NodeEffect(mean=0.0, variance=0.0) if slowest is None else effects[slowest]


def effects_by_runs_alone(shown: Sequence[Shown], behind: Mapping[str, float]) -> dict[str, NodeEffect]:
    """The same where configurations have nothing in common: by runs of one of them on several nodes."""
    none = np.zeros((len(shown), 0))
    expected = Expected(mean=np.zeros(len(shown)), slopes=none, off=np.zeros(0), precision=np.zeros((0, 0)))
    return node_effects(shown, expected, behind, own=_ANYTHING)


def without(shown: Sequence[Shown], effects: Mapping[str, NodeEffect]) -> list[Shown]:
    """What runs have shown, as if all of them had gone on usual nodes."""
    return [_without(each, effects) for each in shown]


def _without(shown: Shown, effects: Mapping[str, NodeEffect]) -> Shown:
    """Of n runs on one node, each has n times the variance of its effect, so that their mean has it once."""
    there = [effect_on(nodes, effects) for nodes in shown.ran_on]
    shared = [effect.variance * shown.ran_on.count(nodes) for effect, nodes in zip(there, shown.ran_on, strict=True)]
    return replace(
        shown,
        scores=[score - effect.mean for score, effect in zip(shown.scores, there, strict=True)],
        variances=[variance + more for variance, more in zip(shown.variances, shared, strict=True)],
    )
