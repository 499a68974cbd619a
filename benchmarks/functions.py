"""Usual test functions of optimizers as Optuna objectives: a space, a value, and where there is one, a constraint."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

Params = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """Something to minimise.

    Attributes:
        name: for tables.
        space: its parameters.
        value: of a point.
        least: the smallest feasible value there is, or for a discrete space one that is known to be.
        excess: how far a point violates its constraint, above 0 where it does; None where there is none.
        is_told: whether a point that violates it has a value all the same; otherwise it is pruned, as out of memory is.
    """

    name: str
    space: Mapping[str, BaseDistribution]
    value: Callable[[Params], float]
    least: float = 0.0
    excess: Callable[[Params], float] | None = None
    is_told: bool = True


def _cube(axes: int, low: float, high: float) -> dict[str, BaseDistribution]:
    return {f"x{axis}": FloatDistribution(low, high) for axis in range(axes)}


def _point(params: Params) -> np.ndarray:
    return np.array([params[f"x{axis}"] for axis in range(len(params))])


def _sphere(params: Params) -> float:
    return float(((_point(params) - 0.7) ** 2).sum())


def _rosenbrock(params: Params) -> float:
    x = _point(params)
    return float((100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum())


def _branin(params: Params) -> float:
    x, y = _point(params)
    bowl = (y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6) ** 2
    return float(bowl + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10)


def _outside_of_disc(params: Params) -> float:
    x, y = _point(params)
    return float((x - 2.5) ** 2 + (y - 7.5) ** 2 - 50)


_WIDTHS: Final = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
_CENTRES: Final = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def _hartmann(params: Params) -> float:
    heights = np.array([1.0, 1.2, 3.0, 3.2])
    return -float(heights @ np.exp(-(_WIDTHS * (_point(params) - _CENTRES) ** 2).sum(axis=1)))


def _ackley(params: Params) -> float:
    x = _point(params) - 1.3  # not in the middle of the space, where some samplers look first
    near = -20 * math.exp(-0.2 * math.sqrt((x**2).mean()))
    return near - math.exp(np.cos(2 * math.pi * x).mean()) + 20 + math.e


def _rastrigin(params: Params) -> float:
    x = _point(params) - 0.8
    return float(10 * len(x) + (x**2 - 10 * np.cos(2 * math.pi * x)).sum())


_RATES: Final = {"adam": -3.0, "sgd": -1.0, "lion": -4.0}
_MIXED: Final[dict[str, BaseDistribution]] = {
    "optimizer": CategoricalDistribution(["adam", "sgd", "lion"]),
    "rate": FloatDistribution(1e-5, 1.0, log=True),
    "layers": IntDistribution(1, 12),
    "batch": IntDistribution(1, 512, log=True),
    "norm": CategoricalDistribution([True, False]),
    "dropout": FloatDistribution(0.0, 0.5),
}


def _training(params: Params) -> float:
    """The loss of a made-up training run; its best is Adam at 1e-3 with 6 layers, batches of 64 and dropout 0.2."""
    optimizer = params["optimizer"]
    loss = {"adam": 0.0, "sgd": 0.6, "lion": 0.25}[optimizer]
    loss += 0.4 * abs(math.log10(params["rate"]) - _RATES[optimizer]) + 0.05 * abs(params["layers"] - 6)
    loss += 0.075 * abs(math.log2(params["batch"]) - 6) + 0.3 * (params["dropout"] - 0.2) ** 2
    return loss + (0.2 if params["norm"] and optimizer == "sgd" else 0.0)


_SETTINGS: Final[dict[str, BaseDistribution]] = {
    "stage": IntDistribution(0, 3),
    "batch": IntDistribution(1, 64),
    "offload": CategoricalDistribution(["none", "cpu", "nvme"]),
    "bucket": CategoricalDistribution([5, 50, 200, 500]),
    "overlap": CategoricalDistribution([True, False]),
}


def _step(params: Params) -> float:
    """Seconds a sample of made-up training with ZeRO."""
    batch, stage = params["batch"], params["stage"]
    seconds = 0.4 + 0.05 * batch + 0.25 * math.ceil(batch / 8) / 2
    seconds += (0.1, 0.12, 0.15, 0.4)[stage] * (0.6 if params["overlap"] else 1.0) * (1 + 20 / params["bucket"])
    return (seconds + {"none": 0.0, "cpu": 0.5, "nvme": 1.5}[params["offload"]]) / batch


def _memory(params: Params) -> float:
    """GiB that this needs beyond what there is."""
    states = (16.0, 9.0, 7.0, 4.0)[params["stage"]] * {"none": 1.0, "cpu": 0.5, "nvme": 0.4}[params["offload"]]
    return states + 0.3 * params["batch"] + params["bucket"] / 200 - 16.0


def _least(function: Callable[[Params], float], excess: Callable[[Params], float]) -> float:
    """The smallest feasible value of the settings, by going through all of them."""
    points = (
        {"stage": stage, "batch": batch, "offload": offload, "bucket": bucket, "overlap": overlap}
        for stage in range(4)
        for batch in range(1, 65)
        for offload in ("none", "cpu", "nvme")
        for bucket in (5, 50, 200, 500)
        for overlap in (True, False)
    )
    return min(function(point) for point in points if excess(point) <= 0)


_BRANIN: Final = {"x0": FloatDistribution(-5, 10), "x1": FloatDistribution(0, 15)}
FUNCTIONS: Final = (
    Function(name="sphere, 3", space=_cube(3, -5, 5), value=_sphere),
    Function(name="sphere, 6", space=_cube(6, -5, 5), value=_sphere),
    Function(name="Rosenbrock, 2", space=_cube(2, -2, 2), value=_rosenbrock),
    Function(name="Rosenbrock, 4", space=_cube(4, -2, 2), value=_rosenbrock),
    Function(name="Branin", space=_BRANIN, value=_branin, least=0.397887),
    Function(name="Hartmann, 6", space=_cube(6, 0, 1), value=_hartmann, least=-3.32237),
    Function(name="Ackley, 2", space=_cube(2, -10, 10), value=_ackley),
    Function(name="Ackley, 5", space=_cube(5, -10, 10), value=_ackley),
    Function(name="Rastrigin, 2", space=_cube(2, -5.12, 5.12), value=_rastrigin),
    Function(name="Rastrigin, 4", space=_cube(4, -5.12, 5.12), value=_rastrigin),
    Function(name="mixed training", space=_MIXED, value=_training),
    Function(name="Branin in a disc", space=_BRANIN, value=_branin, least=0.397887, excess=_outside_of_disc),
    Function(
        name="ZeRO in memory", space=_SETTINGS, value=_step, least=_least(_step, _memory), excess=_memory, is_told=False
    ),
)
