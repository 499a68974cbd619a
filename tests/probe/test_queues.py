"""What waits in queues from which a training takes its input."""

import multiprocessing
import multiprocessing.queues
import queue
import threading
import time

import pytest

from dsopt.probe.queues import Queues


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> Queues:
    found = Queues()
    for module in (queue, multiprocessing.queues):
        monkeypatch.setattr(module.Queue, "get", module.Queue.get)  # undone after the test
        found.watch(module)
    return found


def filled(items: int) -> queue.Queue[int]:
    made: queue.Queue[int] = queue.Queue()
    for item in range(items):
        made.put(item)
    return made


def test_what_waits_is_counted_in_steps(queues: Queues) -> None:
    ahead = filled(20)
    assert queues.waiting() == 0  # nobody has taken from it
    for _ in range(4):  # as with four samples in a batch, or four batches in a step
        ahead.get()
    assert queues.waiting() == 4
    assert queues.waiting() == 0
    ahead.get()
    assert queues.waiting() == 15


def test_what_other_threads_take_is_none_of_the_training(queues: Queues) -> None:
    ahead = filled(20)
    thread = threading.Thread(target=ahead.get)
    thread.start()
    thread.join()
    assert queues.waiting() == 0


def test_queues_between_processes_count_too(queues: Queues) -> None:
    ahead: multiprocessing.Queue[int] = multiprocessing.Queue()
    for item in range(3):
        ahead.put(item)
    ahead.get()
    while ahead.qsize() != 2:  # a thread of the queue puts them
        time.sleep(0.01)
    assert queues.waiting() == 2
    ahead.close()
    ahead.join_thread()


def test_queues_that_are_gone_are_forgotten(queues: Queues) -> None:
    filled(20).get()
    assert queues.waiting() == 0
