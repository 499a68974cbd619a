"""Workers in an outage, as a model: verdicts, proofs and pauses are the real ones, runs and the clock are made up."""

import itertools
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from dsopt.experiment.outcome import Failed, Infeasible, Measured
from dsopt.search.history import History
from dsopt.search.proof import proof_step
from dsopt.store.attempts import Task
from dsopt.study.part import REFERENCE, Part
from dsopt.study.space import Candidate
from dsopt.worker import blame, outage
from dsopt.worker.verdicts import Verdicts
from tests.made_up import history, observation, spec
from tests.store.ledger import measured

STUDY = SimpleNamespace(spec=spec({}), name="model")
OUTCOMES: dict[str, Failed | Infeasible] = {
    "dies": Failed(reason="crash", message="signal 9", retryable=True),
    "says": Failed(reason="machine", message="no network", retryable=True),
    "raises": Failed(reason="crash", message="ServiceError: no answer"),
    "hangs": Failed(reason="timeout", message="it took longer than 60 seconds"),
    "fills": Infeasible(reason="host_oom", message="the host's memory was full"),
}
AT_FAULT = [Failed(reason="crash", message="KeyError"), Failed(reason="crash", message="signal 11", retryable=True)]
STARTS = ("raises", "hangs")  # what only runs meet that begin in an outage
ROUND_SECONDS = 0.5


@dataclass
class Trial:
    """One of a study. `owner`: the worker that has it."""

    task: Task
    candidate: Candidate | None
    why: str | None = None
    state: str = "running"
    owner: "Worker | None" = None


@dataclass
class Run:
    """One in hand of a worker: when it ends, and what comes of it."""

    trial: Trial
    row: dict[str, Any]
    ends: float
    outcome: Measured | Failed | Infeasible


@dataclass
class Model:
    """A study of sizes that all run, but for those at fault, on nodes that all meet the outages."""

    nodes: list[str]
    outages: list[tuple[float, float]]
    how: str
    at_fault: set[int]
    chance: random.Random
    unfit: tuple[str, int] = ("", 0)  # a node, and the largest size that it bears
    run_seconds: tuple[int, ...] = (4, 6, 15)
    same_words: bool = False  # whether what is at fault says what the others say that fail
    now: float = 0.0
    trials: list[Trial] = field(default_factory=list)
    attempts: Any = field(default_factory=list)
    sizes: list[int] = field(default_factory=lambda: list(range(1, 13)))

    def __post_init__(self) -> None:
        self.workers = [Worker(self, node) for node in self.nodes]
        self.add("baseline", None)

    def add(self, name: str, candidate: Candidate | None, round_: int = 0, why: str | None = None) -> Trial:
        part = REFERENCE if round_ or candidate is None else Part("z1")
        task = Task(part=part, trial=len(self.trials), name=name, round=round_)
        self.trials.append(Trial(task, candidate, why))
        return self.trials[-1]

    def history(self) -> History:
        reference, searched = [], []
        for one in self.trials:
            value = 100.0 if one.state == "measured" else None
            names: Any = {
                "trial": one.task.trial,
                "name": one.task.name,
                "round": one.task.round,
                "why": one.why,
                "state": one.state,
            }
            found = replace(observation(one.candidate, value=value), **names)
            (reference if one.task.part == REFERENCE else searched).append(found)
        return replace(history(*searched), reference=reference)

    @property
    def charged(self) -> set[int]:
        """The sizes that count as failed."""
        ended = [trial for trial in self.trials if trial.state not in ("running", "measured")]
        return {trial.candidate.micro_batch for trial in ended if trial.candidate is not None}

    def work(self) -> None:
        """Until the study is done. It fails where a worker gives up, or nothing ends."""
        while self.sizes or any(trial.state == "running" for trial in self.trials):
            for worker in self.workers:
                worker.look()
            self.now += ROUND_SECONDS
            assert self.now < 3600


class Worker:
    """One with one lane."""

    def __init__(self, model: Model, node: str) -> None:
        ledger = SimpleNamespace(me=SimpleNamespace(node=node))
        self.model, self.node = model, node
        hand: Any = SimpleNamespace(tell=lambda _: None, ledger=ledger, pool=SimpleNamespace(placer=None))
        self.verdicts = Verdicts(hand, STUDY)  # type: ignore[arg-type]
        self.others = {other for other in model.nodes if other != node}
        self.run: Run | None = None

    def look(self) -> None:
        if self.run is not None and self.model.now >= self.run.ends:
            self.record(self.run)
        if self.run is None and not self.verdicts.outage.is_on and (trial := self.choose()) is not None:
            self.begin(trial)

    def choose(self) -> Trial | None:
        """As `Asker.next` does."""
        found = self.verdicts.outage
        waiting = [trial for trial in self.model.trials if trial.state == "running" and trial.owner is None]
        ready = [trial for trial in waiting if not self.is_avoided(trial.task.key)]
        if (found.is_shared and (trial := self.proof()) is not None) or (
            trial := min(ready, key=lambda one: found.rank(one.task.key), default=None)
        ) is not None:
            return trial
        has_run = any(trial.state == "measured" for trial in self.model.trials)
        if self.model.sizes and has_run and not found.avoids_others:
            candidate = Candidate(stage=1, micro_batch=self.model.sizes.pop(), gas=1)
            return self.model.add(candidate.name, candidate)
        return self.proof()

    def is_avoided(self, trial: tuple[Part, int]) -> bool:
        return self.verdicts.outage.avoids(trial) or (self.verdicts.health.avoids(trial) and bool(self.others))

    def proof(self) -> Trial | None:
        found = self.verdicts.outage
        found.keep({trial.task.key for trial in self.model.trials if trial.state == "running"})
        nodes = found.unproved_on
        step = None if nodes is None else proof_step(STUDY.spec, self.model.history(), nodes, found.waiting)
        return None if step is None else self.model.add(step.name, step.candidate, step.round, step.why)

    def begin(self, trial: Trial) -> None:
        model, task = self.model, trial.task
        trial.owner = self
        row = {
            "id": str(len(model.attempts)), "candidate": task.name, "stage": task.part, "trial": task.trial,
            "state": "running", "reason": None, "started_at": model.now, "finished_at": None, "node": self.node,
            "devices": json.dumps({self.node: [0]}), "message": "",
        }  # fmt: skip
        model.attempts.append(row)
        self.verdicts.outage.begun(task, [self.node])
        outcome: Measured | Failed | Infeasible = measured()
        size = trial.candidate.micro_batch if trial.candidate is not None else 0
        ends = model.now + (model.chance.choice(model.run_seconds) if size else min(model.run_seconds))
        if self.node == model.unfit[0] and size > model.unfit[1]:
            ends, outcome = model.now + 2, OUTCOMES[model.how]
        if size in model.at_fault:
            own = OUTCOMES[model.how] if model.how in STARTS or model.same_words else AT_FAULT[size % len(AT_FAULT)]
            ends, outcome = model.now + (30 if model.how == "hangs" else 2), own
        met = [max(model.now, start) for start, end in model.outages if model.now < end and ends > start]
        if met and (model.now in met or model.how not in STARTS):
            ends, outcome = min(met) + (30 if model.how == "hangs" else 1), OUTCOMES[model.how]
        self.run = Run(trial, row, ends, outcome)

    def record(self, run: Run) -> None:
        task, attempts = run.trial.task, self.model.attempts
        in_hand: Any = SimpleNamespace(
            assignment=SimpleNamespace(task=task, attempt=SimpleNamespace(id=run.row["id"]), nodes=(self.node,)),
            had_company=False,
        )
        what = self.verdicts.of(in_hand, run.outcome, attempts, self.others)
        told = run.outcome if isinstance(run.outcome, Failed | Infeasible) else None
        run.row.update(state=run.outcome.state, finished_at=self.model.now, message=told.message if told else "")
        run.row["reason"] = told.reason if told else None
        self.run = run.trial.owner = None
        if what == "tell":
            run.trial.state = run.outcome.state
        elif what == "elsewhere":
            self.verdicts.health.avoid(task, attempts)
        self.verdicts.outage.refuse("model")


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Model], None]:
    """Lets a model's time be that of its workers."""

    def set_(model: Model) -> None:
        for module in (outage, blame):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: model.now))

    return set_


@pytest.mark.parametrize("outages", [1, 2])
@pytest.mark.parametrize("how", ["dies", "says", "fills"])
@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_an_outage_ends_no_worker_and_charges_nobody_who_is_not_at_fault(
    set_clock: Callable[[Model], None], nodes: int, how: str, outages: int
) -> None:
    """Proofs that had met the outage never had their turn, and a second outage charged whom the first had met."""
    for seed in range(10):
        chance = random.Random(f"{seed} {nodes} {how} {outages}")
        begins = [50 + 90 * number + chance.uniform(0, 30) for number in range(outages)]
        model = Model(
            nodes=[f"n{number}" for number in range(nodes)],
            outages=[(begin, begin + chance.choice([20, 40] if outages > 1 else [30, 90])) for begin in begins],
            how=how,
            at_fault=set(chance.sample(range(1, 13), 5 - outages)),
            chance=chance,
        )
        set_clock(model)
        model.work()
        assert model.charged == model.at_fault, seed


@pytest.mark.parametrize("nodes", [["n0"], ["n0", "n1", "n2", "n3"], ["n0"] * 4])
def test_an_exception_that_nothing_names_charges_nobody_on_whatever_nodes(
    set_clock: Callable[[Model], None], nodes: list[str]
) -> None:
    """Each node's first was charged, and on one node what began beside those that ended well."""
    for seed in range(5):
        chance = random.Random(seed)
        model = Model(nodes, [(60, 100)], "raises", set(), chance, sizes=list(range(1, 41)), run_seconds=(10, 14, 20))
        set_clock(model)
        model.work()
        assert not model.charged, seed


@pytest.mark.parametrize("nodes", [["n0"] * 3, ["n0", "n1", "n2"]])
def test_what_is_at_fault_itself_charges_nobody_in_an_outage_that_says_the_same(
    set_clock: Callable[[Model], None], nodes: list[str]
) -> None:
    """Its words were known, so whatever raised them was charged at once, the best among them."""
    for seed in range(5):
        chance, sizes = random.Random(seed), list(range(1, 61))
        model = Model(nodes, [(160, 200)], "raises", {60}, chance, sizes=sizes, run_seconds=(10, 14, 20))
        set_clock(model)
        model.work()
        assert model.charged == {60}, seed


@pytest.mark.parametrize("nodes", [1, 4])
def test_what_hangs_charges_nobody_in_an_outage_also_where_some_hang_themselves(
    set_clock: Callable[[Model], None], nodes: int
) -> None:
    """Those that did told the reason of all that had to wait for the network later."""
    names, hangs = [f"n{number}" for number in range(nodes)], {57, 58, 59, 60}
    begins = 700 / nodes + 100
    outages, sizes, seconds = [(begins, begins + 120)], list(range(1, 61)), (10, 14, 20)
    model = Model(names, outages, "hangs", hangs, random.Random(1), sizes=sizes, run_seconds=seconds)
    set_clock(model)
    model.work()
    assert model.charged == hangs


@pytest.mark.parametrize(
    ("how", "seconds"),
    [
        *itertools.product(["dies", "fills"], [(20, 60), (20, 200), (60, 120)]),
        *itertools.product(["hangs"], [(20, 60), (20, 200)]),
    ],
)
def test_what_only_one_node_cannot_run_is_run_by_the_other(
    set_clock: Callable[[Model], None], how: str, seconds: tuple[int, int]
) -> None:
    """The one was free sooner, tried again and again, and charged what the other never tried."""
    model = Model(["small", "large"], [], how, set(), random.Random(0), unfit=("small", 4), run_seconds=seconds)
    set_clock(model)
    model.work()
    assert model.charged == set()


@pytest.mark.parametrize("how", ["fills", "raises"])
def test_what_is_at_fault_itself_charges_nothing_that_says_the_same_on_one_node_only(
    set_clock: Callable[[Model], None], how: str
) -> None:
    """The largest fail on both nodes; others that said the same on the small one were never tried on the large one."""
    for seed in range(3):
        sizes, chance = list(range(1, 25)), random.Random(seed)
        model = Model(["small", "large"], [], how, {22, 23, 24}, chance, ("small", 4), (20, 60), sizes=sizes)
        model.same_words = True
        set_clock(model)
        model.work()
        assert model.charged == model.at_fault, seed
