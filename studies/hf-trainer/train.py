"""Trains a small GPT-2 with the Hugging Face Trainer: random weights, generated tokens."""

from dataclasses import dataclass

import torch
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class ModelArguments:
    vocab: int = 2048
    length: int = 32
    hidden: int = 128
    layers: int = 2
    heads: int = 4


class Tokens(torch.utils.data.Dataset):
    def __init__(self, vocab: int, length: int, samples: int = 65536) -> None:
        self.tokens = torch.randint(vocab, (samples, length), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def main() -> None:
    shape, args = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()
    torch.manual_seed(args.seed)
    config = GPT2Config(
        vocab_size=shape.vocab,
        n_positions=shape.length,
        n_embd=shape.hidden,
        n_layer=shape.layers,
        n_head=shape.heads,
    )
    trainer = Trainer(model=GPT2LMHeadModel(config), args=args, train_dataset=Tokens(shape.vocab, shape.length))
    trainer.train()
    trainer.save_model()
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main()
