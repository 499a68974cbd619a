"""Programs that run for a limited time, and of which nothing is left."""

import os
import sys
import time
from pathlib import Path

import psutil

from dsopt.launch.limited import Program, run_all

# a child in a process group of its own, as ninja starts compilers, which takes no notice of SIGTERM
STUBBORN = """
import os, signal, subprocess, sys, time
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", code], preexec_fn=os.setpgrp, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


def python(code: str) -> Program:
    return Program(argv=[sys.executable, "-c", code], environment=dict(os.environ), cwd=Path.cwd())


def test_what_programs_write_and_how_they_end() -> None:
    done = run_all(
        [python("print('a')"), python("import sys; print('\\nno\\n', file=sys.stderr); sys.exit(3)")], seconds=30
    )
    assert [(one.code, one.last_words) for one in done] == [(0, "a"), (3, "no")]
    [silent] = run_all([python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")], seconds=30)
    assert (silent.code, silent.last_words) == (-9, "it ended with exit code -9 and wrote nothing")


def test_what_runs_past_its_time_is_ended_with_its_children() -> None:
    begun = time.monotonic()
    [late] = run_all([python(STUBBORN)], seconds=3)
    assert late.code is None
    assert time.monotonic() - begun < 20
    assert not psutil.pid_exists(int(late.output))


def test_nobody_waits_long_for_a_program_whose_partner_has_failed() -> None:
    begun = time.monotonic()
    failed, waiting = run_all([python("raise SystemExit(1)"), python("import time; time.sleep(600)")], seconds=60)
    assert (failed.code, waiting.code) == (1, None)
    assert time.monotonic() - begun < 20
