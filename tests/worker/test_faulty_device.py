"""A worker whose GPU fails goes on with the others, and nothing is charged to the candidate."""

import stat
from pathlib import Path

import pytest

from dsopt.errors import DsoptError
from dsopt.launch.devices import DevicePool
from dsopt.store.studies import Store
from dsopt.study.load import load_spec
from dsopt.worker.ending import Ending
from dsopt.worker.happenings import DeviceSetAside, Happening
from dsopt.worker.loop import Worker
from tests.conftest import SCRIPTS
from tests.studies import write_study

LAUNCHER = f"""#!/bin/sh
case "$CUDA_VISIBLE_DEVICES $*" in
*localhost:FAULTY*|FAULTY*)
    echo '{{"v": 1, "event": "error", "rank": 0, "type": "AcceleratorError", "time": 1.0,' \\
        '"message": "CUDA error: uncorrectable ECC error encountered"}}' >> "$DSOPT_RUN_DIR/events-rank0.jsonl"
    exit 1 ;;
esac
exec {SCRIPTS / "deepspeed"} "$@" --num_gpus 1
"""


def work(folder: Path, faulty: str) -> tuple[list[Happening], Store]:
    launcher = folder / "deepspeed"
    launcher.write_text(LAUNCHER.replace("FAULTY", faulty))
    launcher.chmod(launcher.stat().st_mode | stat.S_IXUSR)
    write_study(folder, command=f"{launcher} --num_gpus 1 train.py --deepspeed_config ds.json", max_attempts=1)
    store = Store.open(f"sqlite:///{folder}/dsopt.db", make=True)
    made, _ = store.create(load_spec(folder / "study.yaml")[0])
    told: list[Happening] = []
    pool = DevicePool(kind="gpu", indices=(0, 1), uuids={0: "GPU-a", 1: "GPU-b"})
    Worker(store, pool, Ending(), told.append).work(lambda: [made])
    return told, store


def test_the_worker_goes_on_without_it(tmp_path: Path) -> None:
    told, store = work(tmp_path, "0")
    aside = [happening for happening in told if isinstance(happening, DeviceSetAside)]
    assert [happening.device for happening in aside] == [0]
    study = store.get("simulated")
    runs = store.runs(study)
    failed = [run for run in runs if run["state"] == "failed"]
    assert [run["reason"] for run in failed] == ["hardware"]
    assert store.state(study) == "finished"
    again = [run["state"] for run in runs if run["candidate"] == failed[0]["candidate"]]
    assert "measured" in again
    store.close()


def test_a_worker_without_a_gpu_left_says_so(tmp_path: Path) -> None:
    with pytest.raises(DsoptError, match="every GPU of this worker has failed"):
        work(tmp_path, "[01]")
