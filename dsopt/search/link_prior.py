"""What communication costs, by what a worker has measured of the links between a node's GPUs (`probe/node_speed`).

A ring moves 2 (n - 1)/n elements of each parameter in an all-reduce, over whatever joins the GPUs: NVLink, PCIe, or the
host's memory. What that measures is known better than what a name or a topology promises.
"""

import math
from collections.abc import Mapping
from typing import Final

from dsopt.search.facts import ModelFacts
from dsopt.search.step_features import SECOND, Prior
from dsopt.study.spec import StudySpec

_BYTES: Final = {"fp16": 2, "bf16": 2}  # of an element that is communicated
_HOST: Final = "cpu"  # there, DeepSpeed communicates in other ways than what was measured
_OFF: Final = 0.3  # DeepSpeed's buckets reach less than one large message does
_SPREAD: Final = 0.5  # standard deviation of the logarithm


def link_prior(spec: StudySpec, facts: ModelFacts, rates: Mapping[str, float]) -> Prior:
    """Mean and standard deviation of the weight of communication; empty where the links of runs were not measured.

    They were where all ranks of a run are on the node that was measured, and nothing but data is parallel.

    Args:
        spec: the study.
        facts: of its baseline.
        rates: what was measured of the node of that run.
    """
    measured, size = rates.get("all_reduce_gb_per_s"), _BYTES.get(facts.dtype)
    second = SECOND.get(spec.autotuning.metric)
    is_local = spec.resources.nodes == 1 and facts.pipeline_stages == 1 and facts.world_size > 1
    if measured is None or size is None or second is None or not is_local or facts.device == _HOST:
        return {}
    return {"communication": (math.log(second * facts.num_params * size / (measured * 1e9)) + _OFF, _SPREAD)}
