"""Trains a small classifier with Hugging Face Accelerate on generated data."""

import argparse

import torch
from accelerate import Accelerator
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=8, help="samples of one rank's micro-batch")
    parser.add_argument("--steps", type=int, default=2000, help="optimizer steps to train for")
    parser.add_argument("--features", type=int, default=256)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--classes", type=int, default=10)
    args = parser.parse_args()

    torch.manual_seed(0)
    accelerator = Accelerator()
    model = nn.Sequential(
        nn.Linear(args.features, args.hidden),
        nn.GELU(),
        nn.Linear(args.hidden, args.hidden),
        nn.GELU(),
        nn.Linear(args.hidden, args.classes),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.utils.data.TensorDataset(torch.randn(65536, args.features), torch.randint(args.classes, (65536,)))
    loader = torch.utils.data.DataLoader(data, args.batch_size, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    step = 0
    while step < args.steps:
        for inputs, labels in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(inputs), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            step += accelerator.sync_gradients
            if step >= args.steps:
                break
    accelerator.print(f"trained {step} steps, loss {loss.item():.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
