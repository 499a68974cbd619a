"""Schedules of DeepSpeed by which samples grow from step to step, over thousands of them."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from dsopt.study.ds_config import get_path

_METRICS: Final = "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics"
_DIFFICULTY: Final = ("min_difficulty", "max_difficulty")
_TOKENS: Final = ("min_value", "max_value")


def end_curricula(config: Mapping[str, Any]) -> list[str]:
    """Sets each that is on to its end, in place: a run sees its first steps only, and those say nothing of the others.

    Returns:
        The paths of their sections.
    """
    ended = []
    for path, (least, greatest) in _sections(config):
        section = get_path(config, path)
        above = ["", *itertools.accumulate(path.split("."), "{}.{}".format)]
        switches = [get_path(config, f"{part}.enabled".lstrip(".")) for part in above]
        is_on = True in switches and False not in switches
        rises = isinstance(section, dict) and section.get(least) != section.get(greatest, section.get(least))
        if is_on and rises:
            section[least] = section[greatest]
            ended.append(path)
    return ended


def _sections(config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, str]]]:
    yield "curriculum_learning", _DIFFICULTY
    metrics = get_path(config, _METRICS)
    for name in metrics if isinstance(metrics, Mapping) else ():
        yield f"{_METRICS}.{name}", _DIFFICULTY
    yield "data_efficiency.data_routing.random_ltd.random_ltd_schedule", _TOKENS
