"""Finds the range of micro-batch sizes of a stage: upwards by doubling, towards the memory limit by halving."""

from collections.abc import Callable, Collection, Mapping

# if a larger micro-batch gains less than this, the range ends
_MIN_GAIN = 0.02


def next_micro_batch(
    measured: Mapping[int, float],
    unrunnable: Collection[int],
    *,
    start: int,
    floor: int,
    ceiling: int | None,
    is_better: Callable[[float, float, float], bool],
) -> int | None:
    """The next micro-batch size to try while finding a stage's range; None when the range is found.

    Args:
        measured: metric by micro-batch size.
        unrunnable: sizes that ran out of memory, could not fit, or failed.
        start: size to begin with.
        floor: the smallest to try when `start` does not run.
        ceiling: the largest allowed or expected to fit, if there is one.
        is_better: whether a metric is better than another by more than a fraction.
    """
    wall = min(unrunnable, default=None)
    limit = ceiling if wall is None else wall - 1 if ceiling is None else min(ceiling, wall - 1)
    if not measured and not unrunnable:
        return max(floor, start if limit is None else min(start, limit))
    if not measured:
        assert wall is not None
        smaller = wall // 2
        return smaller if smaller >= floor else None
    sizes = sorted(measured)
    best = _best_size(measured, is_better)
    if best == sizes[-1]:
        if len(sizes) > 1 and not is_better(measured[best], measured[sizes[-2]], _MIN_GAIN):
            return None
        larger = 2 * best
        if wall is not None:
            larger = min(larger, (best + wall) // 2)
        if limit is not None:
            larger = min(larger, limit)
        return larger if larger - best >= max(1, best // 8) else None
    if best == sizes[0] and best // 2 >= floor:
        return best // 2  # larger ones were worse
    return None


def sizes_to_explore(
    measured: Mapping[int, float], count: int, is_better: Callable[[float, float, float], bool]
) -> list[int]:
    """At most `count` sizes to explore further: the best one, those half-way to its neighbours, then its neighbours."""
    if not measured:
        return []
    sizes = sorted(measured)
    best = _best_size(measured, is_better)
    index = sizes.index(best)
    neighbours = sizes[max(0, index - 1) : index] + sizes[index + 1 : index + 2]
    between = [(best + other) // 2 for other in neighbours]
    chosen: list[int] = []
    for size in [best, *between, *neighbours]:
        if size not in chosen:
            chosen.append(size)
    return chosen[:count]


def _best_size(measured: Mapping[int, float], is_better: Callable[[float, float, float], bool]) -> int:
    sizes = sorted(measured)
    best = sizes[0]
    for size in sizes[1:]:
        if is_better(measured[size], measured[best], 0.0):
            best = size
    return best
