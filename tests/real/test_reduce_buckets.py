"""What the memory model says of buckets against what DeepSpeed allocates."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dsopt.estimates.zero_memory import reduce_buffer_elements
from tests.conftest import SCRIPTS

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("real")]


def test_buckets_are_as_large_as_the_memory_model_says(tmp_path: Path) -> None:
    command = [sys.executable, SCRIPTS / "buckets.py"]
    told = subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.PIPE, timeout=240, text=True).stdout
    cases = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    assert len(cases) == 12
    for case in cases:
        expected = reduce_buffer_elements(
            case["stage"], bucket_size=1e6, trainable=16_640,
            is_contiguous=case["contiguous"], overlaps=case["overlap"],
        )  # fmt: skip
        # gradients that are not contiguous are put together in tensors of their own, no bucket
        assert case["elements"] == (expected if case["contiguous"] else 0), case
