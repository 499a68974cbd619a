"""Which threads of a worker ask the database."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

import dsopt
from dsopt.worker import heart
from tests.studies import write_study


@pytest.fixture
def askers() -> Iterator[set[str]]:
    """The names of the threads that have used a connection, to whatever database."""
    names: set[str] = set()

    def note(*_: object) -> None:
        names.add(threading.current_thread().name)

    sa.event.listen(sa.pool.Pool, "checkout", note)
    yield names
    sa.event.remove(sa.pool.Pool, "checkout", note)


def test_lanes_ask_no_database(
    storage_url: str, tmp_path: Path, askers: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two at a time, runs begin, report and end. The main thread only starts the worker."""
    monkeypatch.setenv("SIMULATED_SECONDS", "0.1")
    monkeypatch.setattr(heart, "HEARTBEAT_SECONDS", 0.1)
    sizes = {"train_micro_batch_size_per_gpu": [4, 8]}
    write_study(tmp_path, ds_config=sizes, measurement={"max_steps": 15}, confirmation={"finalists": 1, "rounds": 2})
    study = dsopt.create_study(tmp_path / "study.yaml", storage=storage_url)
    study.start_worker("cpu:4").join()
    assert askers == {"MainThread", "dsopt-desk", "dsopt-heart", "dsopt-waker"}
    assert study.state == "finished"
    study.close()
