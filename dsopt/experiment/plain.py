"""Checks that a run without DeepSpeed is what its command says: no DeepSpeed, on all ranks, with the given sizes."""

from typing import Final

from dsopt.experiment.outcome import Infeasible
from dsopt.experiment.seen import Seen
from dsopt.launch.launch import Launch
from dsopt.protocol.events import Engine

NO_PLAIN_STEP: Final = (
    "the script ended before it had trained a model for some steps with an optimizer of PyTorch (torch.optim)."
)
_GIVE = "Give the command that trains without DeepSpeed with --with vanilla=COMMAND"


def plain_contradiction(seen: Seen, launch: Launch) -> Infeasible | None:
    """Why the figures of a run without DeepSpeed would be wrong, if so; None for other runs."""
    if launch.plain is None or seen.engine is None:
        return None
    why = _contradiction(seen.engine, seen.rows, launch.plain, len(launch.devices.indices) * launch.command.nodes)
    return None if why is None else Infeasible(reason="invalid_config", message=why)


def _contradiction(engine: Engine, rows: int, sizes: tuple[int, int], ranks: int) -> str | None:
    """Why the run is not what its command says, if so.

    Args:
        engine: what trains, as the probe saw it.
        rows: of most batches, as far as they were seen; 0 means unknown, 1 may be a packed batch.
        sizes: micro-batch size (0: unknown) and accumulation of the command.
        ranks: how many were started.
    """
    micro_batch, gas = sizes
    if engine.framework == "deepspeed":
        return f"the script still calls deepspeed.initialize. {_GIVE}."
    if engine.world_size != ranks:
        return (
            f"{ranks} ranks were started, but they train in process groups of {engine.world_size}. Without DeepSpeed, "
            f"the script does not train on all of them together. {_GIVE}."
        )
    if micro_batch == 0 and rows <= 1:
        return (
            "its micro-batch size is unknown: no mapped flag says it, and the batches do not show it. "
            "Name the flag in autotuning.arg_mappings."
        )
    if micro_batch and rows > 1 and rows != micro_batch:
        return f"the script fed batches of {rows}, but its command says {micro_batch}: its figures would be wrong."
    if not micro_batch and engine.micro_batch != rows:
        return (
            f"its first batch had {engine.micro_batch} rows, and most others have {rows}: its figures would be wrong. "
            "Let it feed batches of one size, or name the flag that sets it in autotuning.arg_mappings."
        )
    if engine.gas != gas:
        return (
            f"the model did {engine.gas} forward passes in an optimizer step, but the accumulation is {gas}: "
            "its figures would be wrong. Name the flag that sets it in autotuning.arg_mappings."
        )
    return None
