"""A training loop with Hugging Face Accelerate, as people write it."""

import argparse

import torch
from accelerate import Accelerator


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4)
    args = parser.parse_args()
    accelerator = Accelerator()
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(50000, 256)), args.batch_size)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    for _ in range(100):
        for (batch,) in data:
            with accelerator.accumulate(model):
                accelerator.backward(((model(batch) - batch) ** 2).mean())
                optimizer.step()
                optimizer.zero_grad()


if __name__ == "__main__":
    main()
