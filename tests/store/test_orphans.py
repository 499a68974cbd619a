"""Runs without a worker that hold devices: of another user, they are none of this worker's business."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dsopt.protocol.run_dir import RunDir

SWEEPS = """
import os
import sys
import tempfile
from pathlib import Path
from dsopt.store.orphans import Orphan, sweep
from dsopt.store.studies import Store
store = Store.open(sys.argv[1], make=True)
for file in Path(sys.argv[1].removeprefix("sqlite:///")).parent.iterdir():
    file.chmod(0o666)
with store.engine.connect():
    orphan = Orphan(attempt_id="a", run_dir=Path(sys.argv[2]), has_restarted=sys.argv[3] == "True")
    os.seteuid(65534)
    assert not os.access(orphan.run_dir / ".dsopt-run", os.R_OK, effective_ids=True)
    print(sweep(store.engine, [orphan]))
"""


@pytest.mark.parametrize("has_restarted", [False, True])
def test_what_another_users_run_holds_stays_held_until_the_machine_restarts(
    tmp_path: Path, has_restarted: bool
) -> None:
    if os.geteuid():
        pytest.skip("only root may become another user")
    run_dir = RunDir.create(tmp_path / "results", "baseline")
    run_dir.stdout.touch()
    with tempfile.TemporaryDirectory() as shared:  # pytest's folders are closed to others
        Path(shared).chmod(0o777)
        argv = [sys.executable, "-c", SWEEPS, f"sqlite:///{shared}/dsopt.db", str(run_dir.path), str(has_restarted)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stdout == f"{has_restarted}\n", done.stderr
