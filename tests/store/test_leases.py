"""Who may hold a device at the same time, whatever it is called, and who frees it when a worker has died."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool
from dsopt.launch.placement import Place, Placement, Reach
from dsopt.launch.placers.placer import ChoosingPlacer
from dsopt.launch.process import Process
from dsopt.launch.processes import host_identity, start_ticks
from dsopt.protocol.presence import be_present, may_be_present
from dsopt.protocol.run_dir import RunDir
from dsopt.store.attempts import Attempt
from dsopt.store.backup import refuse_to_lose
from dsopt.store.beats import Beats
from dsopt.store.lease_queries import leases_left, leases_on
from dsopt.store.leases import Request, count_free_after_all, is_folder_free, take
from dsopt.store.ledger import Ledger
from dsopt.store.neighbours import neighbours
from dsopt.store.orphans import find_orphans, sweep
from dsopt.store.studies import Store, StoredStudy
from dsopt.store.tables import attempts
from dsopt.store.transactions import DevicesTaken, writing
from dsopt.store.who_works import holder_of_files, holders_on
from dsopt.store.workers import leave
from dsopt.study.wanted import Wanted
from tests.runs import launch
from tests.store.ledger import ledger_of, new_task, spec

HOSTS = {"a": (0, 1), "b": (0, 1)}
NONE = DevicePool(kind="gpu", indices=())


@pytest.fixture
def study(store: Store) -> StoredStudy:
    return store.create(spec())[0]


def gpus(*uuids: str) -> DevicePool:
    """A pool of GPUs that are counted from 0."""
    return DevicePool(kind="gpu", indices=tuple(range(len(uuids))), uuids=dict(enumerate(uuids)))


def slots(count: int) -> DevicePool:
    return DevicePool(kind="cpu", indices=tuple(range(count)))


def at(store: Store, node: str, host: str | None = None) -> Ledger:
    """That of a worker on a node, which has processes of its own if a host is given."""
    ledger = ledger_of(store)
    ledger.me = replace(ledger.me, node=node, host=host or ledger.me.host)
    return ledger


def begin(
    ledger: Ledger,
    study: StoredStudy,
    pool: DevicePool,
    *,
    hosts: Mapping[str, Sequence[int]] | None = None,
    run_dir: Path = Path("/made/up"),
    count: int | None = None,
) -> Attempt:
    """Begins an attempt with devices of a pool: all of them, if no number is given."""
    return begin_as(ledger, study, request(pool, count, hosts), run_dir)


def begin_as(ledger: Ledger, study: StoredStudy, request: Request, run_dir: Path = Path("/made/up")) -> Attempt:
    task = replace(new_task(f"of {ledger.me.id}"), round=0)
    return ledger.begin(study, task, run_dir, request)[1]


def request(pool: DevicePool, count: int | None = None, hosts: Mapping[str, Sequence[int]] | None = None) -> Request:
    count = len(pool.indices) if count is None else count
    return Request(pool=pool, count=count, hosts=hosts or {}, is_exclusive=pool.is_exclusive)


TWICE = {
    "the same GPU under another node's name": (("a", gpus("x"), None), ("b", gpus("x"), None)),
    "the same GPU under another index": (("a", gpus("x"), None), ("a", gpus("y", "x"), None)),
    "the same slot": (("a", slots(1), None), ("a", slots(2), None)),
    "two runs on the same nodes": (("a", NONE, HOSTS), ("b", NONE, HOSTS)),
    "two runs that share one node": (("a", NONE, HOSTS), ("c", NONE, {"b": (1,), "c": (0,)})),
    "a run by a host file, and a local one": (("a", NONE, HOSTS), ("b", gpus("w", "x"), None)),
    "a local one, and a run by a host file": (("b", gpus("x"), None), ("a", NONE, HOSTS)),
    "a local one without UUIDs, and one with": (("a", replace(gpus("x"), uuids={}), None), ("a", gpus("x"), None)),
}


def test_runs_that_save_in_one_folder_go_one_after_the_other(store: Store, study: StoredStudy) -> None:
    """On whatever devices and nodes: they would meet each other's files."""
    first, second, third = at(store, "a"), at(store, "b"), at(store, "c")
    saving = replace(request(slots(1)), files="folder")
    held = begin_as(first, study, saving)
    with pytest.raises(DevicesTaken):
        begin_as(second, study, saving)
    begin_as(third, study, replace(saving, files="another"))
    begin(at(store, "d"), study, slots(1))  # of a study that saves nothing there
    with store.engine.connect() as connection:
        assert not is_folder_free(connection, "folder")
        assert is_folder_free(connection, "a third")
        assert holder_of_files(connection, "folder") == (study.name, first.me.id)
        assert holder_of_files(connection, "a third") is None
        assert sum(number for number, _, _ in holders_on(connection, ["a"], without="")) == 1
    first.free(held)
    begin_as(second, study, saving)


def test_the_folder_of_a_run_on_a_machine_that_is_gone_comes_free(
    store: Store, study: StoredStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody of that machine may ever come back to free it."""
    gone = at(store, "gone-node", "gone-boot/1")
    held = begin_as(gone, study, replace(request(slots(1)), files="folder"))
    other = at(store, "a")
    assert not orphans(store, other, slots(1))  # its run goes on
    with store.engine.begin() as connection:
        over = {"state": "failed", "finished_at": attempts.c.started_at}
        connection.execute(sa.update(attempts).where(attempts.c.id == held.id).values(over))
    assert not orphans(store, other, slots(1))  # a worker of its own machine may see to it
    monkeypatch.setattr("dsopt.store.orphans._FOLDER_SECONDS", -1.0)
    assert sweep(store.engine, orphans(store, other, slots(1)))
    begin_as(other, study, replace(request(slots(1)), files="folder"))


class Engine(ChoosingPlacer):
    """An engine that chooses devices: only its name counts here."""

    name = "an engine"
    standing = "none"

    def hosts(self) -> dict[str, tuple[int, ...]]:
        return {}

    def acquire(self, *_: object) -> None:
        return None

    def release(self, _: object) -> None:
        return None


def record(
    ledger: Ledger, study: StoredStudy, kind: str, uuids: Mapping[int, str], grant: str = "g", run_dir: str = "/made/up"
) -> Attempt:
    """Begins an attempt with what an engine has granted on the nodes `a` and `b`: devices 0 and 1 of each."""
    pool = DevicePool(kind=kind, indices=(), placer=Engine())
    places = [
        Place(node=node, devices=(0, 1), reach=Reach(), uuids={index: node + uuid for index, uuid in uuids.items()})
        for node in "ab"
    ]
    request = Request(pool=pool, count=2, granted=Placement(places=tuple(places), grant=grant))
    return ledger.begin(study, new_task(f"of {ledger.me.id}"), Path(run_dir), request)[1]


def test_what_an_engine_grants_is_recorded_by_uuid_and_cpus_by_the_grant(store: Store, study: StoredStudy) -> None:
    ledger = at(store, "head")
    attempt = record(ledger, study, "gpu", {0: "x", 1: "y"})
    assert (attempt.devices.indices, attempt.devices.uuids) == ((0, 1), {0: "ax", 1: "ay"})
    assert attempt.hosts == {"a": (0, 1), "b": (0, 1)}
    others = [at(store, "head") for _ in range(2)]
    for other, grant in zip(others, ("one", "two"), strict=True):
        record(other, study, "cpu", {}, grant=grant)
    with store.engine.connect() as connection:
        names = {(row["node"], row["device"]) for row in leases_on(connection, "", "a")}
    cpus = {("a", f"cpu:{index}@{grant}") for index in (0, 1) for grant in ("one", "two")}
    everywhere = {("", f"{node}{uuid}") for node in "ab" for uuid in "xy"}
    with store.engine.connect() as connection:
        met = neighbours(connection, study.id)
    assert names == {("a", "gpu:0/ax"), ("a", "gpu:1/ay"), *everywhere, *cpus}
    kept = [json.loads(run["devices"]) for run in store.runs(study)]
    assert kept[0] == {"a": ["gpu:0/ax", "gpu:1/ay"], "b": ["gpu:0/bx", "gpu:1/by"]}
    assert kept[1] == {node: ["cpu:0@one", "cpu:1@one"] for node in "ab"}
    assert [(one.candidate, one.node) for one in met[attempt.id]] == [
        (f"of {other.me.id}", node) for other in others for node in "ab"
    ]


@pytest.mark.parametrize("uuids", [{}, {0: "x", 1: "y"}])
def test_what_an_engine_grants_and_somebody_else_has_is_taken(
    store: Store, study: StoredStudy, uuids: Mapping[int, str]
) -> None:
    begin(at(store, "c"), study, NONE, hosts={"b": (1,)})
    with pytest.raises(DevicesTaken):
        record(at(store, "head"), study, "gpu", uuids)
    assert len(store.runs(study)) == 1


def test_what_an_engine_grants_beside_a_run_that_wants_to_be_alone_is_taken(store: Store, study: StoredStudy) -> None:
    begin(at(store, "b"), study, alone(gpus("w")))
    with pytest.raises(DevicesTaken):
        record(at(store, "head"), study, "cpu", {})


def test_any_worker_on_the_engine_frees_what_one_left_that_died(
    store: Store, study: StoredStudy, tmp_path: Path
) -> None:
    dead = at(store, "head", host="another machine/1")
    record(dead, study, "gpu", {0: "x"}, run_dir=str(tmp_path))
    leave(store.engine, dead.me)
    other = at(store, "elsewhere").me
    with store.engine.connect() as connection:
        assert find_orphans(connection, other, NONE) == []
        orphans = find_orphans(connection, other, replace(NONE, placer=Engine()))
    assert sweep(store.engine, orphans)
    with store.engine.connect() as connection:
        assert leases_left(connection) == []


@pytest.mark.parametrize("case", TWICE)
def test_a_device_is_held_once(store: Store, study: StoredStudy, case: str) -> None:
    (one, first, hosts), (other, second, other_hosts) = TWICE[case]
    begin(at(store, one), study, first, hosts=hosts)
    with pytest.raises(DevicesTaken):
        begin(at(store, other), study, second, hosts=other_hosts)
    assert len(store.runs(study)) == 1


TOGETHER = {
    "other GPUs that two jobs of a node count from 0": (("a", gpus("x"), None), ("a", gpus("y"), None)),
    "slots of two nodes": (("a", slots(2), None), ("b", slots(2), None)),
    "runs on other nodes": (("a", NONE, HOSTS), ("c", NONE, {"c": (0, 1), "d": (0, 1)})),
    "other devices of the same nodes": (("a", NONE, HOSTS), ("a", NONE, {"a": (2, 3), "b": (2, 3)})),
}


@pytest.mark.parametrize("case", TOGETHER)
def test_other_devices_are_held_side_by_side(store: Store, study: StoredStudy, case: str) -> None:
    for node, pool, hosts in TOGETHER[case]:
        begin(at(store, node), study, pool, hosts=hosts)
    assert len(store.runs(study)) == 2


def granted(store: Store, node: str, study: StoredStudy, job: str) -> Attempt:
    """An attempt of a worker that Slurm has given a GPU of each node."""
    wanted = Wanted(hosts={"a": (0,), "b": (0,)}, nodes=2, devices=1)
    ledger = at(store, node)
    task = replace(new_task(f"of {ledger.me.id}"), round=0)
    request = Request(pool=NONE, count=1, wanted=wanted, scope=job)
    return ledger.begin(study, task, Path("/made/up"), request)[1]


def test_jobs_that_slurm_gave_other_gpus_of_a_node_do_not_know_them_by_the_same_name(
    store: Store, study: StoredStudy
) -> None:
    for job in ("17.0", "18.0"):
        assert granted(store, "a", study, job).hosts == {"a": (0,), "b": (0,)}
    with pytest.raises(DevicesTaken):
        granted(store, "b", study, "17.0")  # another worker in the same job
    begin(at(store, "b"), study, gpus("x"))  # one that sees UUIDs
    assert len(store.runs(study)) == 3


def alone(pool: DevicePool) -> DevicePool:
    return replace(pool, is_exclusive=True)


# who begins first, and who then asks for other devices of the same node
KEPT_OFF = {
    "another GPU": (alone(gpus("x")), gpus("y")),
    "another slot": (alone(slots(1)), replace(slots(2), indices=(1,))),
    "one that wants to be alone": (gpus("x"), alone(gpus("y"))),
    "two that want to be alone": (alone(gpus("x")), alone(gpus("y"))),
}


@pytest.mark.parametrize("case", KEPT_OFF)
@pytest.mark.parametrize("by_host_file", [True, False])
def test_an_exclusive_run_has_no_neighbours(store: Store, study: StoredStudy, case: str, by_host_file: bool) -> None:
    first, second = KEPT_OFF[case]
    begun = begin(at(store, "a"), study, first)
    if by_host_file:
        wanted = Wanted(hosts={"a": (4, 5), "b": (4, 5)}, nodes=2, devices=1)
        ask = Request(pool=second, count=1, wanted=wanted, is_exclusive=second.is_exclusive)
    else:
        ask = request(second)
    ledger = at(store, "a", "boot/2")
    with pytest.raises(DevicesTaken):
        ledger.begin(study, replace(new_task("other"), round=0), Path("/made/up"), ask)
    assert begin(at(store, "c"), study, alone(slots(1))).devices.indices  # of another node
    at(store, "a").free(begun)
    ledger.begin(study, replace(new_task("other"), round=0), Path("/made/up"), ask)


def test_devices_and_neighbours_are_kept_after_leases_have_gone(store: Store, study: StoredStudy) -> None:
    one = begin(at(store, "a"), study, gpus("x"), hosts={"a": (3,), "b": (0, 1)})
    other = begin(at(store, "b"), study, NONE, hosts={"b": (2,)})
    apart = begin(at(store, "c"), study, slots(2))
    for attempt in (one, other, apart):
        at(store, "a").free(attempt)
    kept = {run["id"]: json.loads(run["devices"]) for run in store.runs(study)}
    assert kept[one.id] == {"a": ["gpu:0/x", "gpu:3"], "b": ["gpu:0", "gpu:1"]}
    assert kept[apart.id] == {"c": ["cpu:0", "cpu:1"]}
    with store.engine.connect() as connection:
        found = neighbours(connection, study.id)
    assert {of: [met.node for met in ones] for of, ones in found.items()} == {one.id: ["b"], other.id: ["b"]}


def test_a_worker_takes_the_gpus_that_no_other_has(store: Store, study: StoredStudy) -> None:
    begin(at(store, "a"), study, gpus("x"))
    assert begin(at(store, "b"), study, gpus("w", "x", "y"), count=2).devices.indices == (0, 2)


def test_of_runs_that_begin_at_once_on_nodes_they_share_one_begins(store: Store) -> None:
    """Each names the nodes in another order, in a study of its own, so that nothing but the leases makes them wait."""
    orders = [dict(sorted(HOSTS.items(), reverse=bool(i % 2))) for i in range(4)]
    studies = [store.create(spec(f"s{i}"))[0] for i in range(4)]
    pools = [gpus("y", "x") if i % 2 else gpus("x", "y") for i in range(4)]

    def try_to(i: int) -> Ledger | None:
        ledger = at(store, "abab"[i])
        try:
            begin(ledger, studies[i], pools[i], hosts=orders[i])
        except DevicesTaken:
            return None
        return ledger

    for _ in range(3):
        with ThreadPoolExecutor(4) as together:
            [ledger] = filter(None, together.map(try_to, range(4)))
        leave(store.engine, ledger.me)
        sweep(store.engine, orphans(store, ledger, NONE))


def orphans(store: Store, ledger: Ledger, pool: DevicePool) -> list:
    with store.engine.connect() as connection:
        return find_orphans(connection, ledger.me, pool)


WHO_FREES = {
    # (node, host) of who died and of who looks, GPUs of the latter, whether a process is left -> what is still held
    "the same machine": (("a", "boot/1"), ("renamed", "boot/1"), NONE, False, set()),
    "another container, which shares the GPU": (("a", "boot/1"), ("b", "boot/2"), gpus("x"), False, set()),
    "another container, while a process is left": (("a", "boot/1"), ("b", "boot/2"), gpus("x"), True, {"a", "b", ""}),
    "the machine after a restart": (("a", "boot/1"), ("a", "again/1"), NONE, False, set()),
    "a container on the machine after a restart": (("a", "boot/1"), ("c", "again/7"), gpus("x"), False, set()),
    "another machine of that name": (("a", "boot/1"), ("a", "other/1"), gpus("z"), False, {"b", ""}),
    "another node of the run, for itself": (("a", "boot/1"), ("b", "other/1"), NONE, False, {"a", ""}),
    "a node that has nothing to do with it": (("a", "boot/1"), ("c", "other/1"), gpus("z"), False, {"a", "b", ""}),
}


@pytest.mark.parametrize("case", WHO_FREES)
def test_who_frees_what_the_dead_held(sqlite_url: str, tmp_path: Path, case: str) -> None:
    (node, host), (other, other_host), pool, is_left, still = WHO_FREES[case]
    run_dir = RunDir.create(tmp_path, "r")
    store = Store.open(sqlite_url, make=True)
    dead = at(store, node, host)
    begin(dead, store.create(spec())[0], gpus("x"), hosts={"b": (0,)}, run_dir=run_dir.path)
    leave(store.engine, dead.me)
    with run_dir.stdout.open("ab") as log:
        be_present(log.fileno())
        process = subprocess.Popen(  # it has the log open where this process does not look, as in another container
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[log.fileno()]
        )
    assert process.stdin is not None
    if not is_left:
        process.communicate(b"\n")
    sweep(store.engine, orphans(store, at(store, other, other_host), pool))
    with store.engine.connect() as connection:
        assert {row["node"] for row in leases_left(connection)} == still
    process.kill()
    process.communicate()
    store.close()


@pytest.mark.parametrize(
    ("host", "now", "has_restarted"),
    [
        ("boot/1", "boot/1", False),
        ("boot/1", "boot/2", False),
        ("boot/1", "again/1", True),
        ("engine:x", "boot/1", False),
    ],
)
def test_only_another_boot_of_its_machine_shows_that_a_run_is_over(
    store: Store, study: StoredStudy, host: str, now: str, has_restarted: bool
) -> None:
    """What an engine started may go on on other machines, whatever becomes of this one."""
    dead = at(store, "a", host)
    begin(dead, study, slots(1))
    leave(store.engine, dead.me)
    assert [orphan.has_restarted for orphan in orphans(store, at(store, "a", now), slots(1))] == [has_restarted]


def test_devices_stay_leased_while_a_hidden_run_cannot_be_looked_at(store: Store, study: StoredStudy) -> None:
    """Another container shares a GPU, but not the folder of the results."""
    dead = at(store, "a", "boot/1")
    begin(dead, study, gpus("x"))
    leave(store.engine, dead.me)
    assert not sweep(store.engine, orphans(store, at(store, "b", "boot/2"), gpus("x")))


def test_a_living_run_holds_the_lock_of_its_log(tmp_path: Path) -> None:
    """The lock goes to whatever the launcher starts, and ends with the last of them."""
    run_dir = RunDir.create(tmp_path, "r")
    program = tmp_path / "deepspeed"
    program.write_text("#!/bin/sh\nsetsid sleep 60 &\necho $! > child\n")
    program.chmod(0o755)
    assert not may_be_present(run_dir, is_hidden=True)
    process = Process(launch(f"{program} --num_gpus 2 t.py", cwd=tmp_path, run_dir=run_dir))
    assert process._started[0].wait(timeout=20) == 0
    assert may_be_present(run_dir, is_hidden=True)
    process.kill()
    assert not may_be_present(run_dir, is_hidden=True)


def test_who_has_devices_of_other_nodes_is_known(store: Store, study: StoredStudy) -> None:
    begin(at(store, "x"), study, gpus("x"), hosts={"x": (0,), "y": (0, 1)})
    me = at(store, "z").me
    with store.engine.connect() as connection:
        assert holders_on(connection, {"z"}, without=me.id) == []
        assert holders_on(connection, {"y", "z"}, without=me.id) == [(2, "s", "x")]


def test_a_copy_of_a_database_ends_no_run_of_the_original(store: Store, study: StoredStudy, tmp_path: Path) -> None:
    run_dir, ledger = RunDir.create(tmp_path, "run", owner="the original"), ledger_of(store)
    begin(ledger, study, slots(1), run_dir=run_dir.path)
    environment = {**os.environ, "DSOPT_RUN_DIR": str(run_dir.path)}
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environment)
    try:
        leave(store.engine, ledger.me)
        sweep(store.engine, orphans(store, at(store, "b", ledger.me.host), slots(1)))
        with store.engine.connect() as connection:
            assert leases_left(connection) == []
        assert process.poll() is None and not run_dir.undone.exists()
    finally:
        process.communicate(b"\n")
    assert process.returncode == 0


@pytest.mark.parametrize("owner", ["the file where it was before", None])
def test_a_run_of_a_dead_worker_ends_although_its_database_was_moved(
    store: Store, study: StoredStudy, tmp_path: Path, owner: str | None
) -> None:
    """Whatever file it is in now: nobody else frees its devices."""
    with _maker() as maker:
        run_dir = _made(tmp_path, store.identity if owner is None else owner, maker)
    with _left_run(store, study, run_dir) as run:
        assert run.wait(timeout=20) == -signal.SIGKILL
    with store.engine.connect() as connection:
        assert leases_left(connection) == []


def test_a_run_goes_on_as_long_as_its_worker_lives(store: Store, study: StoredStudy, tmp_path: Path) -> None:
    """Its row may be missing because this database is a copy, with the same identity, of the one that it works for."""
    with _maker() as maker:
        with _left_run(store, study, run_dir := _made(tmp_path, store.identity, maker)) as run:
            with store.engine.connect() as connection:
                assert len(leases_left(connection)) == 2  # a slot and a port: they are in use indeed
            assert run.poll() is None and not run_dir.undone.exists()
        sweep(store.engine, orphans(store, at(store, "c", host_identity()), slots(1)))
        with store.engine.connect() as connection:
            assert leases_left(connection) == []


@pytest.mark.parametrize("is_of_another", [False, True])
def test_a_run_of_a_stopped_worker_ends_if_it_is_of_this_database(
    store: Store, study: StoredStudy, tmp_path: Path, is_of_another: bool
) -> None:
    """It holds devices, and nobody knows for how long."""
    with _maker() as maker:
        maker.send_signal(signal.SIGSTOP)
        run_dir = _made(tmp_path, "another" if is_of_another else store.identity, maker)
        with _left_run(store, study, run_dir) as run:
            if is_of_another:
                assert run.poll() is None
            else:
                assert run.wait(timeout=20) == -signal.SIGKILL
        maker.send_signal(signal.SIGCONT)


def _maker() -> "subprocess.Popen[bytes]":
    """A process that makes a run, and lasts as long as its context."""
    return subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)


def _made(folder: Path, owner: str, maker: "subprocess.Popen[bytes]") -> RunDir:
    return RunDir.create(folder, "run", owner, f"{host_identity()} {maker.pid} {start_ticks(maker.pid)}")


@contextlib.contextmanager
def _left_run(store: Store, study: StoredStudy, run_dir: RunDir) -> Iterator["subprocess.Popen[bytes]"]:
    """A process of a run whose worker is no worker of this database any more. Another worker has swept it."""
    ledger = at(store, "a", host_identity())
    begin(ledger, study, slots(1), run_dir=run_dir.path)
    environment = {**os.environ, "DSOPT_RUN_DIR": str(run_dir.path)}
    argv = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, env=environment) as run:
        leave(store.engine, ledger.me)
        sweep(store.engine, orphans(store, at(store, "b", host_identity()), slots(1)))
        yield run


def test_a_worker_is_silent_by_the_clock_of_who_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database's clock may be set forward: a worker that beats on is not dead."""
    clock, beats = [1000.0], Beats()
    monkeypatch.setattr("dsopt.store.beats.time.monotonic", lambda: clock[0])
    for beat in (10.0, 310.0, 315.0):
        beats.note([{"id": "lives", "heartbeat_at": beat}, {"id": "dead", "heartbeat_at": 10.0}])
        clock[0] += 8.0
    assert not beats.is_silent("lives")
    assert beats.is_silent("dead")


def test_nothing_is_restored_under_a_run_that_goes_on(store: Store, study: StoredStudy, tmp_path: Path) -> None:
    """Its worker is dead, and its devices would be given to others."""
    run_dir, ledger = RunDir.create(tmp_path, "run"), ledger_of(store)
    begin(ledger, study, slots(1), run_dir=run_dir.path)
    leave(store.engine, ledger.me)
    environment = {**os.environ, "DSOPT_RUN_DIR": str(run_dir.path)}
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environment)
    try:
        with pytest.raises(DsoptError, match=f"a run without a worker goes on: {run_dir.path}"):
            refuse_to_lose(store.engine, replace=True)
    finally:
        process.communicate(b"\n")
    refuse_to_lose(store.engine, replace=True)


def test_who_has_reserved_devices_sees_what_was_being_leased_meanwhile(store: Store, tmp_path: Path) -> None:
    """It may have looked for reservations just before; a training began beside its run."""
    me, slots = ledger_of(store).me, DevicePool(kind="cpu", indices=(0, 1))
    with ThreadPoolExecutor() as others:
        with writing(store.engine) as connection:
            take(connection, me, me.id, tmp_path, Request(pool=slots, count=1))
            counted = others.submit(count_free_after_all, store.engine, me.node, Request(pool=slots, count=0))
            with pytest.raises(TimeoutError):
                counted.result(timeout=0.5)
        assert counted.result(timeout=30) == 1
