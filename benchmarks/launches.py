"""How often the stated 95 % interval of the factor holds where launches differ by more or less than usual.

Whole studies on simulated scenarios at 2 % noise of steps, with another standard deviation of what a launch has in
common: half a per cent, two and five. dsopt expects 0.7 %, and does not know.

    python -m benchmarks.launches [held-out | development [COUNT]]
"""

import multiprocessing
import os
import sys
from dataclasses import replace
from typing import cast

from benchmarks.search.cases import Case, cases_of
from benchmarks.search.dsopt_tuner import DsoptTuner
from benchmarks.search.machine import Simulated
from benchmarks.search.oracle import oracle
from benchmarks.search.results import Cases, Row, row

SPREADS = (0.005, 0.02, 0.05)


def tuned(case: Case, spread: float) -> Row:
    """A study of a case whose launches differ by `spread`."""
    assert isinstance(case.machine, Simulated)
    scenario = case.machine.scenario
    machine = Simulated(replace(scenario, traits=replace(scenario.traits, launch_spread=spread)))
    truth = oracle(machine, fast=True)
    record = DsoptTuner().tune(machine, case.seed)
    return row(record, machine, truth, cases=case.cases, noise=case.noise, is_fast=True, seed=case.seed)


def main() -> None:
    which = cast(Cases, sys.argv[1] if len(sys.argv) > 1 else "held-out")
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    os.environ["OMP_NUM_THREADS"] = "1"
    cases = list(cases_of(which, count=count, noises=(0.02,)))
    print(f"{which}, {len(cases)} studies, 2 % noise")
    print(f"{'launches differ by':>18} {'holds':>7} {'of':>4} {'launches':>9} {'choice':>7}")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for spread in SPREADS:
            rows = pool.starmap(tuned, [(case, spread) for case in cases], chunksize=1)
            held = [one.interval_holds for one in rows if one.interval_holds is not None]
            launches, choice = (sum(each) / len(rows) for each in ([o.launches for o in rows], [o.share for o in rows]))
            print(f"{spread:>18.1%} {sum(held) / len(held):>7.1%} {len(held):>4} {launches:>9.1f} {choice:>7.3f}")


if __name__ == "__main__":
    main()
