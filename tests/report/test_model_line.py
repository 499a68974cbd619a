"""What runs showed of a model, in one line with units that people read."""

import pytest

from dsopt.report.model import model_line
from tests.made_up import GIB, facts


@pytest.mark.parametrize(("size", "text"), [(18 * 2**20, "18.0 MiB"), (29 * GIB, "29.0 GiB")])
def test_sizes_have_units_that_fit_them(size: int, text: str) -> None:
    line = model_line(facts(activation_bytes=size, num_params=3 * 10**9, flops_per_step=238e9))
    assert line.startswith("3B parameters")
    assert f"activations {text} per sample on each GPU" in line
    assert line.endswith("238 GFLOP per sample")
