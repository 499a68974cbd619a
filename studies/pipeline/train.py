"""Trains a deep network as a pipeline of two stages on generated data."""

import argparse

import deepspeed
import torch
from deepspeed.pipe import LayerSpec, PipelineModule
from torch import nn


class Block(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.mlp = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(self.norm(x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000, help="optimizer steps to train for")
    parser.add_argument("--stages", type=int, default=2, help="parts of the model; each is on a rank of its own")
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--local_rank", type=int, default=-1)
    deepspeed.add_config_arguments(parser)
    args = parser.parse_args()

    deepspeed.init_distributed()
    model = PipelineModule(
        layers=[
            LayerSpec(nn.Linear, args.features, args.hidden),
            *(LayerSpec(Block, args.hidden) for _ in range(args.layers)),
            LayerSpec(nn.Linear, args.hidden, args.classes),
        ],
        loss_fn=nn.CrossEntropyLoss(),
        num_stages=args.stages,
        partition_method="parameters",
    )
    generator = torch.Generator().manual_seed(0)
    data = torch.utils.data.TensorDataset(
        torch.randn(65536, args.features, generator=generator),
        torch.randint(args.classes, (65536,), generator=generator),
    )
    engine, *_ = deepspeed.initialize(
        args=args, model=model, model_parameters=[p for p in model.parameters() if p.requires_grad], training_data=data
    )
    for _ in range(args.steps):
        loss = engine.train_batch()
    if engine.global_rank == 0:
        print(f"trained {engine.global_steps} steps, loss {loss.item():.3f}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
