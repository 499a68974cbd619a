"""Trains a model whose layers DeepSpeed's AutoTP splits between ranks."""

import argparse

import deepspeed
import torch
from transformers import LlamaConfig, LlamaForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("how")
parser.add_argument("--local_rank", type=int, default=-1)
parser.add_argument("--deepspeed_config")
args = parser.parse_args()

torch.manual_seed(0)  # as AutoTP wants it of the ranks that share data
sizes = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "use_cache": False}
model = LlamaForCausalLM(LlamaConfig(num_attention_heads=2, num_key_value_heads=2, **sizes))
tokens = torch.utils.data.TensorDataset(torch.randint(64, (65_536, 8)))
engine, _, loader, _ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), training_data=tokens, config=args.deepspeed_config
)
for (batch,) in loader:
    engine.backward(engine(input_ids=batch, labels=batch).loss)
    engine.step()
