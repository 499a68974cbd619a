"""The eight published cases of DeepSpeed's autotuner, on 16 V100-32GB in one node.

Shapes and devices are known; bandwidth and traits are calibrated to the published figures by `benchmarks/calibrate.py`,
which writes `published.json`.
"""

import json
from dataclasses import replace
from importlib.resources import files
from typing import Final

from dsopt.simulated.cluster import Scenario
from dsopt.simulated.document import from_document

_FILE: Final = "published.json"


def published(*, noise: float) -> list[Scenario]:
    """The eight scenarios, in the order of the publication.

    Args:
        noise: coefficient of variation of a step's time.
    """
    content = json.loads((files("benchmarks.scenarios") / _FILE).read_text("utf-8"))
    return [replace(from_document(case), noise=noise) for case in content]
