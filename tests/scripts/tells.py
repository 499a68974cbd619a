"""Tells what it was started with: arguments, environment and interpreter, in a file beside the run's other files."""

import json
import os
import sys
from pathlib import Path

rank = os.environ["RANK"]
told = {"argv": sys.argv[1:], "environment": dict(os.environ), "python": sys.executable, "cwd": os.getcwd()}
Path(os.environ["DSOPT_RUN_DIR"], f"told-{rank}.json").write_text(json.dumps(told))
