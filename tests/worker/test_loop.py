"""Which studies a worker takes, in turn."""

import threading
from types import SimpleNamespace

from dsopt.worker.desk import LEFT
from dsopt.worker.loop import Worker
from tests.conftest import Dsopt
from tests.studies import until, write_study


def test_a_study_that_was_stopped_and_resumed_is_taken_up_again() -> None:
    states: dict[str, str | None] = {"a": "running", "b": "running"}
    studies = [SimpleNamespace(id=name, name=name) for name in states]
    worked: list[str] = []

    def work(study: SimpleNamespace, _heart: object) -> bool:
        worked.append(study.id)
        if worked == ["a"]:
            states["a"] = "stopped"
        elif study.id == "b":
            states.update(a="running", b="finished")  # somebody resumes it meanwhile
        else:
            states["a"] = "finished"
        return True

    worker = Worker.__new__(Worker)
    worker.__dict__ |= {
        "_patience": lambda ask: ask(),
        "_ending": SimpleNamespace(drain=threading.Event(), until_idle=False),
        "_store": SimpleNamespace(state=lambda study: states[study.id]),
        "_work_on_one": work,
        "_is_left": lambda study: states[study.id] in LEFT,
    }
    assert worker._take_turns(lambda: studies, None) == []  # type: ignore[arg-type, return-value]
    assert worked == ["a", "b", "a"]


def test_a_study_that_was_deleted_before_its_turn_is_no_fault(dsopt_on: Dsopt) -> None:
    """A worker without names that was drained ended with 1, so that its supervisor started it again."""
    for name in ("first", "second"):
        (dsopt_on.cwd / name).mkdir()
        write_study(dsopt_on.cwd / name, name=name)
        dsopt_on("study", "create", f"{name}/study.yaml")
    worker = dsopt_on.start("worker", "--devices", "cpu:2")
    until(lambda: list(dsopt_on.cwd.glob("first/autotuning_results/*/stdout.log")), 120)
    dsopt_on("study", "delete", "second", "--yes")
    said, _ = worker.communicate(timeout=200)
    assert worker.returncode == 0, said
    assert "error" not in said
