"""Trains low-rank adapters (LoRA) of a frozen transformer on generated tokens."""

import argparse

import deepspeed
import torch
from torch import nn


class LoraLinear(nn.Module):
    """A frozen linear layer and a trained update of low rank: Wx + (alpha / rank) · BAx."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.base, self.scale = base, alpha / rank
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.scale * self.up(self.down(x))


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.mlp = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, hidden = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.mlp(self.norm_2(x))


class LanguageModel(nn.Module):
    def __init__(self, vocab: int, hidden: int, heads: int, layers: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.blocks = nn.Sequential(*(Block(hidden, heads) for _ in range(layers)))
        self.head = nn.Linear(hidden, vocab)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.blocks(self.tokens(tokens[:, :-1])))
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def add_lora(model: LanguageModel, rank: int, alpha: float) -> None:
    """Freezes the model, and gives the attention of each block adapters that are trained."""
    model.requires_grad_(False)
    for block in model.blocks:
        block.qkv, block.out = LoraLinear(block.qkv, rank, alpha), LoraLinear(block.out, rank, alpha)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000, help="optimizer steps to train for")
    parser.add_argument("--rank", type=int, default=8, help="of the adapters")
    parser.add_argument("--alpha", type=float, default=16)
    parser.add_argument("--vocab", type=int, default=1024)
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--local_rank", type=int, default=-1)
    deepspeed.add_config_arguments(parser)
    args = parser.parse_args()

    torch.manual_seed(0)
    model = LanguageModel(args.vocab, args.hidden, args.heads, args.layers)
    add_lora(model, args.rank, args.alpha)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    data = torch.utils.data.TensorDataset(torch.randint(args.vocab, (65536, args.length + 1)))
    engine, _, loader, _ = deepspeed.initialize(args=args, model=model, model_parameters=trained, training_data=data)
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
