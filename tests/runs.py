"""Made-up runs that tests of their judging share: events, rules, a launch that is never started."""

from pathlib import Path

from dsopt.experiment.judge import Moment, judge, measurement_of
from dsopt.experiment.outcome import Outcome
from dsopt.experiment.rules import RunRules
from dsopt.experiment.seen import Seen
from dsopt.launch.devices import DevicePool
from dsopt.launch.launch import Launch
from dsopt.protocol.events import Batch, Engine, Event, Step
from dsopt.protocol.run_dir import RunDir
from dsopt.study.command import LaunchCommand
from dsopt.study.space import Candidate
from dsopt.study.spec import MeasurementBudget

_TYPED = "deepspeed --num_gpus 2 train.py --deepspeed_config ds.json"
ASKED = Candidate(stage=1, micro_batch=8, gas=2)


def engine(**changes: object) -> Engine:
    """The engine of two ranks that took the asked candidate's settings."""
    values = {
        "rank": 0, "world_size": 2, "num_params": 10, "trainable_params": 10, "device": "cpu",
        "device_memory_bytes": 2**30, "zero_stage": 1, "micro_batch": 8, "gas": 2, "dtype": "fp32",
    }  # fmt: skip
    return Engine(**{**values, **changes})


def batch(rows: int) -> Batch:
    return Batch(rank=0, rows=rows)


def step(number: int, seconds: float = 0.1, **changes: object) -> Step:
    return Step(rank=0, step=number, seconds=seconds, samples=32, **changes)


def steps(count: int) -> list[Step]:
    """Steady steps, precise from the start."""
    return [step(number) for number in range(count)]


def rules(**changes: object) -> RunRules:
    values = {
        "measurement": MeasurementBudget(max_steps=40), "window": None, "floor": (3, 5), "timeout_seconds": 60.0,
        "expected": ASKED, "needs_flops": False,
    }  # fmt: skip
    return RunRules(**{**values, **changes})


def launch(typed: str = _TYPED, **changes: object) -> Launch:
    """The launch of a command on two CPU slots; nothing is there of it unless `changes` say so."""
    values = {
        "command": LaunchCommand.parse(typed, "test"), "cwd": Path("/made/up"), "run_dir": RunDir("/made/up/run"),
        "devices": DevicePool(kind="cpu", indices=(0, 1)), "port": 29500, "memory_limit_bytes": None,
    }  # fmt: skip
    return Launch(**{**values, **changes})


def outcome_of(
    *events: Event, under: RunRules | None = None, moment: Moment | None = None, script_args: str = ""
) -> Outcome | None:
    """What comes of a run that has written these events."""
    seen = Seen()
    for event in events:
        seen.add(event)
    known = under or rules()
    return judge(
        seen,
        known,
        measurement_of(seen, known),
        moment or Moment(seconds=10.0),
        launch(f"{_TYPED} {script_args}"),
    )
