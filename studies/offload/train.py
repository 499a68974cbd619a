"""Trains a transformer with a large embedding on generated tokens: most of its memory is for optimizer states."""

import argparse

import deepspeed
import torch
from torch import nn


class LanguageModel(nn.Module):
    def __init__(self, vocab: int, hidden: int, heads: int, layers: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        layer = nn.TransformerEncoderLayer(hidden, heads, 4 * hidden, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(hidden, vocab)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        inputs, expected = tokens[:, :-1], tokens[:, 1:]
        mask = nn.Transformer.generate_square_subsequent_mask(inputs.shape[1], device=tokens.device)
        logits = self.head(self.blocks(self.tokens(inputs), mask, is_causal=True))
        return nn.functional.cross_entropy(logits.flatten(0, 1), expected.flatten())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000, help="optimizer steps to train for")
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--local_rank", type=int, default=-1)
    deepspeed.add_config_arguments(parser)
    args = parser.parse_args()

    torch.manual_seed(0)
    model = LanguageModel(args.vocab, args.hidden, args.heads, args.layers)
    data = torch.utils.data.TensorDataset(torch.randint(args.vocab, (65536, args.length + 1)))
    engine, _, loader, _ = deepspeed.initialize(
        args=args, model=model, model_parameters=model.parameters(), training_data=data
    )
    while engine.global_steps < args.steps:
        for (tokens,) in loader:
            loss = engine(tokens.to(engine.device))
            engine.backward(loss)
            engine.step()
            if engine.global_steps >= args.steps:
                break
    if engine.global_rank == 0:
        print(f"trained {engine.global_steps} steps, loss {loss.item():.3f}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
