"""What counts of a run's memory."""

import pytest

from dsopt.search.memory_runs import point_of
from tests.made_up import facts, observation


@pytest.mark.parametrize(("outside", "counted"), [(1, 10), (0, 15)])
def test_on_a_device_what_tensors_needed_counts_and_elsewhere_what_was_reserved(outside: int, counted: int) -> None:
    """PyTorch gives cached blocks of a device back before its memory runs out; on a CPU nothing lies outside."""
    shown = facts(peak_allocated_bytes=10, peak_memory_bytes=15, outside_bytes=outside)
    assert point_of(observation(None, 100.0, facts=shown)).peak_bytes == counted
