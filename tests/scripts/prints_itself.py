"""Prints what it was started with, as a line of JSON."""

import json
import os
import sys
import time

started = {"argv": sys.argv[1:], "environment": dict(os.environ), "cwd": os.getcwd()}
os.write(1, f"{json.dumps(started)}\n".encode())  # at once: ranks share the output
print("and a last word", file=sys.stderr, flush=True)
if "--wait" in sys.argv:
    time.sleep(600)
if "--fail" in sys.argv and os.environ["RANK"] == "1":
    raise ValueError("rank 1 has failed")
