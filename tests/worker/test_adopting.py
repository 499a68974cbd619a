"""What a worker makes of a trial that another has left: it records what that one measured, or runs it again."""

import errno
import json
import socket
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dsopt.launch.outside import note_before
from dsopt.launch.strangers import Strangers
from dsopt.protocol.events import EventWriter
from dsopt.protocol.file_events import saved_file
from dsopt.protocol.run_dir import RunDir
from dsopt.store import claims
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.store.transactions import DevicesTaken
from dsopt.store.workers import leave
from dsopt.worker.asking import Asker
from dsopt.worker.assignment import Assignment
from dsopt.worker.ground import StudyGround
from dsopt.worker.hand import Hand
from dsopt.worker.history import load_history
from dsopt.worker.node_speed import NodeSpeed
from dsopt.worker.outage import Outage
from tests.store.ledger import POOL, ledger_of, measured, spec, sweep_now


class Worker:
    def __init__(self, store: Store, study: StoredStudy) -> None:
        self.store = store
        self.ledger = ledger_of(store)
        speed = NodeSpeed(store, POOL, lambda _: None)
        self.strangers = Strangers(POOL)
        hand = Hand(
            store=store, ledger=self.ledger, pool=POOL, tell=lambda _: None, speed=speed, strangers=self.strangers
        )
        self.taken_nodes = hand.taken_nodes
        self._asker = Asker(hand, study, lambda: True, lambda _: False, lambda *_: True, Outage(hand.tell))

    def next(self) -> Assignment | None:
        return self._asker.next(-1)

    def end(self) -> None:
        leave(self.store.engine, self.ledger.me)


@pytest.fixture
def study(store: Store, tmp_path: Path) -> StoredStudy:
    return store.create(spec(cwd=str(tmp_path)))[0]


def lost_baseline(store: Store, study: StoredStudy) -> Assignment:
    """A worker begins the baseline and ends."""
    first = Worker(store, study)
    begun = first.next()
    assert begun is not None and begun.task.name == "baseline"
    first.end()
    return begun


def test_a_trial_whose_folder_cannot_be_made_is_left_to_others(
    store: Store, study: StoredStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = lost_baseline(store, study)
    second, third = Worker(store, study), Worker(store, study)
    with monkeypatch.context() as patch:
        patch.setattr(RunDir, "create", lambda *_: (_ for _ in ()).throw(OSError(errno.EDQUOT, "quota")))
        with pytest.raises(OSError, match="quota"):
            second.next()
    with store.engine.connect() as connection:
        assert [row["trial"] for row in claims.free_of(connection, study.id)] == [lost.task.trial]
    sweep_now(store, third.ledger)
    again = third.next()
    assert again is not None and again.task == lost.task


def test_a_trial_of_a_study_that_is_stopped_just_then_is_left_to_others(
    store: Store, study: StoredStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker goes to another study; if somebody resumes this one, nobody waits for it."""
    lost = lost_baseline(store, study)
    second, create = Worker(store, study), RunDir.create
    sweep_now(store, second.ledger)

    def stop_and_create(*args: Any) -> RunDir:
        store.stop(study, "enough")
        return create(*args)

    monkeypatch.setattr(RunDir, "create", stop_and_create)
    assert second.next() is None
    with store.engine.connect() as connection:
        assert [row["trial"] for row in claims.free_of(connection, study.id)] == [lost.task.trial]


@pytest.mark.parametrize("is_its_own", [True, False])
def test_only_figures_of_the_lost_attempt_itself_are_recorded(
    store: Store, study: StoredStudy, is_its_own: bool
) -> None:
    """On another machine, a folder of the same name may hold the figures of a study that was deleted long ago."""
    lost = lost_baseline(store, study)
    content = {"attempt": lost.attempt.id if is_its_own else "f" * 32, **measured().to_json()}
    lost.run_dir.metrics.write_text(json.dumps(content))
    second = Worker(store, study)
    sweep_now(store, second.ledger)
    second.next()
    states = [run["state"] for run in store.runs(study) if run["candidate"] == "baseline"]
    assert states == ["failed", "measured" if is_its_own else "running"]


def test_what_a_lost_attempt_has_left_is_known_with_its_figures(
    store: Store, study: StoredStudy, tmp_path: Path
) -> None:
    """Runs beside each other met in its folder then, and the training went on from what it had left."""
    lost = lost_baseline(store, study)
    note_before(lost.run_dir, tmp_path, [tmp_path / "autotuning_results"])
    (tmp_path / "checkpoint-7").mkdir()
    (tmp_path / "model.pt").touch()
    writer = EventWriter(lost.run_dir, 0)
    writer.emit(saved_file(0, tmp_path / "model.pt"))
    writer.close()
    place = {"sources": json.dumps({"t.py": "digest"}), "node_matmul": 1e12, "ran_on": 7, "phase": "explore"}
    content = {"attempt": lost.attempt.id, "place": place, **measured().to_json()}
    lost.run_dir.metrics.write_text(json.dumps(content))
    second = Worker(store, study)
    sweep_now(store, second.ledger)
    second.next()
    known = load_history(store, study)
    [baseline] = [o for o in known.everything if o.name == "baseline"]
    assert baseline.sources == {"t.py": "digest"}
    with store.engine.connect() as connection:
        query = "SELECT value_json FROM trial_user_attributes WHERE key = 'ran_on'"
        assert [*connection.execute(sa.text(query)).scalars()] == [json.dumps(socket.gethostname())]
    assert [o.state for o in known.everything if o.name == "baseline"] == ["measured"]
    assert known.wrote_outside == ["checkpoint-7"]
    assert known.saves_in_place
    assert not (tmp_path / "model.pt").exists()


def test_a_stopped_study_adopts_nothing(store: Store, study: StoredStudy) -> None:
    lost_baseline(store, study)
    store.stop(study, "enough")
    assert Worker(store, study).next() is None
    assert [run["state"] for run in store.runs(study)] == ["failed"]


def test_a_trial_that_needs_a_node_of_a_training_lets_others_begin(
    store: Store, study: StoredStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is not taken up and left again without an end, which would wake all workers each time."""
    lost_baseline(store, study)
    worker = Worker(store, study)
    worker.taken_nodes.note("b")

    def begin(*_: object, **__: object) -> None:
        raise DevicesTaken

    monkeypatch.setattr(StudyGround, "begin", begin)
    assert worker.next() is None
    version = store.now(study).version
    assert worker.next() is None
    assert store.now(study).version == version
