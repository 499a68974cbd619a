"""What an earlier study is worth: the same job with and without one, on the same and on other devices.

    python -m benchmarks.warm_start [PAIRS]

Each pair is a held-out scenario and the same job, on the same cluster or on half of it. The first is tuned, then the
second from nothing and with `warm_start`, with the same noise of launches.
"""

import sys
from dataclasses import replace

import numpy as np

from benchmarks.scenarios.families import HELD_OUT_SEEDS, draw
from benchmarks.search.dsopt_tuner import DsoptTuner
from benchmarks.search.machine import Simulated
from benchmarks.search.oracle import oracle
from benchmarks.search.records import Record
from dsopt.search.history import Earlier

_NOISE = 0.02


def main(pairs: int = 60) -> None:
    """Prints runs, OOMs and shares of the optimum, from nothing and with an earlier study."""
    for kind in ("same", "half"):
        rows: dict[str, list[tuple[Record, float]]] = {"from nothing": [], "with an earlier study": []}
        for seed in HELD_OUT_SEEDS[:pairs]:
            machine = Simulated(draw(seed, noise=_NOISE))
            first, second = machine, machine
            if kind == "half":  # the earlier study was on half of the nodes, or of the GPUs
                first = _on_half(machine)
            study = DsoptTuner().study(first, seed=1)
            study.run()
            earlier = (Earlier(spec=study.spec, history=study.history),)
            best = oracle(second, fast=True).throughput
            for name, known in (("from nothing", ()), ("with an earlier study", earlier)):
                record = DsoptTuner(earlier=known).tune(second, seed=2)
                rows[name].append((record, (record.choice_true_throughput or 0.0) / best))
        print(f"\nearlier study on the {kind} devices, {pairs} pairs")
        for name, found in rows.items():
            launches = np.mean([record.experiments for record, _ in found])
            first_found = np.mean([record.experiments_to_choice for record, _ in found])
            ooms = sum(record.ooms for record, _ in found)
            share = np.exp(np.mean(np.log([share for _, share in found])))
            print(f"{name:<22} {launches:.2f} experiments, {first_found:.2f} until the choice, {ooms} OOM, ", end="")
            print(f"choice / oracle {share:.4f}")


def _on_half(machine: Simulated) -> Simulated:
    cluster = machine.scenario.cluster
    if cluster.nodes > 1:
        smaller = replace(cluster, nodes=cluster.nodes // 2)
    else:
        smaller = replace(cluster, gpus_per_node=max(1, cluster.gpus_per_node // 2))
    return Simulated(replace(machine.scenario, name=f"{machine.name}-half", cluster=smaller, max_train_batch_size=None))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
