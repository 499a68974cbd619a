"""dsopt against DeepSpeed's own autotuner on `studies/tiny-gpt`: same script, space, ranks and machine, on the CPU.

Each tunes from nothing; then the configuration each one chose, and the user's own, are trained in turn for STEPS steps,
ROUNDS times, and the true throughput is that of the last two thirds of the steps. DeepSpeed's autotuner needs ssh and
pdsh even on one node: stand-ins that run the command here are put on its PATH, with a loopback host file. It also needs
`tabulate`.

    python -m benchmarks.deepspeed_autotuner [FOLDER]
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from dsopt.launch.devices import free_ports
from dsopt.launch.leftovers import remove_shared_memory
from dsopt.protocol.run_dir import RUN_DIR_VARIABLE

ROOT = Path(__file__).parent.parent
STUDY = ROOT / "studies" / "tiny-gpt" / "study.yaml"
SCRIPT = ROOT / "studies" / "tiny-gpt" / "train.py"
OWN_CONFIG = ROOT / "studies" / "tiny-gpt" / "ds_config.json"
BIN = Path(sys.executable).parent
STEPS = 200
ROUNDS = 2

_SSH = """#!/bin/bash
# stands in for ssh: runs the command here
while [[ "$1" == -* ]]; do case "$1" in -o | -p) shift 2 ;; *) shift ;; esac; done
shift
if [ "$*" = "hostname -I" ]; then echo 127.0.0.1; else exec bash -c "$*"; fi
"""
_PDSH = """#!/bin/bash
# stands in for pdsh: runs the command here as node 0; kills nothing by name
while [[ "$1" == -* ]]; do case "$1" in -f | -w) shift 2 ;; *) shift ;; esac; done
command="$*"
case "$command" in pkill*) exit 0 ;; esac
exec bash -c "${command//%n/0}"
"""


def run_deepspeeds_autotuner(folder: Path) -> tuple[float, int, dict]:
    """Wall seconds, experiments, and the configuration it chose."""
    stand_ins = folder / "bin"
    stand_ins.mkdir(parents=True)
    for name, text in (("ssh", _SSH), ("pdsh", _PDSH)):
        (stand_ins / name).write_text(text)
        (stand_ins / name).chmod(0o755)
    (folder / "hosts").write_text("localhost slots=2\n")
    tuning = yaml.safe_load(STUDY.read_text())["autotuning"]
    config = json.loads(OWN_CONFIG.read_text())
    config["autotuning"] = {"enabled": True, **tuning}
    # without a list it explores stage 0 alone, against its documents; this is the space that dsopt has by default
    config["zero_optimization"] = {"stage": [0, 1, 2, 3]}
    (folder / "ds_config.json").write_text(json.dumps(config))
    environment = {**os.environ, "PATH": f"{stand_ins}:{BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    command = [
        BIN / "deepspeed", "--hostfile", folder / "hosts", "--autotuning", "tune", "--num_gpus", "2",
        "--num_nodes", "1", SCRIPT, "--steps", "2000", "--deepspeed_config", folder / "ds_config.json",
    ]  # fmt: skip
    started = time.perf_counter()
    with (folder / "log").open("w") as log:
        subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False)
    seconds = time.perf_counter() - started
    results = folder / "autotuning_results"
    experiments = len(list(results.glob("*/exp.json")))
    optimal = results / "ds_config_optimal.json"
    if not optimal.exists():
        raise SystemExit(f"DeepSpeed's autotuner chose nothing; its log: {folder / 'log'}")
    return seconds, experiments, json.loads(optimal.read_text())


def run_dsopt(folder: Path) -> tuple[float, int, dict]:
    """Wall seconds, launches, and the configuration it chose."""
    storage = ["--storage", f"sqlite:///{folder}/dsopt.db"]
    study = yaml.safe_load(STUDY.read_text())
    study["autotuning"]["results_dir"] = str(folder / "results")
    study["autotuning"]["exps_dir"] = str(folder / "exps")
    study["cwd"] = str(STUDY.parent)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    started = time.perf_counter()
    with (folder / "log").open("w") as log:
        for command in (["study", "create", folder / "study.yaml"], ["worker", "tiny-gpt", "--devices", "cpu:2"]):
            subprocess.run([BIN / "dsopt", *command, *storage], stdout=log, stderr=subprocess.STDOUT, check=True)
    seconds = time.perf_counter() - started
    launches = len(list((folder / "results").glob("*/exp.json")))
    return seconds, launches, json.loads((folder / "results" / "ds_config_optimal.json").read_text())


def true_throughput(config: dict, folder: Path) -> float:
    """Samples per second of a long run, by the probe's step times."""
    folder.mkdir(parents=True)
    config = {key: value for key, value in config.items() if key != "autotuning"}
    (folder / "ds_config.json").write_text(json.dumps(config))
    port = next(free_ports())
    environment = {
        **os.environ, RUN_DIR_VARIABLE: str(folder), "OMP_NUM_THREADS": "1", "PATH": f"{BIN}:{os.environ['PATH']}",
    }  # fmt: skip
    command = [
        BIN / "deepspeed", "--num_gpus", "2", "--master_port", str(port), "--module", "dsopt.probe", SCRIPT,
        "--steps", str(STEPS), "--deepspeed_config", folder / "ds_config.json",
    ]  # fmt: skip
    subprocess.run(command, env=environment, capture_output=True, check=True)
    remove_shared_memory(port)
    lines = (folder / "events-rank0.jsonl").read_text().splitlines()
    steps = [event for line in lines if (event := json.loads(line))["event"] == "step"]
    steady = steps[len(steps) // 3 :]
    return sum(step["samples"] for step in steady) / sum(step["seconds"] for step in steady)


def shown(config: dict) -> str:
    stage = config.get("zero_optimization", {}).get("stage", 0)
    return f"z{stage} mbs {config['train_micro_batch_size_per_gpu']} gas {config.get('gradient_accumulation_steps', 1)}"


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    tuners = {"dsopt": run_dsopt(folder / "dsopt"), "DeepSpeed": run_deepspeeds_autotuner(folder / "deepspeed")}
    configs = {"yours": json.loads(OWN_CONFIG.read_text()), **{name: found[2] for name, found in tuners.items()}}
    throughputs: dict[str, list[float]] = {name: [] for name in configs}
    for round_ in range(ROUNDS):
        for name, config in configs.items():
            throughputs[name].append(true_throughput(config, folder / f"{name}-{round_}"))
    print("| tuner | wall time | launches | choice | true throughput, samples/s (runs) |")
    print("|---|---|---|---|---|")
    for name, config in configs.items():
        seconds, launches = (f"{tuners[name][0]:.0f} s", tuners[name][1]) if name in tuners else ("-", "-")
        runs = ", ".join(f"{value:.0f}" for value in throughputs[name])
        median = statistics.median(throughputs[name])
        print(f"| {name} | {seconds} | {launches} | {shown(config)} | {median:.0f} ({runs}) |")
    log = (folder / "deepspeed" / "log").read_text()
    print("DeepSpeed's own words:", *re.findall(r"Tuning completed in.*|Wrote the optimal.*", log), sep="\n  ")


if __name__ == "__main__":
    main()
