"""Whatever workers and people do, in whatever order, and whoever dies or comes back: the same things always hold.

hypothesis chooses what happens. `world.py` does it in a real database and knows what is true; `truths.py` says what
must hold after each step. DSOPT_EXAMPLES=2000 makes it look further than `make test` does.
"""

import os
from collections.abc import Callable
from functools import partial

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run

from dsopt.store.studies import Store
from tests.store.ledger import spec
from tests.store.truths import Truths
from tests.store.world import BUDGET, OUTCOMES, World

EXAMPLES = int(os.environ.get("DSOPT_EXAMPLES", "25"))
STEPS = 40
SETTINGS = hypothesis.settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
PICK = st.integers(0, 2)  # of what there is
NODES = st.sampled_from(["one", "two"])
ONE_STAGE = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 0}}


def some_worker(state: str = "works") -> Callable[[Callable], Callable]:
    """A rule's precondition: there is a worker in that state."""
    return precondition(lambda self: any(worker.state == state for worker in self.world.workers))


class Machine(RuleBasedStateMachine):
    """What people, workers and fate may do."""

    def __init__(self, stores: list[Store]) -> None:
        super().__init__()
        self.world = World(stores)
        self.timeouts = self.steps = 0

    def pick(self, among: list, number: int):
        """One of those, the newest more often than others."""
        return among[-1 - number % len(among)]

    @property
    def studies(self) -> list:
        """Those that there are, and the last that there was."""
        gone = [study for study in self.world.studies if study.id in self.world.deleted]
        return [*gone[-1:], *(study for study in self.world.studies if study.id not in self.world.deleted)]

    def worker(self, number: int, state: str = "works"):
        return self.pick([worker for worker in self.world.workers if worker.state == state], number)

    @initialize()
    def begin(self) -> None:
        self.create("a")
        self.create("b")
        for node in ("one", "one", "two"):
            self.world.register(node)

    # --- people

    @rule(number=PICK, what=st.sampled_from(["stop", "resume", "resume", "create again"]))
    def person_does(self, number: int, what: str) -> None:
        store, study = self.world.stores[0], self.pick(self.studies, number)
        if study.id in self.world.deleted:
            return
        if what == "resume":
            store.resume(study)
            return
        store.stop(study, "enough")
        if what == "create again":
            store.delete(study)
            self.world.deleted.add(study.id)
            self.create(study.name)

    def create(self, name: str) -> None:
        self.timeouts += 1
        changed = spec(name, ds_config=ONE_STAGE, timeout_seconds=100 + self.timeouts)
        study, is_new = self.world.stores[0].create(changed)
        assert is_new
        self.world.studies.append(study)

    # --- fate

    @some_worker()
    @rule(number=PICK, by=PICK, of=PICK, beats=st.booleans(), then=st.sampled_from(["begin", "report", "end", "task"]))
    def is_silent(self, number: int, by: int, of: int, beats: bool, then: str) -> None:
        """A worker is suspended, another takes it for dead, and it goes on: it is in time if it beats before that."""
        worker, other, study = self.worker(number), self.worker(by), self.pick(self.studies, of)
        if worker is other:
            return
        self.begin_run(number, of, 0, 1)
        if then == "task":
            self.end(number, 0, "again")
        self.world.silence(worker)
        self.world.look_for_dead(other)
        if beats:
            self.world.beat(worker)
        self.world.bury(other)
        if then == "begin":
            self.world.look(worker, study)
            self.world.begin(worker, study, 1, 1)
        elif then == "task":
            self.world.adopt(other, study)
            for task in [*worker.tasks, *worker.tasks][-2:]:  # first as who it was, then under another id
                if task in worker.tasks:
                    self.world.begin_again(worker, *task)
        elif worker.runs:
            self.world.report(worker, worker.runs[-1]) if then == "report" else self.end(number, 0, "measured")

    @some_worker()
    @rule(number=PICK)
    def freeze(self, number: int) -> None:
        worker = self.worker(number)
        worker.state = "frozen"
        self.world.silence(worker)

    @some_worker("frozen")
    @rule(number=PICK)
    def come_back(self, number: int) -> None:
        self.worker(number, "frozen").state = "works"

    @some_worker()
    @rule(number=PICK, node=NODES)
    def die(self, number: int, node: str) -> None:
        """A worker is killed, and somebody starts another."""
        self.world.kill(self.worker(number))
        self.world.register(node)

    # --- workers

    @some_worker()
    @rule(number=PICK, what=st.sampled_from(["beat", "look_for_dead", "bury", "look_for_orphans", "sweep"]))
    def look_after(self, number: int, what: str) -> None:
        getattr(self.world, what)(self.worker(number))

    @some_worker()
    @rule(number=PICK, of=PICK, which=st.integers(0, 2), count=st.integers(0, 2))
    def begin_run(self, number: int, of: int, which: int, count: int) -> None:
        worker, study = self.worker(number), self.pick(self.studies, of)
        self.world.look(worker, study)
        self.world.begin(worker, study, which, count)

    @some_worker()
    @rule(number=PICK, by=PICK, of=PICK, which=st.integers(0, 2))
    def begin_late(self, number: int, by: int, of: int, which: int) -> None:
        """A worker begins a run on what it read before another began one."""
        worker, study = self.worker(number), self.pick(self.studies, of)
        self.world.look(worker, study)
        self.begin_run(by, of, 0, 1)
        self.world.begin(worker, study, which, 1)

    @some_worker()
    @rule(number=PICK, of=PICK, what=st.sampled_from([*OUTCOMES, "again", "left", "report"]))
    def end(self, number: int, of: int, what: str) -> None:
        worker = self.worker(number)
        if worker.runs:
            run = self.pick(worker.runs, of)
            self.world.report(worker, run) if what == "report" else self.world.end(worker, run, what)

    @some_worker()
    @rule(number=PICK, of=PICK, what=st.sampled_from(["begin_again", "begin_again", "record_spooled", "leave"]))
    def go_on(self, number: int, of: int, what: str) -> None:
        """A worker goes on with a trial that it has already, or else adopts one."""
        worker = self.worker(number)
        if worker.tasks:
            getattr(self.world, what)(worker, *self.pick(worker.tasks, of))
        else:
            self.world.adopt(worker, self.pick(self.studies, of))

    @some_worker()
    @rule(number=PICK, of=PICK, what=st.sampled_from([*OUTCOMES, "give_back", "look", "finish"]))
    def look_back(self, number: int, of: int, what: str) -> None:
        """A worker writes about a run that is over, or about the whole study."""
        worker = self.worker(number)
        if what in ("look", "finish"):
            getattr(self.world, what)(worker, self.pick(self.studies, of))
            return
        over = [run for run in self.world.runs.values() if run.is_ended and run.by.id in worker.ids]
        if over:
            run = self.pick(over, of)
            if what != "give_back":
                self.world.end_again(worker, run, what)
            elif run.has_failed:
                self.world.give_back(worker, run)

    # --- what holds

    @invariant()
    def all_is_true(self) -> None:
        self.steps += 1
        Truths(self.world).check()

    @precondition(lambda self: self.steps >= STEPS - 10)
    @rule()
    def in_the_end_all_is_done(self) -> None:
        """Everybody dies, and one new worker of each node does what is left."""
        for worker in self.world.workers:
            self.world.kill(worker)
            self.world.silence(worker)
        last = [self.world.register(node) for node in ("one", "two")]
        for worker in last:
            for act in (self.world.look_for_dead, self.world.bury, self.world.look_for_orphans, self.world.sweep):
                act(worker)
        for study in self.world.studies:
            if study.id not in self.world.deleted:
                self.world.stores[0].resume(study)
                for _ in range(3 * BUDGET):
                    self.do_what_is_left(last[0], study)
        Truths(self.world).all_is_done()
        self.steps = 0

    def do_what_is_left(self, worker, study) -> None:
        self.world.look(worker, study)
        if self.world.adopt(worker, study) is not None:
            begun = self.world.begin_again(worker, *worker.tasks[-1], 2)
            assert begun is not None
        else:
            begun = self.world.begin(worker, study, 0, 2)
        if begun is not None:
            self.world.end(worker, begun, "measured")
        else:
            self.world.finish(worker, study)

    def teardown(self) -> None:
        """The database is empty again; what processes have read stays in them."""
        self.world.clear()


@pytest.fixture
def stores(storage_url: str):
    opened = [Store.open(storage_url, make=True), Store.open(storage_url), Store.open(storage_url)]
    yield opened
    for store in opened:
        store.close()


def test_whatever_happens_nothing_is_lost_doubled_or_false(stores: list[Store]) -> None:
    run(partial(Machine, stores), settings=SETTINGS)
