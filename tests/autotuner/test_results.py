"""What DeepSpeed's own autotuner left: read as it is, and every folder that cannot be used named with the reason."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dsopt.autotuner.results import read_results
from dsopt.errors import DsoptError
from tests.deepspeed_results import OOM, write_experiment, write_profile


def test_experiments_are_read_with_their_figures_in_our_units(tmp_path: Path) -> None:
    write_profile(tmp_path)
    write_experiment(tmp_path, 0, 4, 100.0)
    write_experiment(tmp_path, 0, 64, None, stderr=OOM)
    (tmp_path / "notes").mkdir()
    experiments, passed_over = read_results(tmp_path)
    assert [e.name for e in experiments] == ["z0_gas1_tmbspg4", "z0_gas1_tmbspg64"]
    measured, failed = experiments
    assert measured.figures == pytest.approx({"throughput": 100.0, "latency": 80.0, "FLOPS": 1e11})
    assert (measured.run.num_gpus, measured.run.num_nodes, measured.run.command.script) == (2, 1, "train.py")
    assert measured.out_of_memory is None
    assert not failed.figures
    assert failed.out_of_memory is not None
    assert failed.out_of_memory.startswith("[rank0]: torch.OutOfMemoryError: CUDA out of memory")
    assert [(p.name, p.why) for p in passed_over] == [
        ("notes", "contains no exp.json: it is not an experiment"),
        ("profile_model_info", "is the profile of the model, not an experiment"),
    ]


def _change(**keys: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = json.loads((folder / "exp.json").read_text()) | keys
        (folder / "exp.json").write_text(json.dumps({k: v for k, v in content.items() if v is not None}))

    return change


def _write(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text) and None


def _nothing_measured(stderr: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "metrics.json").unlink()
        (folder / "stderr.log").write_text(stderr)

    return change


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_write("exp.json", '{"name": "z0_gas1_tm'), "exp.json: line 1"),
        (_write("exp.json", "[]"), "exp.json: contains a list"),
        (_write("exp.json", ""), "invalid JSON"),
        (lambda folder: (folder / "exp.json").write_bytes(b"\xff\xfe{}"), "is not UTF-8"),
        (_change(ds_config=None), "ds_config: None"),
        (_change(num_gpus="two"), "num_gpus: 'two'"),
        (_change(num_nodes=True), "num_nodes: True"),
        (_change(round=0), "is a run of dsopt"),
        (lambda folder: (folder / "cmd.txt").unlink(), "it was not launched"),
        (_write("cmd.txt", "python train.py\n"), "starts with 'python'"),
        (_write("metrics.json", '{"throughput": 1'), "metrics.json"),
        (_write("metrics.json", '{"throughput": 0, "latency": -1, "FLOPS_per_gpu": true}'), "contains no figure"),
        (_write("metrics.json", '{"throughput": NaN}'), "not a JSON number"),
        (_write("metrics.json", '{"throughput": 1e999}'), "contains no figure"),
        (_write("stderr.log", OOM), "metrics.json has figures, but stderr.log says"),
        (_nothing_measured(""), "contains no metrics.json"),
        (_nothing_measured("ValueError: bad batch\n\n"), "stderr.log ends with: ValueError: bad batch"),
        (_nothing_measured("Hint: avoid CUDA out of memory by small batches\nKilled\n"), "ends with: Killed"),
    ],
)
def test_a_folder_that_cannot_be_used_is_named_and_the_others_are_read(
    tmp_path: Path, spoil: Callable[[Path], None], why: str
) -> None:
    write_experiment(tmp_path, 0, 8, 150.0)
    spoil(write_experiment(tmp_path, 0, 4, 100.0))
    experiments, [passed_over] = read_results(tmp_path)
    assert [e.name for e in experiments] == ["z0_gas1_tmbspg8"]
    assert passed_over.name == "z0_gas1_tmbspg4"
    assert why in passed_over.why


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory: you tried",
        "worker-0: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "Cuda failure 2 'out of memory'",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "MemoryError",
    ],
)
def test_out_of_memory_is_told_by_the_log(tmp_path: Path, line: str) -> None:
    write_experiment(tmp_path, 0, 4, None, stderr=f"loading\n{line}\nraise SystemExit\n")
    [experiment], _ = read_results(tmp_path)
    assert experiment.out_of_memory == line


def test_a_folder_without_experiments_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(DsoptError, match=r"no such folder\. Expected the results_dir of DeepSpeed's autotuner"):
        read_results(tmp_path / "missing")
    with pytest.raises(DsoptError, match="contains no experiment"):
        read_results(tmp_path)
    (tmp_path / "z0_gas1_tmbspg4.json").write_text("{}")
    with pytest.raises(DsoptError, match="Is it the exps_dir"):
        read_results(tmp_path)
    with pytest.raises(DsoptError, match="is a file"):
        read_results(tmp_path / "z0_gas1_tmbspg4.json")
    folder = write_experiment(tmp_path / "results", 0, 4, 100.0)
    with pytest.raises(DsoptError, match="This is one experiment: give the folder that it is in"):
        read_results(folder)
