"""Trains a GPT of 1.3B parameters from scratch with DeepSpeed, on a file of tokens or on generated ones."""

import argparse

import deepspeed
import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel


class Tokens(torch.utils.data.Dataset):
    """Samples of a file of 16-bit token ids, one after the other; generated ids without a file."""

    def __init__(self, path: str | None, length: int, vocab: int) -> None:
        self.length = length
        if path is None:
            self.tokens = np.random.default_rng(0).integers(vocab, size=4096 * length, dtype=np.uint16)
        else:
            self.tokens = np.memmap(path, dtype=np.uint16, mode="r")

    def __len__(self) -> int:
        return len(self.tokens) // self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        start = index * self.length
        return torch.from_numpy(self.tokens[start : start + self.length].astype(np.int64))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="file of 16-bit token ids; without it, tokens are generated")
    parser.add_argument("--steps", type=int, default=100_000, help="optimizer steps to train for")
    parser.add_argument("--vocab", type=int, default=50257)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--gradient_checkpointing", action="store_true", help="recompute layers in the backward pass")
    parser.add_argument("--local_rank", type=int, default=-1)
    deepspeed.add_config_arguments(parser)
    args = parser.parse_args()

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=args.vocab, n_positions=args.length, n_embd=args.hidden, n_layer=args.layers, n_head=args.heads
    )
    model = GPT2LMHeadModel(config)
    if args.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    data = Tokens(args.data, args.length, args.vocab)
    engine, _, loader, _ = deepspeed.initialize(
        args=args, model=model, model_parameters=model.parameters(), training_data=data
    )
    while engine.global_steps < args.steps:
        for tokens in loader:
            tokens = tokens.to(engine.device)
            loss = engine(input_ids=tokens, labels=tokens, use_cache=False).loss
            engine.backward(loss)
            engine.step()
            if engine.global_steps >= args.steps:
                break
    if engine.global_rank == 0:
        print(f"trained {engine.global_steps} steps, loss {loss.item():.3f}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
