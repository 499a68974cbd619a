"""Puts the stages of a pipeline together: each rank's engine holds only the model's part of its own stage."""

from collections.abc import Iterable
from dataclasses import replace

from dsopt.protocol.events import Engine


def whole(first: Engine, engines: Iterable[Engine]) -> Engine:
    """What rank 0's engine reported, with the parameters of all stages.

    A stage that no rank has told of yet counts as the mean of the others.
    """
    known = {engine.pipeline_stage: engine for engine in engines}
    share = first.pipeline_stages / len(known)
    return replace(
        first,
        num_params=round(share * sum(stage.num_params for stage in known.values())),
        trainable_params=round(share * sum(stage.trainable_params for stage in known.values())),
        largest_layer_params=max(stage.largest_layer_params for stage in known.values()),
    )
