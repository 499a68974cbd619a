"""Builds one of DeepSpeed's operators, or loads it if it is built, in a folder of its own.

    TORCH_EXTENSIONS_DIR=COPY python -m dsopt.probe.builds CPUAdamBuilder CACHE

`dsopt doctor` starts it. CACHE is torch's extension cache, in which this changes nothing: what is built there is copied
first, and then need not be built again. It prints one line: "dsopt-result " and a JSON object.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path


def main() -> None:
    """Builds the operator that the arguments name."""
    name, cache = sys.argv[1], Path(sys.argv[2])
    from deepspeed.accelerator import get_accelerator

    builder = get_accelerator().create_op_builder(name)
    if builder is None:
        raise RuntimeError(f"DeepSpeed has no {name} for {get_accelerator()._name}")
    copied = _copy(cache, Path(os.environ["TORCH_EXTENSIONS_DIR"]) / builder.name)
    built_before = _built_at(copied)
    begun = time.monotonic()
    builder.load(verbose=False)
    seconds = time.monotonic() - begun
    is_as_before = built_before is not None and _built_at(copied) == built_before
    found = {"operator": builder.name, "seconds": seconds, "was_built": is_as_before}
    print(f"dsopt-result {json.dumps(found)}")  # noqa: T201 - its parent reads this


def _copy(cache: Path, target: Path) -> Path:
    """Copies an operator if it is built, with the times by which ninja sees that there is nothing to do."""
    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    folders = [cache / target.name, *cache.glob(f"{version}_*/{target.name}")]
    built = next((folder for folder in folders if _built_at(folder) is not None), None)
    if built is not None:
        shutil.copytree(built, target, ignore=shutil.ignore_patterns("lock"))
    return target


def _built_at(folder: Path) -> int | None:
    """When the operator in a folder was built, in nanoseconds; None if it is not."""
    return next((path.stat().st_mtime_ns for path in folder.glob("*.so")), None)


if __name__ == "__main__":
    main()
