"""What waits in queues from which a training takes its input."""

import concurrent.futures
import multiprocessing
import multiprocessing.pool
import multiprocessing.queues
import queue
import threading
import time
from collections.abc import Callable

import pytest

from dsopt.experiment.read_ahead import read_ahead
from dsopt.experiment.seen import Seen
from dsopt.probe.queues import Queues
from tests.runs import step


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> Queues:
    found = Queues()
    iterator, future = multiprocessing.pool.IMapIterator, concurrent.futures.Future
    for owner, names in (
        *((module.Queue, ("get", "put")) for module in (queue, multiprocessing.queues)),
        (multiprocessing.queues.JoinableQueue, ("put",)),
        (iterator, ("next", "__next__")),
        (future, ("result", "set_result")),
    ):
        for name in names:
            monkeypatch.setattr(owner, name, getattr(owner, name))  # undone after the test
    found.watch(queue)
    found.watch(multiprocessing.queues)
    found.watch_pools(multiprocessing.pool)
    found.watch_futures(concurrent.futures._base)
    return found


def filled(items: int) -> queue.Queue[list[int]]:
    """By another thread, as a reader does."""
    made: queue.Queue[list[int]] = queue.Queue()
    in_a_thread(lambda: [made.put([item]) for item in range(items)])
    return made


def in_a_thread(act: Callable[[], object]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def test_what_waits_is_counted_in_steps(queues: Queues) -> None:
    ahead = filled(20)
    assert queues.waiting() == 0  # nobody has taken from it
    for _ in range(4):  # as with four samples in a batch, or four batches in a step
        ahead.get()
    assert queues.waiting() == 4
    ahead.get()
    assert queues.waiting() == 15  # the first step may have filled what lies between


def test_what_is_taken_once_in_several_steps_lasts_for_as_many(queues: Queues) -> None:
    """As where an item holds several batches, or a pool hands over chunks."""
    ahead, told = filled(200), []
    for number in range(60):
        if number % 4 == 0:
            ahead.get()
        if number % 12 == 11:  # another one is read
            in_a_thread(lambda: ahead.put([0]))
        told.append(queues.waiting())
    assert told[0] == 199 and told[16] == 4 * 196
    seen = Seen()
    for number, left in enumerate(told):
        seen.add(step(number, waiting=left))
    assert read_ahead(seen) == pytest.approx(1200, rel=0.1)


def test_a_training_in_a_thread_of_its_own(queues: Queues) -> None:
    ahead: queue.Queue[int] = queue.Queue()
    for item in range(20):
        ahead.put(item)
    told: list[int] = []
    in_a_thread(lambda: (ahead.get(), told.append(queues.waiting())))
    assert told == [19]


def test_a_first_item_of_its_own_does_not_make_a_queue_the_trainings(queues: Queues) -> None:
    ahead = filled(20)
    ahead.put([-1])
    ahead.get()
    assert queues.waiting() == 20


def test_what_the_training_gives_others_to_do_is_no_input(queues: Queues) -> None:
    to_log: queue.Queue[int] = queue.Queue()
    for number in range(20):
        to_log.put(number)
    in_a_thread(to_log.get)
    assert queues.waiting() == 0


def test_what_threads_pass_on_among_themselves_is_no_input(queues: Queues) -> None:
    in_a_thread(filled(20).get)
    assert queues.waiting() == 0


def test_what_waits_behind_another_thread_counts(queues: Queues) -> None:
    """One thread reads, the next one makes batches of it."""
    samples, batches = filled(40), queue.Queue[list[int]](2)
    in_a_thread(lambda: batches.put([samples.get()[0] for _ in range(4)]))
    batches.get()
    assert queues.waiting() == 9


def test_names_of_what_is_to_be_read_are_no_input(queues: Queues) -> None:
    """A thread lists files, another one reads them: that many are listed says nothing of how fast it reads."""
    names, batches = queue.Queue[str](), queue.Queue[list[str]](4)
    in_a_thread(lambda: [names.put(f"part-{number}") for number in range(5000)])
    in_a_thread(lambda: batches.put([names.get()]))
    batches.get()
    assert queues.waiting() == 0
    names.get()  # a training that reads by itself
    assert queues.waiting() == 4998


def test_items_that_last_for_many_steps(queues: Queues) -> None:
    ahead, told = queue.Queue[list[int]](), []
    for number in range(200):
        if number % 64 == 0:
            in_a_thread(lambda: [ahead.put([0]) for _ in range(8 - ahead.qsize() + 1)])
            ahead.get()
        told.append(queues.waiting())
    assert told[-1] == 8 * 64
    seen = Seen()
    for number, left in enumerate(told):
        seen.add(step(number, waiting=left))
    assert read_ahead(seen) == 0


def test_what_a_pool_has_ready_counts(queues: Queues) -> None:
    with multiprocessing.pool.ThreadPool(2) as pool:
        ahead = pool.imap(abs, range(12))
        assert [next(ahead), ahead.next()] == [0, 1]
        while len(ahead._items) < 10:
            time.sleep(0.01)
        assert queues.waiting() == 5


def test_futures_that_are_done_count(queues: Queues) -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        ahead = [executor.submit(abs, number) for number in range(12)]
        concurrent.futures.wait(ahead)
        assert [future.result() for future in ahead[:3]] == [0, 1, 2]
        assert ahead[0].result() == 0  # taken before
        assert queues.waiting() == 3
    del ahead
    assert queues.waiting() == 0


def test_queues_between_processes_count_too(queues: Queues) -> None:
    ahead: multiprocessing.Queue[int] = multiprocessing.Queue()
    in_a_thread(lambda: [ahead.put(item) for item in range(3)])
    ahead.get()
    while ahead.qsize() != 2:  # a thread of the queue puts them
        time.sleep(0.01)
    assert queues.waiting() == 2
    ahead.close()
    ahead.join_thread()


def test_queues_that_are_gone_are_forgotten(queues: Queues) -> None:
    filled(20).get()
    assert queues.waiting() == 0
