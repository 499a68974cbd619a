"""dsopt finds the fastest DeepSpeed configuration for a training job, by short real runs of it."""

from typing import TYPE_CHECKING

from dsopt.version import __version__

if TYPE_CHECKING:
    from dsopt.report.estimate import Estimate
    from dsopt.search.zero_memory import Dtype

__all__ = ["__version__", "estimate"]


def estimate(model: object, *, num_gpus: int = 1, num_nodes: int = 1, dtype: "Dtype" = "fp16") -> "Estimate":
    """Estimates the memory that a live model's states need under each ZeRO stage, as `dsopt estimate` does.

        print(dsopt.estimate(model, num_gpus=8))

    Printed, it is DeepSpeed's tables of ZeRO 2 and 3, the ZeRO paper's of ZeRO 0 and 1, and what fits on usual GPUs;
    `rows` and `fits` are the same as values, `to_json()` as data.

    Args:
        model: a `torch.nn.Module`; frozen parameters count as such in the paper's figures.
        num_gpus: GPUs of each node.
        num_nodes: nodes.
        dtype: what is trained in: fp16 or bf16 in mixed precision, or fp32.

    Raises:
        TypeError: `model` is no module.
        ValueError: it has no parameters, or another argument is none of those described.
    """
    from dsopt.report.live_model import estimate_model  # `import dsopt` alone stays light

    return estimate_model(model, num_gpus=num_gpus, num_nodes=num_nodes, dtype=dtype)
