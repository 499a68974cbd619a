"""Which points of a search space to consider before choosing one."""

from collections.abc import Callable, Set
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dsopt.optuna.encoding import Row, SearchSpace

Array = NDArray[np.float64]

_ENUMERATED: Final = 4096  # discrete spaces up to this size are considered as a whole
_EVERYWHERE: Final = 768
_AROUND: Final = 24  # points around each of those to improve
_IMPROVED: Final = 12
_STEPS: Final = (0.2, 0.07, 0.02, 0.006)  # of the unit cube, from coarse to fine
_FEW: Final = 100


def sequence(start: int, count: int, shift: Array) -> Array:
    """Points `start` to `start + count` of an evenly spread sequence in the unit cube, shape `(count, p)`.

    The additive recurrence with powers of the inverse of the generalised golden ratio (Roberts, 2018): any worker may
    take any point of it.

    Args:
        shift: by what to move all points, modulo 1, shape `(p,)`.
    """
    ratio = 2.0
    for _ in range(60):
        ratio = (1.0 + ratio) ** (1.0 / (len(shift) + 1))
    steps = ratio ** -np.arange(1.0, len(shift) + 1)
    numbers = np.arange(start + 1, start + count + 1)[:, None]
    points: Array = (shift + numbers * steps) % 1.0
    return points


def untried(space: SearchSpace, tried: Set[Row]) -> Array | None:
    """Every untried point of a small discrete space, or every point if all were tried; None for other spaces."""
    if space.size > _ENUMERATED:
        return None
    everything = space.all_values()
    left = np.array([tuple(row) not in tried for row in everything.tolist()], dtype=bool)
    return everything[left] if left.any() else everything


def next_start(space: SearchSpace, number: int, shift: Array, tried: Set[Row]) -> Row:
    """The point of the evenly spread sequence for a trial's number, or the nearest one that is not yet tried."""
    places = sequence(number, 1, shift)
    left = untried(space, tried)
    if left is None:
        return _row(space.values(places)[0])
    far = ((space.places(left) - places) ** 2).sum(axis=1)
    return _row(left[int(np.argmin(far))])


def best_point(
    space: SearchSpace,
    worth: Callable[[Array], Array],
    anchors: Array,
    tried: Set[Row],
    random: np.random.Generator,
) -> Row:
    """The point that is worth most among those considered.

    It considers a small discrete space as a whole. In others it considers points everywhere and around the anchors, and
    then improves the best of them in ever smaller steps.

    Args:
        space: what to choose from.
        worth: of points of shape `(n, p)`, shape `(n,)`.
        anchors: values of the best trials so far, shape `(n, p)`.
        tried: points not to choose again.
        random: the generator that draws points.
    """
    left = untried(space, tried)
    if left is not None:
        return _row(left[_most(worth(left), random)])
    axes = len(space.axes)
    places = np.vstack([
        sequence(0, _EVERYWHERE, random.random(axes)),
        *(_around(space.places(anchors), step, random) for step in _STEPS[:2] if len(anchors)),
    ])  # fmt: skip
    values, value = _judged(space, places, worth, tried)
    for step in _STEPS:
        order = np.argsort(-value, kind="stable")[:_IMPROVED]
        found, its = _judged(space, _around(space.places(values[order]), step, random), worth, tried)
        values, value = np.vstack([values[order], found]), np.concatenate([value[order], its])
    return _row(values[int(np.argmax(value))])


def _judged(space: SearchSpace, places: Array, worth: Callable[[Array], Array], tried: Set[Row]) -> tuple[Array, Array]:
    values = space.values(places)
    known = np.array([tuple(row) in tried for row in values.tolist()], dtype=bool)
    return values, np.where(known, -np.inf, worth(values))


def _around(places: Array, step: float, random: np.random.Generator) -> Array:
    """Points that differ a little from others in some coordinates, and now and then by any amount."""
    repeated = np.repeat(places, _AROUND, axis=0)
    count, axes = repeated.shape
    moves = random.random((count, axes)) < max(1.0 / axes, 0.4)
    moves[np.arange(count), random.integers(axes, size=count)] = True
    near = repeated + step * random.standard_normal((count, axes))
    near = np.abs(near)  # what leaves the cube is reflected back into it
    near = np.clip(np.where(near > 1.0, 2.0 - near, near), 0.0, 1.0)
    anywhere = random.random((count, axes)) < 0.1
    return np.where(moves, np.where(anywhere, random.random((count, axes)), near), repeated)


def _most(worth: Array, random: np.random.Generator) -> int:
    """The index of the largest; a random one of equals."""
    return int(random.choice(np.flatnonzero(worth == worth.max())))


def _row(values: Array) -> Row:
    return tuple(values.tolist())
