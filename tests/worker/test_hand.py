"""Which nodes a worker begins no run on."""

from types import SimpleNamespace

import pytest

from dsopt.launch.devices import DevicePool
from dsopt.launch.strangers import Strangers
from dsopt.store.studies import Store
from dsopt.study.wanted import Wanted
from dsopt.worker import taken_nodes
from dsopt.worker.capacity import Places
from dsopt.worker.hand import Hand
from dsopt.worker.node_speed import NodeSpeed
from tests.store.ledger import POOL, ledger_of


def test_a_node_that_a_training_has_is_left_alone_for_a_while(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    speed = NodeSpeed(store, POOL, lambda _: None)
    hand = Hand(
        store=store, ledger=ledger_of(store), pool=POOL, tell=lambda _: None, speed=speed, strangers=Strangers(POOL)
    )

    def at(moment: float) -> None:
        monkeypatch.setattr(taken_nodes, "time", SimpleNamespace(monotonic=lambda: moment))

    hosts, now = {"b": (0, 1), "c": (0, 1)}, 5.0  # the machine has just started
    for wanted in (Wanted(hosts=hosts, nodes=1, devices=2), Wanted(hosts=hosts, nodes=2)):
        places = Places(pool=DevicePool(kind="cpu", indices=()), count=0, wanted=wanted)
        assert hand.free_of(places) == places
        at(now)
        assert hand.taken_nodes.note("c")
        assert not hand.taken_nodes.note("c")  # two runs met the same training: it waits no longer
        left = hand.free_of(places).wanted
        assert left is not None
        assert left.choose(hosts) == ({"b": (0, 1)} if wanted.nodes == 1 else None)
        assert hand.avoided_nodes == ["c"]
        at(now + 121)
        assert hand.free_of(places) == places
        assert not hand.taken_nodes.note("c")  # for longer this time
        at(now + 242)
        assert hand.avoided_nodes == ["c"]
        at(now + 5000)
        now += 10_000
