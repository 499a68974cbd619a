"""Studies over the nodes of a cluster, pretended and real ones, and what must hold of them in the end."""

import itertools
from pathlib import Path
from typing import Any

from dsopt.store.studies import Store
from tests.conftest import SCRIPTS, STUDIES, Dsopt
from tests.studies import check_nothing_lost_nothing_doubled, write_study

LAUNCHERS = {
    "deepspeed": "deepspeed --num_nodes {nodes} --num_gpus {ranks}",
    "torchrun": "torchrun --nnodes {nodes} --nproc_per_node {ranks} --rdzv_backend c10d --rdzv_endpoint b:1",
    "accelerate": "accelerate launch --use_deepspeed --num_machines {nodes} --num_processes {all} --same_network",
}


_TINY = """\
name: tiny
command: {launcher} train.py --deepspeed_config ds_config.json
ds_config:
  train_micro_batch_size_per_gpu: 4
  zero_optimization: {{stage: [1]}}
  optimizer: {{type: AdamW, params: {{lr: 0.0003, torch_adam: true}}}}
autotuning: {{max_train_batch_size: 16, tuner_num_trials: 1}}
measurement: {{max_steps: 10, max_seconds: 3}}
confirmation: {{finalists: 1, rounds: 1}}
"""


def create_real(dsopt: Dsopt, launcher: str) -> None:
    """Creates the study `tiny`, which trains a small GPT with DeepSpeed in as few runs as a study can have."""
    for name in ("train.py", "ds_config.json"):
        (dsopt.cwd / name).write_bytes((STUDIES / "tiny-gpt" / name).read_bytes())
    (dsopt.cwd / "tiny.yaml").write_text(_TINY.format(launcher=launcher))
    dsopt("study", "create", "tiny.yaml")


def create(dsopt: Dsopt, launcher: str, nodes: int, ranks: int, more: str = "", **keys: Any) -> None:
    """Creates the study `simulated`, whose runs take so many ranks on each of so many nodes."""
    typed = LAUNCHERS[launcher].format(nodes=nodes, ranks=ranks, all=nodes * ranks)
    command = f"{typed} {more} {SCRIPTS / 'pretends.py'} --deepspeed_config ds.json"
    given = [name for name in dsopt.environment if name.startswith("PRETENDED_")]
    write_study(dsopt.cwd, command=command, pass_env=given, **keys)
    dsopt("study", "create", "study.yaml")


def runs_of(dsopt: Dsopt, name: str = "simulated") -> list[dict[str, Any]]:
    """All attempts of the study, oldest first."""
    store = Store.open(dsopt.environment["DSOPT_STORAGE"])
    try:
        return [dict(run) for run in store.runs(store.get(name))]
    finally:
        store.close()


def check_finished(dsopt: Dsopt, name: str = "simulated") -> list[dict[str, Any]]:
    """Checks that the study is finished and that nothing was lost; gives its attempts."""
    check_nothing_lost_nothing_doubled(dsopt, name)
    return runs_of(dsopt, name)


def let_two_meet(dsopt: Dsopt) -> None:
    """The run after the baseline waits for another, so that two go on side by side on any machine."""
    meeting = dsopt.cwd / "meeting"
    meeting.mkdir()
    dsopt.environment["PRETENDED_MEETING"] = str(meeting)


def are_side_by_side(runs: list[dict[str, Any]]) -> bool:
    """Whether some of them went on at the same time."""
    times = sorted((run["started_at"], run["finished_at"]) for run in runs)
    return any(end > start for (_, end), (start, _) in itertools.pairwise(times))


def told_by_ranks(dsopt: Dsopt, run: str = "baseline") -> list[str]:
    """What the ranks of a run have printed: their number and their node."""
    lines = (Path(dsopt.cwd) / "autotuning_results" / run / "stdout.log").read_text().splitlines()
    return sorted(line for line in lines if line.startswith("rank "))
