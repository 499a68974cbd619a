"""Tells what it was started with: arguments, environment and interpreter, in a file beside the run's other files."""

import json
import os
import random
import resource
import signal
import sys
import time
from pathlib import Path

main = sys.modules["__main__"]
told = {
    "argv": sys.argv[1:],
    "environment": dict(os.environ),
    "python": sys.executable,
    "cwd": os.getcwd(),
    "script": sys.argv[0],
    "orig_argv": sys.orig_argv,
    "path": sys.path,
    "flags": repr(sys.flags),
    "main": [__name__, main.__name__, main.__file__, main.__dict__ is globals()],
    "leads_session": os.getsid(0) == os.getpgid(0) == os.getpid(),
    "limits": [resource.getrlimit(kind) for kind in (resource.RLIMIT_DATA, resource.RLIMIT_NOFILE)],
    "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)],
    "umask": os.umask(0),
    "streams": [repr(stream) + str(stream.write_through) for stream in (sys.stdin, sys.stdout, sys.stderr)],
    "open": sorted(path for path in map(os.path.realpath, Path("/proc/self/fd").iterdir()) if os.path.isfile(path)),
}
# what must differ between ranks, and from run to run
drawn = [random.random()]
if "--draw" in sys.argv:
    import deepspeed  # noqa: F401 - changes the environment
    import numpy
    import torch

    told["afterwards"] = [dict(os.environ), list(sys.path)]
    drawn += [numpy.random.random(), torch.rand(()).item(), torch.initial_seed()]
rank = os.environ["RANK"]
answer = Path(os.environ["DSOPT_RUN_DIR"], f"told-{rank}.json")
answer.with_suffix(".tmp").write_text(json.dumps({**told, "drawn": drawn}))
answer.with_suffix(".tmp").rename(answer)
if "--wait" in sys.argv:
    time.sleep(600)
