"""Parameters of any Optuna distribution as numbers: places in the unit cube, and features for models."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

Array = NDArray[np.float64]
Row = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One parameter: each place in [0, 1) means a value; for a discrete one, equal intervals mean its values.

    Values are in Optuna's internal representation: the number, or the index of a choice.

    Attributes:
        name: of the parameter.
        distribution: which values there are.
        count: how many; None if they are continuous.
    """

    name: str
    distribution: BaseDistribution
    count: int | None

    @classmethod
    def of(cls, name: str, distribution: BaseDistribution) -> "Axis":
        """The axis of a parameter.

        Raises:
            TypeError: the distribution is not one of Optuna's three.
        """
        match distribution:
            case CategoricalDistribution(choices=choices):
                count: int | None = len(choices)
            case IntDistribution(low=low, high=high, step=step):
                count = (high - low) // step + 1
            case FloatDistribution(low=low, high=high, step=None):
                count = 1 if low == high else None
            case FloatDistribution(low=low, high=high, step=step):
                count = round((high - low) / (step or 1.0)) + 1
            case _:
                raise TypeError(
                    f"parameter '{name}' has a {type(distribution).__name__}; "
                    "expected one of Optuna's three distributions"
                )
        return cls(name=name, distribution=distribution, count=count)

    @property
    def is_categorical(self) -> bool:
        """Whether its values have no order."""
        return isinstance(self.distribution, CategoricalDistribution)

    @property
    def width(self) -> int:
        """How many features it has: one for each choice, else one."""
        return self.count or 1 if self.is_categorical else 1

    def values(self, places: Array) -> Array:
        """The values at places in [0, 1], shape `(n,)`."""
        if self.count == 1:
            return np.full(len(places), 0.0 if self.is_categorical else self._bounds[0])
        if self._is_log:
            low, high = self._edges
            found = np.exp(low + places * (high - low))
            return self._within(np.rint(found) if self.count else found)
        if self.count is not None:
            index: Array = np.minimum(np.floor(places * self.count), self.count - 1)
            return index if self.is_categorical else self._within(self._bounds[0] + index * self._step)
        low, high = self._bounds
        return self._within(low + places * (high - low))

    def places(self, values: Array) -> Array:
        """The middle of the places that mean each value, shape `(n,)`."""
        if self.count == 1:
            return np.full(len(values), 0.5)
        if self._is_log:
            low, high = self._edges
            return np.clip((np.log(values) - low) / (high - low), 0.0, 1.0)
        if self.count is not None:
            index = values if self.is_categorical else np.rint((values - self._bounds[0]) / self._step)
            return np.clip((index + 0.5) / self.count, 0.0, 1.0)
        low, high = self._bounds
        return np.clip((values - low) / (high - low), 0.0, 1.0)

    def features(self, values: Array) -> Array:
        """What models learn from, shape `(n, width)`: a place, or for each choice whether it is the value."""
        if self.is_categorical:
            is_value: Array = (values[:, None] == np.arange(self.width)).astype(float)
            return is_value
        return self.places(values)[:, None]

    def holds(self, value: float) -> bool:
        """Whether a value is within its bounds."""
        if math.isnan(value):
            return False
        low, high = (0.0, float(self.width - 1)) if self.is_categorical else self._bounds
        return low <= value <= high

    def _within(self, values: Array) -> Array:
        within: Array = np.clip(values, *self._bounds)
        return within

    @property
    def _bounds(self) -> tuple[float, float]:
        assert isinstance(self.distribution, IntDistribution | FloatDistribution)
        return float(self.distribution.low), float(self.distribution.high)

    @property
    def _edges(self) -> tuple[float, float]:
        """Logarithms of the bounds; for integers, of the bounds of what rounds to them."""
        half = 0.5 if self.count else 0.0
        return math.log(self._bounds[0] - half), math.log(self._bounds[1] + half)

    @property
    def _step(self) -> float:
        assert isinstance(self.distribution, IntDistribution | FloatDistribution)
        return float(self.distribution.step or 1.0)

    @property
    def _is_log(self) -> bool:
        return not self.is_categorical and bool(getattr(self.distribution, "log", False))


@dataclass(frozen=True)
class SearchSpace:
    """Some parameters at once: p axes with q features."""

    axes: Sequence[Axis]

    @classmethod
    def of(cls, distributions: Mapping[str, BaseDistribution]) -> "SearchSpace":
        """The space of these distributions."""
        return cls([Axis.of(name, distribution) for name, distribution in distributions.items()])

    @cached_property
    def size(self) -> float:
        """How many points it has; infinite if a parameter is continuous."""
        return math.prod(math.inf if axis.count is None else axis.count for axis in self.axes)

    @cached_property
    def groups(self) -> NDArray[np.intp]:
        """Which axis each feature belongs to, shape `(q,)`."""
        return np.repeat(np.arange(len(self.axes)), [axis.width for axis in self.axes])

    def all_values(self) -> Array:
        """Every point, shape `(size, p)`; only for a discrete space."""
        assert math.isfinite(self.size)
        one_by_one = [self._all_of(axis) for axis in self.axes]
        return np.array(list(itertools.product(*one_by_one)), dtype=float).reshape(-1, len(self.axes))

    def values(self, places: Array) -> Array:
        """The values at places in the unit cube; both have shape `(n, p)`."""
        return self._by_axis([axis.values(places[:, i]) for i, axis in enumerate(self.axes)], len(places))

    def places(self, values: Array) -> Array:
        """Where values lie in the unit cube; both have shape `(n, p)`."""
        return self._by_axis([axis.places(values[:, i]) for i, axis in enumerate(self.axes)], len(values))

    def features(self, values: Array) -> Array:
        """What models learn from, shape `(n, q)`, of values of shape `(n, p)`."""
        if not len(values):
            return np.empty((0, len(self.groups)))
        return np.column_stack([axis.features(values[:, i]) for i, axis in enumerate(self.axes)])

    def row(self, params: Mapping[str, Any]) -> Row | None:
        """The values of a trial's parameters; None if one is missing or not in this space."""
        found = []
        for axis in self.axes:
            if axis.name not in params:
                return None
            try:
                value = float(axis.distribution.to_internal_repr(params[axis.name]))
            except (ValueError, TypeError):  # a choice of another distribution of that name
                return None
            if not axis.holds(value):
                return None
            found.append(value)
        return tuple(found)

    def params(self, row: Sequence[float]) -> dict[str, Any]:
        """The parameters with these values, as Optuna gives them to objectives."""
        return {
            axis.name: axis.distribution.to_external_repr(float(value))
            for axis, value in zip(self.axes, row, strict=True)
        }

    def _all_of(self, axis: Axis) -> Array:
        assert axis.count is not None
        if axis.is_categorical:
            return np.arange(axis.count, dtype=float)
        low, _ = axis._bounds
        return axis._within(low + np.arange(axis.count, dtype=float) * axis._step)

    def _by_axis(self, columns: Sequence[Array], rows: int) -> Array:
        return np.column_stack(columns) if columns else np.empty((rows, 0))
