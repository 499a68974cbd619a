"""What a worker carries a plan out with."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dsopt.experiment.outcome import Failed
from dsopt.launch.devices import DevicePool
from dsopt.launch.placement import Placement
from dsopt.launch.placers.placer import ChoosingPlacer
from dsopt.launch.strangers import Strangers
from dsopt.store.attempts import Task
from dsopt.store.ledger import Ledger
from dsopt.store.studies import Store
from dsopt.worker.capacity import Places, without_nodes, without_slow
from dsopt.worker.happenings import Happening, NodeAvoided
from dsopt.worker.node_speed import NodeSpeed
from dsopt.worker.taken_nodes import TakenNodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Hand:
    """What a worker carries a plan out with: where it is stored, in whose name, on which devices, and who is told.

    `speed` measures this worker's node, and `strangers` sees who else is on its GPUs; `wake` is called when it is worth
    asking again; `note_database` where another database may be in the place of the former; `lost_nodes` are nodes that
    were lost during runs, which others are preferred to; `taken_nodes` are those that a training has.
    """

    store: Store
    ledger: Ledger
    pool: DevicePool
    tell: Callable[[Happening], None]
    speed: NodeSpeed
    strangers: Strangers
    wake: Callable[[], None] = lambda: None
    note_database: Callable[[], None] = lambda: None
    lost_nodes: list[str] = field(default_factory=list)
    taken_nodes: TakenNodes = field(default_factory=TakenNodes)

    @property
    def avoided_nodes(self) -> list[str]:
        """The nodes that were lost, and those of trainings."""
        return [*self.lost_nodes, *self.taken_nodes.now]

    def avoid_node(self, task: Task, outcome: Failed) -> None:
        """Notes the node that a run has lost, or that a training has, and tells of it."""
        if outcome.node is None:
            return
        is_new, is_taken = True, outcome.reason == "taken"
        if is_taken:
            is_new = self.taken_nodes.note(outcome.node)
        else:
            self.lost_nodes.append(outcome.node)
        if is_new:
            self.tell(NodeAvoided(task=task, node=outcome.node, why=outcome.message, is_for_now=is_taken))

    def free_of(self, places: Places) -> Places:
        """The same without nodes of trainings, this node's GPUs that strangers use, and slow devices.

        The last only if a run can do without them.
        """
        spared = without_slow(without_nodes(places, self.taken_nodes.now), self.speed.slow, self.ledger.me.node)
        if not spared.count and spared.wanted is None:
            return spared
        used = self.strangers.on(spared.pool.indices)
        return replace(spared, pool=spared.pool.without(used)) if used else spared

    def release(self, placement: Placement | None) -> None:
        """Gives back what an engine had granted for a run that is over."""
        if placement is not None and isinstance(self.pool.placer, ChoosingPlacer):
            self.pool.placer.release(placement)
