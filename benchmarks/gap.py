"""The gap between a training process's end and the next one's start, on SQLite.

Reads it off a real study. A launcher that speaks the run protocol and trains nothing keeps the runs short; all that
dsopt does between two runs (recording, telling Optuna, the plan, the cost model, the claim, the lease, the launch) is
the real thing. The end is when the run's launcher was gone, before it is made sure that nothing of it is left; the
start is when the next launcher's process was created.

    python -m benchmarks.gap
"""

import itertools
import json
import statistics
import tempfile
import time
from pathlib import Path
from unittest import mock

import yaml

from dsopt.launch.devices import DevicePool
from dsopt.launch.process import Process
from dsopt.store.studies import Store
from dsopt.study.load import load_spec
from dsopt.worker.ending import Ending
from dsopt.worker.loop import Worker

LAUNCHER = Path(__file__).parent.parent / "tests" / "scripts" / "deepspeed"


def print_nothing(_happening: object) -> None:
    pass


def main() -> None:
    moments: list[tuple[str, float]] = []
    start, clean_up = Process.__init__, Process._clean_up

    def timed_start(self, *args, **kwargs):  # noqa: ANN001, ANN002, ANN003, ANN202
        start(self, *args, **kwargs)
        moments.append(("start", time.perf_counter()))

    def timed_clean_up(self, *args):  # noqa: ANN001, ANN002, ANN202
        moments.append(("end", time.perf_counter()))
        clean_up(self, *args)

    with (
        mock.patch.multiple(Process, __init__=timed_start, _clean_up=timed_clean_up),
        tempfile.TemporaryDirectory() as folder,
    ):
        path = Path(folder)
        (path / "train.py").touch()
        zero = {"stage": [0, 1, 2], "reduce_bucket_size": [1, 2, 3, 4, 5, 6]}
        (path / "ds.json").write_text(json.dumps({"train_micro_batch_size_per_gpu": [4, 8], "zero_optimization": zero}))
        study = {
            "name": "gap",
            "command": f"{LAUNCHER} --num_gpus 2 train.py --deepspeed_config ds.json",
            "autotuning": {"tuner_early_stopping": 50},
            "measurement": {"max_steps": 15},
        }
        (path / "study.yaml").write_text(yaml.safe_dump(study))
        store = Store.open(f"sqlite:///{path}/dsopt.db", make=True)
        made, _ = store.create(load_spec(path / "study.yaml")[0])
        pool = DevicePool(kind="cpu", indices=(0, 1))
        Worker(store, pool, Ending(), print_nothing).work(lambda: [made])
        store.close()
    gaps = [
        1000 * (later - earlier)
        for (what, earlier), (next_what, later) in itertools.pairwise(moments)
        if (what, next_what) == ("end", "start")
    ]
    gaps.sort()
    print(
        f"gap between runs, {len(gaps)} gaps, SQLite, model_based: p50 {statistics.median(gaps):.0f} ms, "
        f"p90 {gaps[int(0.9 * len(gaps))]:.0f} ms, max {gaps[-1]:.0f} ms"
    )


if __name__ == "__main__":
    main()
