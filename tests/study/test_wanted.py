"""What a run gets of several nodes' free devices."""

import pytest

from dsopt.study.wanted import Wanted

HOSTS = {"a": (0, 1, 2, 3), "b": (0, 1, 2, 3), "c": (0, 1)}


@pytest.mark.parametrize(
    ("nodes", "devices", "free", "chosen"),
    [
        (2, 2, HOSTS, {"a": (0, 1), "c": (0, 1)}),  # the small one is filled first
        (2, 4, HOSTS, {"a": (0, 1, 2, 3), "b": (0, 1, 2, 3)}),
        (1, 2, {"a": (2, 3), "b": (0, 1, 2, 3)}, {"a": (2, 3)}),  # the whole one stays whole
        (2, 2, {"a": (2, 3), "b": (1, 3)}, {"a": (2, 3), "b": (1, 3)}),
        (2, 3, {"a": (0, 1, 2), "b": (0, 1), "c": (0, 1)}, None),
        (3, None, HOSTS, HOSTS),
        (3, None, {**HOSTS, "b": (0, 1, 2)}, None),
        (4, 1, HOSTS, None),
    ],
)
def test_runs_fill_nodes_up(nodes: int, devices: int | None, free: dict, chosen: dict | None) -> None:
    assert Wanted(hosts=HOSTS, nodes=nodes, devices=devices).choose(free) == chosen


def test_nodes_that_were_lost_are_taken_last() -> None:
    wanted = Wanted(hosts=HOSTS, nodes=2, devices=2)
    assert set(wanted.choose(HOSTS, last=["c"])) == {"a", "b"}
    assert set(wanted.choose({"a": (0, 1), "c": (0, 1)}, last=["c"])) == {"a", "c"}


@pytest.mark.parametrize(
    ("nodes", "devices", "number"), [(1, 2, 5), (2, 2, 2), (2, 4, 1), (1, None, 3), (3, None, 1), (1, 3, 2)]
)
def test_how_many_fit_side_by_side(nodes: int, devices: int | None, number: int) -> None:
    assert Wanted(hosts=HOSTS, nodes=nodes, devices=devices).side_by_side == number


def test_whether_it_can_ever_be() -> None:
    assert Wanted(hosts=HOSTS, nodes=3, devices=2).can_ever_be
    assert not Wanted(hosts=HOSTS, nodes=3, devices=3).can_ever_be
