"""Memory for model states: Hugging Face's published tables, DeepSpeed's estimators, the ZeRO papers, what fits."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from dsopt.api.estimating import make_model_size, parse_count
from dsopt.errors import DsoptError
from dsopt.estimates.count import count_params
from dsopt.estimates.fit import what_fits
from dsopt.estimates.table import estimate_memory
from dsopt.estimates.zero_memory import (
    ModelSize,
    Offload,
    deepspeed_zero2_estimate,
    deepspeed_zero3_estimate,
    device_state_bytes,
    host_state_bytes,
)

GIB = 2**30

# bigscience/T0_3B is T5-3B v1.1; this is its config as far as it says how large the model is
T0_3B_CONFIG = {
    "model_type": "t5", "d_model": 2048, "d_ff": 5120, "d_kv": 64, "num_heads": 32, "num_layers": 24,
    "num_decoder_layers": 24, "vocab_size": 32128, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
}  # fmt: skip
T0_3B = ModelSize(num_params=2_783_959_040, trainable_params=2_783_959_040, largest_layer_params=65_798_144)

# "Memory Requirements" in Hugging Face's document on DeepSpeed: by GPUs, (per CPU, per GPU, options)
PUBLISHED = {
    1: [
        ("70.00", "0.25", "offload_param=cpu , offload_optimizer=cpu , zero_init=1"),
        ("70.00", "0.25", "offload_param=cpu , offload_optimizer=cpu , zero_init=0"),
        ("62.23", "5.43", "offload_param=none, offload_optimizer=cpu , zero_init=1"),
        ("62.23", "5.43", "offload_param=none, offload_optimizer=cpu , zero_init=0"),
        ("0.37", "46.91", "offload_param=none, offload_optimizer=none, zero_init=1"),
        ("15.56", "46.91", "offload_param=none, offload_optimizer=none, zero_init=0"),
    ],
    2: [
        ("70.00", "0.25", "offload_param=cpu , offload_optimizer=cpu , zero_init=1"),
        ("70.00", "0.25", "offload_param=cpu , offload_optimizer=cpu , zero_init=0"),
        ("62.23", "2.84", "offload_param=none, offload_optimizer=cpu , zero_init=1"),
        ("62.23", "2.84", "offload_param=none, offload_optimizer=cpu , zero_init=0"),
        ("0.74", "23.58", "offload_param=none, offload_optimizer=none, zero_init=1"),
        ("31.11", "23.58", "offload_param=none, offload_optimizer=none, zero_init=0"),
    ],
}


def size(num_params: int, largest: int, **changes: object) -> ModelSize:
    values = {"num_params": num_params, "trainable_params": num_params, "largest_layer_params": largest}
    return ModelSize(**{**values, **changes})


def zero3_table(text: str) -> list[tuple[str, str, str]]:
    """The first table of the text: per CPU and per GPU in GB, and the options."""
    lines = text[: text.index("\n\n")].splitlines()
    cells = [[cell.strip().removesuffix("GB") for cell in line.split("|")] for line in lines[5:]]
    return [(host, device, options) for host, device, options in cells]


@pytest.mark.parametrize("gpus", [1, 2])
def test_the_published_tables_of_t0_3b_from_its_exact_counts(gpus: int) -> None:
    text = estimate_memory(T0_3B, gpus_per_node=gpus, nodes=1).text()
    assert zero3_table(text) == PUBLISHED[gpus]
    assert f"HW: Setup with 1 node, {gpus} GPU{'s' if gpus > 1 else ''} per node.\n" in text
    assert "SW: Model with 2783M total params, 65M largest layer params.\n" in text


def test_the_exact_counts_of_t0_3b_from_its_config(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(T0_3B_CONFIG))
    counted = count_params(path)
    assert (counted.num_params, counted.largest_layer_params) == (T0_3B.num_params, T0_3B.largest_layer_params)
    assert (counted.hidden_size, counted.num_layers) == (2048, 24)


@pytest.mark.parametrize("gpus", [1, 2])
def test_the_tables_from_the_millions_that_deepspeed_prints(gpus: int) -> None:
    """It cuts digits off: 2783M and 65M stand for less than 2784M and 66M, so the last digits differ."""
    exact = estimate_memory(T0_3B, gpus_per_node=gpus, nodes=1)
    rounded = estimate_memory(size(2_783_000_000, 65_000_000), gpus_per_node=gpus, nodes=1)
    rows = zero3_table(rounded.text())
    assert [row[0] for row in rows[:4]] == ["69.98", "69.98", "62.20", "62.20"]
    for row, published in zip(rows, PUBLISHED[gpus], strict=True):
        assert row[2] == published[2]
        assert [float(gb) for gb in row[:2]] == pytest.approx([float(gb) for gb in published[:2]], abs=0.031)
    for row, wanted in zip(rounded.rows, exact.rows, strict=True):
        # the largest layer is known to one in 65 only: 4 bytes, times DeepSpeed's 1.5, for what was cut off of it
        layers = 4 * gpus * 1.5 * (T0_3B.largest_layer_params - 65_000_000) if row.stage == 3 else 0
        for got, true in (
            (row.memory.host_bytes, wanted.memory.host_bytes),
            (row.memory.device_bytes, wanted.memory.device_bytes),
        ):
            assert got == pytest.approx(true, rel=0.0005, abs=0.0005 * true + layers)


def test_no_whole_millions_give_every_digit_of_the_tables() -> None:
    for millions, layer in itertools.product((2783, 2784), (65, 66)):
        text = estimate_memory(size(millions * 10**6, layer * 10**6), gpus_per_node=1, nodes=1).text()
        assert zero3_table(text) != PUBLISHED[1]


GRID = list(
    itertools.product(
        [(1, 1), (124_439_808, 38_597_376), (2_783_959_040, 65_798_144), (175_000_000_001, 1_234_567_891)],
        [1, 2, 3, 8],
        [1, 2, 3, 7],
    )
)
DEEPSPEED = """
import contextlib, io, json, sys
from deepspeed.runtime.zero import stage3, stage_1_and_2
grid, out = json.loads(sys.argv[1]), []
for (params, layer), gpus, nodes in grid:
    zero2 = [stage_1_and_2.estimate_zero2_model_states_mem_needs(params, gpus, nodes, offload)
             for offload in (True, False)]
    zero3 = [stage3.estimate_zero3_model_states_mem_needs(params, layer, gpus, nodes, *moved, zero_init)
             for moved in ((True, True), (True, False), (False, False)) for zero_init in (True, False)]
    with contextlib.redirect_stdout(io.StringIO()) as printed3:
        stage3.estimate_zero3_model_states_mem_needs_all_cold(params, layer, gpus, nodes)
    with contextlib.redirect_stdout(io.StringIO()) as printed2:
        stage_1_and_2.estimate_zero2_model_states_mem_needs_all_cold(params, gpus, nodes)
    out.append([zero2, zero3, printed2.getvalue(), printed3.getvalue()])
print(json.dumps(out))
"""


def test_deepspeeds_estimators_give_the_same_bytes_and_the_same_text() -> None:
    done = subprocess.run(
        [sys.executable, "-c", DEEPSPEED, json.dumps(GRID)], capture_output=True, text=True, check=True
    )
    for ((params, layer), gpus, nodes), (zero2, zero3, printed2, printed3) in zip(
        GRID, json.loads(done.stdout.splitlines()[-1]), strict=True
    ):
        estimate = estimate_memory(size(params, layer), gpus_per_node=gpus, nodes=nodes)
        ours = [[row.memory.host_bytes, row.memory.device_bytes] for row in estimate.rows]
        assert ours[:6] == [row[:2] for row in zero3]
        assert ours[6:8] == zero2
        for printed in (printed2, printed3):
            # since Python 3.11 its `f"{OffloadDeviceEnum.cpu:4}"` is no longer `cpu `, as in the published tables
            assert printed.replace("OffloadDeviceEnum.cpu", "cpu ") in estimate.text()


@pytest.mark.parametrize(
    ("dtype", "stage", "offload", "device", "host"),
    [
        # 1000 parameters, all trained, largest layer 100, 4 ranks on 2 nodes
        ("fp16", 0, ("none", "none"), 16000, 0),
        ("fp16", 1, ("none", "none"), 4000 + 3000, 0),
        ("fp16", 2, ("none", "none"), 2000 + 3500, 0),
        ("fp16", 3, ("none", "none"), 4000, 0),
        ("bf16", 1, ("cpu", "none"), 4000, 9000),
        ("bf16", 2, ("cpu", "none"), 2000, 9000),
        ("bf16", 3, ("cpu", "none"), 500, 9000),
        ("bf16", 3, ("cpu", "cpu"), 400, 10000),
        ("bf16", 3, ("none", "cpu"), 400 + 3500 - 200 + 200, 1000),
        ("bf16", 3, ("nvme", "nvme"), 400, 0),
        ("bf16", 3, ("cpu", "nvme"), 400, 9000),
        ("fp32", 0, ("none", "none"), 16000, 0),
        ("fp32", 1, ("none", "none"), 8000 + 2000, 0),
        ("fp32", 2, ("none", "none"), 4000 + 3000, 0),
        ("fp32", 3, ("none", "none"), 4000, 0),
        ("fp32", 2, ("cpu", "none"), 4000, 10000),
        ("fp32", 3, ("cpu", "cpu"), 800, 12000),
    ],
)
def test_states_by_the_papers(dtype: str, stage: int, offload: tuple, device: int, host: int) -> None:
    moved = Offload(optimizer=offload[0], param=offload[1])
    common = {"params": 1000, "trainable": 1000, "ranks": 4, "dtype": dtype, "offload": moved}
    assert device_state_bytes(stage, **common, largest_layer=100) == device
    assert host_state_bytes(stage, **common, ranks_per_node=2) == host


@pytest.mark.parametrize(
    ("stage", "offload", "message"),
    [
        (4, Offload(), "expected 0, 1, 2 or 3"),
        (0, Offload(optimizer="cpu"), "expected ZeRO stage 1, 2 or 3"),
        (2, Offload(optimizer="nvme"), "expected ZeRO stage 3"),
        (2, Offload(optimizer="cpu", param="cpu"), "expected ZeRO stage 3"),
        (3, Offload(optimizer="cpu", param="cpu"), "'largest_layer'"),
    ],
)
def test_offloads_that_deepspeed_does_not_have_are_refused(stage: int, offload: Offload, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        device_state_bytes(stage, params=10, trainable=10, ranks=2, dtype="fp16", offload=offload)


def test_parameters_are_not_offloaded_alone_in_deepspeeds_estimator() -> None:
    with pytest.raises(ValueError, match="no such case"):
        deepspeed_zero3_estimate(
            10, 1, gpus_per_node=1, nodes=1, offload_optimizer=False, offload_param=True, zero_init=True
        )
    assert deepspeed_zero2_estimate(10, gpus_per_node=1, nodes=1, offload_optimizer=True).device_bytes == 20


LABELS = {
    "0": "ZeRO 0", "1": "ZeRO 1", "2": "ZeRO 2", "2o": "ZeRO 2 + optimizer offload", "3": "ZeRO 3",
    "3o": "ZeRO 3 + optimizer offload", "3op": "ZeRO 3 + optimizer and param offload", "-": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "one", "two", "four", "eight"),
    [
        # each column: a GPU of 24, of 40 and of 80 GB
        (size(10**9, 10**8), "0 0 0", "0 0 0", "0 0 0", "0 0 0"),
        (size(7 * 10**9, 131_000_000), "2o 2o 2o", "2o 2o 2", "2o 2o 1", "2o 2 1"),
        (size(7 * 10**9, 131_000_000, dtype="fp32"), "3op 2o 2o", "3o 2o 2o", "3o 2o 2", "3 2o 1"),
        (size(7 * 10**9, 131_000_000, trainable_params=10**7), "0 0 0", "0 0 0", "0 0 0", "0 0 0"),
        (size(70 * 10**9, 10**9), "3op 3op 3op", "3op 3op 3op", "3op 3op 3o", "3o 3o 3o"),
        (size(10**12, 6 * 10**9), "- 3op 3op", "- 3op 3op", "- 3op 3op", "- 3op 3op"),
    ],
)
def test_the_fastest_option_that_fits(model: ModelSize, one: str, two: str, four: str, eight: str) -> None:
    found = what_fits(model)
    assert [(fit.gpus, fit.gpu_memory_bytes // GIB) for fit in found] == list(
        itertools.product((1, 2, 4, 8), (24, 40, 80))
    )
    assert [fit.option.label if fit.option else None for fit in found] == [
        LABELS[code] for codes in (one, two, four, eight) for code in codes.split()
    ]
    for fit in found:
        assert (fit.device_bytes <= 0.8 * fit.gpu_memory_bytes) == (fit.option is not None)


def test_text_says_what_fits_what_does_not_and_what_comes_on_top() -> None:
    text = estimate_memory(size(10**12, 6 * 10**9), gpus_per_node=8, nodes=4).text()
    assert "HW: Setup with 4 nodes, 8 GPUs per node." in text
    assert "   1 | 24GB |          - |       - | none: even the smallest needs 22.35GB per GPU" in text
    assert "Activations come on top" in text.splitlines()[-2]
    assert "assume 16-bit training of every parameter" not in text
    for changes in ({"dtype": "fp32"}, {"trainable_params": 5}):
        other = estimate_memory(size(10**9, 10**8, **changes), gpus_per_node=1, nodes=1).text()
        assert "DeepSpeed's estimators always assume 16-bit training of every parameter" in other


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("2783M", 2_783_000_000), ("2.8B", 2_800_000_000), ("65M", 65_000_000), ("125000000", 125_000_000),
        ("7e9", 7_000_000_000), ("1.5e9", 1_500_000_000), ("0.35b", 350_000_000), (" 1.1T ", 1_100_000_000_000),
        ("2783.95904M", 2_783_959_040), ("12k", 12_000), ("1", 1), ("1E+4", 10_000),
    ],
)  # fmt: skip
def test_counts(text: str, count: int) -> None:
    assert parse_count("--num-params", text) == count


@pytest.mark.parametrize(
    "text",
    ["", "M", "12X", "-1", "+1", "0", "0.4", "1.5", "1e-3", "nan", "inf", "1e17", "1e999", "7e9999", "2,783M", "1 000",
     "2783MM", "0x10", "٣M", "1_000"],
)  # fmt: skip
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(DsoptError, match=r"^--num-params: .* is not a valid parameter count\. Expected a whole number"):
        parse_count("--num-params", text)


def test_counts_that_do_not_agree() -> None:
    with pytest.raises(DsoptError, match="--largest-layer: 20 is more than the model's 10 parameters"):
        make_model_size(10, 20, 10, "fp16")
    with pytest.raises(DsoptError, match="--trainable-params: 11 is more than the model's 10 parameters"):
        make_model_size(10, 10, 11, "fp16")
