"""What the documents' command lines start: the arguments of Hugging Face's example scripts, and a tiny model with
random weights on generated tokens. Without a GPU it trains on the CPU in fp32.
"""

import sys
from dataclasses import dataclass

import torch
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class ModelArguments:
    model_name_or_path: str


@dataclass
class DataTrainingArguments:
    task_name: str | None = None
    dataset_name: str | None = None
    dataset_config_name: str | None = None
    max_seq_length: int = 32


@dataclass
class EarlierTrainingArguments:
    """What `TrainingArguments` had when the documents were written, and has no more."""

    overwrite_output_dir: bool = False
    logging_dir: str | None = None


class Tokens(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(256, (32,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    words = ["--deepspeed" if word == "--deepspeed_config" else word for word in sys.argv[1:]]
    if not torch.cuda.is_available():
        words = [*(word for word in words if word != "--fp16"), "--use_cpu"]
    kinds = (ModelArguments, DataTrainingArguments, EarlierTrainingArguments, TrainingArguments)
    *_, args = HfArgumentParser(kinds).parse_args_into_dataclasses([*words, "--report_to", "none"])
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=32, n_embd=64, n_layer=2, n_head=2))
    Trainer(model=model, args=args, train_dataset=Tokens()).train()


if __name__ == "__main__":
    main()
