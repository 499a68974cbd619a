"""Folders as DeepSpeed's own autotuner leaves them in its results_dir, with the keys and units of its 0.19."""

import base64
import json
from pathlib import Path

OOM = """Traceback (most recent call last):
  File "train.py", line 90, in <module>
    loss = engine(batch)
[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 16 GiB.
"""


def metrics(throughput: float, batch: int) -> dict[str, float]:
    """`metrics.json`: times in microseconds."""
    latency = batch / throughput * 1e6
    return {
        "fwd": 0.3 * latency, "bwd": 0.6 * latency, "step": 0.1 * latency, "latency": latency,
        "FLOPS_per_gpu": 1e9 * throughput, "throughput": throughput, "rank": 0,
    }  # fmt: skip


def write_experiment(
    results: Path,
    stage: int,
    micro_batch: int,
    throughput: float | None,
    *,
    gas: int = 1,
    name: str | None = None,
    stderr: str = "",
    zero: dict | None = None,
    config: dict | None = None,
    script: str = "train.py",
    num_gpus: int = 2,
) -> Path:
    """One experiment's folder; without a throughput it was not measured."""
    name = name or f"z{stage}_gas{gas}_tmbspg{micro_batch}"
    folder = results / name
    folder.mkdir(parents=True)
    ds_config = {
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": gas,
        **(config or {}),
        "autotuning": {"enabled": True, "metric_path": f"autotuning_results/{name}/metrics.json"},
        "zero_optimization": {"stage": stage, **(zero or {})},
        "train_batch_size": micro_batch * gas * num_gpus,
    }
    encoded = base64.urlsafe_b64encode(json.dumps(ds_config).encode()).decode()
    launcher = ["--hostfile", "hosts", "--include", "localhost:0,1", "--master_port", "29501"]
    description = {
        "name": name, "ds_config": ds_config, "num_gpus": num_gpus, "num_nodes": 1, "hostfile": "hosts", "exp_id": 1,
        "result_dir": f"autotuning_results/{name}", "master_port": 29501, "launcher_args": launcher, "user": "u",
        "job_id": "unknown-job-id", "ds_config_path": f"autotuning_results/{name}/ds_config.json",
        "ds_config_base64": encoded,
    }  # fmt: skip
    (folder / "exp.json").write_text(json.dumps(description))
    (folder / "ds_config.json").write_text(json.dumps(ds_config))
    (folder / "cmd.txt").write_text(" ".join(["deepspeed", *launcher, script, "--deepspeed_config", encoded]) + "\n")
    (folder / "stdout.log").write_text("[INFO] [launch.py] done\n")
    (folder / "stderr.log").write_text(stderr)
    if throughput is not None:
        (folder / "metrics.json").write_text(json.dumps(metrics(throughput, micro_batch * gas * num_gpus)))
    return folder


def write_profile(results: Path) -> Path:
    """The folder of the profile that an autotuning run begins with, and the final files beside the folders."""
    folder = write_experiment(results, 3, 1, None, name="profile_model_info")
    content = json.loads((folder / "exp.json").read_text())
    content["ds_config"]["autotuning"]["model_info_path"] = "autotuning_results/profile_model_info/model_info.json"
    (folder / "exp.json").write_text(json.dumps(content))
    (folder / "model_info.json").write_text('{"num_params": 10000000, "activation_mem_per_gpu": 268435456, "rank": 0}')
    (results / "summary.txt").write_text("| tuning_space |\n")
    (results / "ds_config_optimal.json").write_text("{}")
    return folder
