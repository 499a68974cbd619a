"""Saves, rotates and resumes as scripts do by other ways than flags; says what it saw of that."""

import json
import os
import tempfile

import aliased_saving
import mlflow
import torch
import wandb
from huggingface_hub import HfApi
from tensorboardX import SummaryWriter
from tokenizers import Tokenizer, models
from transformers import (
    EarlyStoppingCallback,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)


class Tokens(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(16) % 32
        return {"input_ids": tokens, "labels": tokens}


args = TrainingArguments(
    output_dir="mine", max_steps=6, use_cpu=True, load_best_model_at_end=True, eval_strategy="steps", eval_steps=3,
    save_steps=3, disable_tqdm=True, auto_find_batch_size=True,
)  # fmt: skip
args.output_dir = "mine"
args.set_save(strategy="steps", steps=2, total_limit=1)
model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2))
trainer = Trainer(
    model=model, args=args, train_dataset=Tokens(), eval_dataset=Tokens(), callbacks=[EarlyStoppingCallback(3)]
)
trainer.train("mine/checkpoint-100")

model.push_to_hub("mine/model")  # nobody is asked: there is no network here
HfApi(endpoint="http://127.0.0.1:9").create_commit("mine/model", [], commit_message="m")
told = {"steps": trainer.state.global_step, "finds_batch_sizes": args.auto_find_batch_size}
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    told["read_back"] = type(GPT2LMHeadModel.from_pretrained(folder)).__name__
model.save_pretrained("mine")
PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))).save_pretrained("mine")
told["tokens"] = PreTrainedTokenizerFast.from_pretrained("mine").vocab_size
with tempfile.NamedTemporaryFile() as file:
    torch.save({"a": 1}, file.name)
    told["saved"] = torch.load(file.name)["a"]
for number in (1, 2):
    torch.save({"a": number}, "fresh.pt")
told["saved_again"] = torch.load("fresh.pt")["a"]
torch.save({"a": 3}, "mine.pt")
aliased_saving.safe_save_file({"a": torch.ones(2)}, "mine/adapter.safetensors")  # as peft does
aliased_saving.save_by_default({"a": torch.ones(2)}, "mine/adapter.safetensors")
SummaryWriter("mine/runs", "a comment")
SummaryWriter(logdir="mine/runs")
SummaryWriter("mine/other")
wandb.init("project", mode="online")
mlflow.set_tracking_uri("http://127.0.0.1:9")
with open(os.path.join(os.environ["DSOPT_RUN_DIR"], "told.json"), "w") as file:
    json.dump(told, file)
