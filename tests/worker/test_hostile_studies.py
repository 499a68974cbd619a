"""A study whose runs write NUL bytes and halves of characters, and whose flags are long, on both databases."""

import json
import sys

import yaml

from tests.conftest import SCRIPTS, Dsopt
from tests.studies import STUDY

LAUNCHER = f"""#!{sys.executable}
import json, os, runpy, sys, time
from pathlib import Path
run_dir = Path(os.environ["DSOPT_RUN_DIR"])
stage = json.loads((run_dir / "ds_config.json").read_text()).get("zero_optimization", {{}}).get("stage", 0)
if stage == 2:
    (run_dir / "events-rank0.jsonl").write_text(
        '{{"v":1,"event":["x"]}}\\n' + "[" * 200_000
        + '\\n{{"v":1,"event":"error","rank":0,"type":"E","message":"in an event \\\\u0000 \\\\ud800","time":1}}\\n'
    )
    time.sleep(1)
    sys.exit(1)
if stage == 3:
    sys.stderr.buffer.write(b"in the log \\0 \\xed\\xa0\\x80")
    sys.exit(1)
runpy.run_path({str(SCRIPTS / "deepspeed")!r}, run_name="__main__")
"""


def test_it_comes_to_its_end(dsopt_on: Dsopt) -> None:
    dsopt = dsopt_on
    program = dsopt.cwd / "bin" / "deepspeed"
    program.parent.mkdir()
    program.write_text(LAUNCHER)
    program.chmod(0o755)
    (dsopt.cwd / "train.py").touch()
    (dsopt.cwd / "ds.json").write_text(json.dumps({"train_micro_batch_size_per_gpu": 4}))
    flags = {f"--{'long-flag' * 20}-{name}": ["1", "2"] for name in ("one", "other")}
    content = {
        **STUDY, "command": f"{program} --num_gpus 2 train.py --deepspeed_config ds.json", "max_attempts": 1,
        "autotuning": {"max_train_batch_size": 8, "num_tuning_micro_batch_sizes": 1, "tuner_num_trials": 4},
        "search": {"args": flags}, "confirmation": {"finalists": 1, "rounds": 1}, "stage_order": "sequential",
    }  # fmt: skip
    (dsopt.cwd / "study.yaml").write_text(yaml.safe_dump(content))
    dsopt("study", "create", "study.yaml")
    dsopt("worker", "simulated", "--devices", "cpu:2")
    shown = dsopt.json("study", "show", "simulated")
    messages = [run["message"] or "" for run in shown["runs"]]
    assert any("in an event \ufffd ?" in message for message in messages)
    assert any("in the log \ufffd" in message for message in messages)
    longest = max((run["candidate"] for run in shown["runs"]), key=len)
    assert len(longest) == 150  # with a digest: both names in full are longer
    assert (dsopt.cwd / "autotuning_exps" / f"{longest}.json").exists()
