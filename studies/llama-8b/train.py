"""Trains Llama 3 8B with the Hugging Face Trainer, on a file of tokens or on generated ones."""

from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class ModelArguments:
    model_name_or_path: str | None = field(default=None, metadata={"help": "weights to start from"})
    config_name: str = field(default="config.json", metadata={"help": "without weights: the shape; random weights"})


@dataclass
class DataArguments:
    data: str | None = field(default=None, metadata={"help": "file of 32-bit token ids; without it, generated ones"})
    length: int = field(default=4096, metadata={"help": "tokens of a sample"})


class Tokens(torch.utils.data.Dataset):
    """Samples of a file of 32-bit token ids, one after the other; generated ids without a file."""

    def __init__(self, path: str | None, length: int, vocab: int) -> None:
        self.length = length
        if path is None:
            self.tokens = np.random.default_rng(0).integers(vocab, size=4096 * length, dtype=np.uint32)
        else:
            self.tokens = np.memmap(path, dtype=np.uint32, mode="r")

    def __len__(self) -> int:
        return len(self.tokens) // self.length

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        start = index * self.length
        tokens = torch.from_numpy(self.tokens[start : start + self.length].astype(np.int64))
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    which, data, args = parser.parse_args_into_dataclasses()
    torch.manual_seed(args.seed)
    if which.model_name_or_path is None:
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(which.config_name))
    else:
        model = AutoModelForCausalLM.from_pretrained(which.model_name_or_path)
    trainer = Trainer(model=model, args=args, train_dataset=Tokens(data.data, data.length, model.config.vocab_size))
    trainer.train()
    trainer.save_model()
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main()
