"""Trains a model of DeepSpeed's documents with the Hugging Face Trainer: random weights, generated data.

Without --small it has its true size.
"""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)

BERT = {"vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
DISTILBERT = {"vocab_size": 30522, "dim": 768, "hidden_dim": 3072, "n_layers": 6, "n_heads": 12}
GPT2_LARGE = {"vocab_size": 50257, "n_embd": 1280, "n_layer": 36, "n_head": 20}
DEBERTA_V2_XXLARGE = {
    "vocab_size": 128100,
    "hidden_size": 1536,
    "intermediate_size": 6144,
    "num_hidden_layers": 48,
    "num_attention_heads": 24,
    "relative_attention": True,
    "position_buckets": 256,
    "pos_att_type": ["p2c", "c2p"],
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "conv_kernel_size": 3,
}


@dataclass(frozen=True)
class Known:
    """A model of the documents: its kind, its true shape, and what `--small` changes of it."""

    kind: str
    length: int  # tokens of a sample
    shape: dict[str, Any]
    small: dict[str, Any]

    @property
    def writes(self) -> bool:
        """Whether it predicts the next token; the others sort texts into classes."""
        return self.kind == "gpt2"


SMALL = {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2}
MODELS = {
    "gpt2-large": Known("gpt2", 1024, GPT2_LARGE, {"vocab_size": 512, "n_embd": 64, "n_layer": 2, "n_head": 2}),
    "deberta-v2-xxlarge": Known("deberta-v2", 256, DEBERTA_V2_XXLARGE, {**SMALL, "num_attention_heads": 2}),
    "distilbert": Known(
        "distilbert", 128, DISTILBERT, {"vocab_size": 512, "dim": 64, "hidden_dim": 256, "n_layers": 2, "n_heads": 2}
    ),
    "bert-base": Known("bert", 128, BERT, {**SMALL, "num_attention_heads": 2}),
}
SMALL_LENGTH = 16


@dataclass
class ModelArguments:
    model_name: str
    small: bool = False


class Texts(torch.utils.data.Dataset):
    """Random tokens; the labels are the tokens themselves, or one of two classes."""

    def __init__(self, vocab: int, length: int, *, is_language: bool, samples: int = 65536) -> None:
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(vocab, (samples, length), generator=generator)
        self.labels = self.tokens if is_language else torch.randint(2, (samples,), generator=generator)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.labels[index]}


def main() -> None:
    asked, args = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()
    torch.manual_seed(args.seed)
    known = MODELS[asked.model_name]
    length = SMALL_LENGTH if asked.small else known.length
    config = AutoConfig.for_model(known.kind, **(known.shape | known.small if asked.small else known.shape))
    kind = AutoModelForCausalLM if known.writes else AutoModelForSequenceClassification
    data = Texts(config.vocab_size, length, is_language=known.writes)
    trainer = Trainer(model=kind.from_config(config), args=args, train_dataset=data)
    trainer.train()
    trainer.accelerator.end_training()  # else a thread of a collective may meet the end of Python, which aborts


if __name__ == "__main__":
    main()
