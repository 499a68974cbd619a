"""`dsopt.estimate(model)`: DeepSpeed's live estimators for live models, and what those do not know."""

import json
import subprocess
import sys

import pytest

import dsopt

LIVE = """
import contextlib, io, json
import torch
from deepspeed.runtime.zero import stage3, stage_1_and_2
import dsopt

class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Embedding(50_000, 512)
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(8)))
        self.head = torch.nn.Linear(512, 50_000, bias=False)
        self.head.weight = self.tokens.weight

models = {"tied": Tied(), "wide": torch.nn.Linear(4096, 4096), "one": torch.nn.Linear(1, 1, bias=False)}
same = {}
for name, model in models.items():
    for gpus, nodes in ((1, 1), (2, 1), (8, 3)):
        text = str(dsopt.estimate(model, num_gpus=gpus, num_nodes=nodes))
        for theirs in (stage3.estimate_zero3_model_states_mem_needs_all_live,
                       stage_1_and_2.estimate_zero2_model_states_mem_needs_all_live):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                theirs(model, num_gpus_per_node=gpus, num_nodes=nodes)
            # since Python 3.11 its `f"{OffloadDeviceEnum.cpu:4}"` is no longer `cpu `
            lines = printed.getvalue().replace("OffloadDeviceEnum.cpu", "cpu ")
            same[f"{name} {gpus} {nodes} {theirs.__name__}"] = lines in text

tied = models["tied"]
for parameter in tied.layers.parameters():
    parameter.requires_grad = False
with torch.device("meta"):
    meta = torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.Linear(10, 20))
partitioned = torch.nn.Linear(10, 10)
for parameter in partitioned.parameters():
    parameter.ds_numel, parameter.data = parameter.numel(), torch.empty(0)
sizes = {
    name: [size.num_params, size.trainable_params, size.largest_layer_params, size.dtype]
    for name, model in {"frozen": tied, "meta": meta, "partitioned": partitioned}.items()
    for size in [dsopt.estimate(model, dtype="bf16").model]
}
print(json.dumps([same, sizes]))
"""


def test_deepspeeds_live_estimators_print_the_same() -> None:
    done = subprocess.run([sys.executable, "-c", LIVE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    same, sizes = json.loads(done.stdout.splitlines()[-1])
    assert len(same) == 18
    assert all(same.values()), same
    embedding, layers = 50_000 * 512, 8 * (512 * 512 + 512)
    assert sizes == {
        "frozen": [embedding + layers, embedding, embedding, "bf16"],
        "meta": [110 + 220, 330, 220, "bf16"],
        "partitioned": [110, 110, 110, "bf16"],
    }


def test_importing_dsopt_imports_nothing_heavy() -> None:
    program = "import sys, dsopt; print(sorted({'torch', 'numpy', 'pydantic', 'optuna'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class Parameter:
    requires_grad = True

    def numel(self) -> int:
        return 7

    def data_ptr(self) -> int:
        return 1


class Module:
    def __init__(self, *parameters: Parameter) -> None:
        self._parameters = parameters

    def parameters(self, *, recurse: bool = True) -> list[Parameter]:
        return list(self._parameters)

    def modules(self) -> list["Module"]:
        return [self]


@pytest.mark.parametrize(
    ("model", "arguments", "error", "message"),
    [
        ("gpt2", {}, TypeError, "model: 'str'. Expected a torch.nn.Module"),
        (Module(), {}, ValueError, "'Module' has no parameters"),
        (Module(Parameter()), {"num_gpus": 0}, ValueError, "num_gpus: 0. Expected a whole number"),
        (Module(Parameter()), {"num_nodes": 1.5}, ValueError, "num_nodes: 1.5. Expected a whole number"),
        (Module(Parameter()), {"dtype": "int8"}, ValueError, "dtype: 'int8'. Expected one of fp16, bf16, fp32"),
    ],
)
def test_mistakes(model: object, arguments: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        dsopt.estimate(model, **arguments)
