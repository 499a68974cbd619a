"""The hour in which a GPU is at hand: one command a step, each under nine minutes, in the order of their worth.

    python -m benchmarks.gpu STEP FOLDER [--seconds 500]

Each step leaves what it has found in FOLDER, also if it is cut off. `docs/gpu.md` says what to do with it.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from benchmarks.gpu import facts, models, tuned
from benchmarks.gpu.beside import beside_the_grid
from benchmarks.grid import write_grid
from benchmarks.measured.__main__ import print_tables

_GRID: Final = Path(__file__).parent.parent / "grids" / "gpt-400m-gpu" / "study.yaml"
_STEPS: Final = 15
_RECORDED: Final = "grid.parquet"
_TUNED: Final = "tuned.parquet"


def main() -> None:
    """Does one step."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("step", choices=list(_STEPS_BY_NAME))
    parser.add_argument("folder", type=Path, help="where to leave what was found; one folder for all steps")
    parser.add_argument("--seconds", type=float, default=500.0, help="stop after this")
    parser.add_argument("--tries", help="as for `benchmarks.record`")
    parser.add_argument("--grid", type=Path, default=_GRID, help="the study file of the grid")
    parser.add_argument("--devices", help="as for `dsopt worker`")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    _STEPS_BY_NAME[args.step](args)


def _facts(args: argparse.Namespace) -> None:
    facts.write(args.folder, args.seconds)
    print((args.folder / "facts.json").read_text(encoding="utf-8"))


def _tests(args: argparse.Namespace) -> None:
    """A warning there may be of another torch than dsopt's own tests have: it is no error."""
    _run(
        args, "pytest", "-m", "gpu", "-v", "-W", "default", f"--junitxml={args.folder / 'tests.xml'}",
        "tests/real/test_gpu.py", "tests/real/test_gpu_faults.py",
    )  # fmt: skip


def _record(args: argparse.Namespace) -> None:
    """A slice of the grid, added to what earlier ones recorded."""
    _run(
        args, "benchmarks.record", str(args.grid), str(args.folder / _RECORDED), "--launches", "1",
        "--steps", str(_STEPS), "--seconds", str(args.seconds - 60), "--patience", "5",
        *(["--tries", args.tries] if args.tries else []), *_devices(args),
    )  # fmt: skip


def _models(args: argparse.Namespace) -> None:
    found = [path for name in (_RECORDED, _TUNED) if (path := args.folder / name).exists()]
    print_tables({name: runs for path in found for name, runs in models.groups_of(path).items()})


def _tune(args: argparse.Namespace) -> None:
    """A whole tuning of the grid's model, and what it says beside the best of the grid."""
    storage = ["--storage", f"sqlite:///{(args.folder / 'tune.db').absolute()}"]
    _run(args, "dsopt", "study", "create", str(args.grid), "--name", "tuned", *storage)
    _run(args, "dsopt", "worker", "tuned", *_devices(args), *storage)
    shown = subprocess.run(
        [sys.executable, "-m", "dsopt", "study", "show", "tuned", "--json", *storage],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    (args.folder / "tune.json").write_text(shown.stdout, encoding="utf-8")
    if (grid := tuned.grid_of(storage[1], "tuned")) is not None:
        write_grid(grid, args.folder / _TUNED)
    print(beside_the_grid(args.folder / _RECORDED, json.loads(shown.stdout or "{}")))


def _run(args: argparse.Namespace, *words: str) -> None:
    """Runs a module, and goes on when its time is over."""
    with subprocess.Popen([sys.executable, "-m", *words]) as process:
        try:
            process.wait(timeout=args.seconds)
        except subprocess.TimeoutExpired:
            print(f"stopped after {args.seconds:g} s: {' '.join(words)}")
            process.terminate()  # so that it ends its runs


def _devices(args: argparse.Namespace) -> list[str]:
    return ["--devices", args.devices] if args.devices else []


_STEPS_BY_NAME: Final[Mapping[str, Callable[[argparse.Namespace], None]]] = {
    "facts": _facts,
    "tests": _tests,
    "grid": _record,
    "models": _models,
    "tune": _tune,
}

if __name__ == "__main__":
    main()
