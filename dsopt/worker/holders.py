"""Who has the devices that a worker waits for, as watchers are told."""

from dsopt.launch.device_locks import without_reserved
from dsopt.launch.gpus import used_by
from dsopt.launch.placers.placer import ChoosingPlacer
from dsopt.store.stored import StoredStudy
from dsopt.store.who_works import holder_of_files, holders_on
from dsopt.worker.capacity import request_of, smallest_of
from dsopt.worker.hand import Hand
from dsopt.worker.happenings import DevicesAwaited


class Holders:
    """Tells watchers who has the devices, when that changes.

    Args:
        hand: of the worker that waits.
        study: the study that it works on.
    """

    def __init__(self, hand: Hand, study: StoredStudy) -> None:
        self._hand, self._study = hand, study
        self._told = DevicesAwaited(study=study, holders=[])
        self._were_some = False
        self.are_soon_gone = False  # by the last look

    def look(self, files: str) -> None:
        """Looks who has them now, and who has the folder of this name for itself."""
        hand = self._hand
        with hand.store.engine.connect() as connection:
            holders = holders_on(connection, self._nodes(), without=hand.ledger.me.id)
            holder = holder_of_files(connection, files) if files else None
        if holder is not None and holder[1] == hand.ledger.me.id:
            return  # a run of its own
        placer = hand.pool.placer
        engine = placer.name if isinstance(placer, ChoosingPlacer) and placer.standing == "queued" else None
        not_reserved = without_reserved(hand.pool).indices
        training = len(hand.pool.indices) - len(not_reserved)
        strangers = [used_by(*one) for one in hand.strangers.on(not_reserved).items()]
        strangers += [f"a training of 'dsopt run' has devices of {node}" for node in hand.taken_nodes.now]
        have_come_free = self._were_some and not holders and engine is None  # just now: the next look tells
        self._were_some = bool(holders or holder)
        self.are_soon_gone = have_come_free or any(name == "" for _, name, _ in holders)
        files_of = None if holder is None else holder[0]
        event = DevicesAwaited(
            study=self._study,
            holders=holders,
            engine=engine,
            training=training,
            strangers=strangers,
            files_of=files_of,
        )
        if event != self._told and not have_come_free:
            self._told = event
            hand.tell(event)

    def forget(self) -> None:
        """Notes that nobody waits for them now."""
        self._were_some = False

    def _nodes(self) -> set[str]:
        """The nodes whose devices a run may take, by the names in their leases: this one, and others that it wants."""
        request = request_of(smallest_of(self._study.spec, self._hand.pool))
        others = request.hosts if request.wanted is None else request.wanted.hosts
        return {self._hand.ledger.me.node, *others}
