"""Imports what training needs, and prints versions, or why an import fails.

    python -m dsopt.probe.installed [further packages]

`dsopt doctor` starts it. It prints one line: "dsopt-result " and a JSON object.
"""

import importlib
import json
import sys
from typing import Any


def main() -> None:
    """Prints what can be imported."""
    versions: dict[str, str] = {}
    failed: dict[str, str] = {}
    for name in ("torch", "deepspeed", *sys.argv[1:]):
        try:
            versions[name] = str(getattr(importlib.import_module(name), "__version__", "of some version"))
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"
    found: dict[str, Any] = {"versions": versions, "failed": failed, "cuda": None, "gpus": 0, "trouble": ""}
    if "torch" in versions:
        import torch

        found["cuda"] = torch.version.cuda or torch.version.hip
        try:
            torch.cuda.init()  # `is_available` may ask the driver alone
            found["gpus"] = torch.cuda.device_count()
        except Exception as error:
            found["trouble"] = str(error).strip()
    print(f"dsopt-result {json.dumps(found)}")  # noqa: T201 - its parent reads this


if __name__ == "__main__":
    main()
