"""How much memory the best leaves free."""

import pytest

from dsopt.report.headroom import headroom_of
from dsopt.report.rows import rows_of
from dsopt.search.history import History
from dsopt.study.space import Candidate
from tests.made_up import facts, observation, spec

GIB = 2**30
BEST = Candidate(stage=1, micro_batch=8, gas=1)


def known(**shown: int) -> History:
    device = {"device_memory_bytes": 24 * GIB, "peak_memory_bytes": 23 * GIB, **shown}
    search, confirmed = facts(**device), facts(**{**device, "peak_allocated_bytes": 1})
    return History(
        reference=[observation(None, 1.0, facts=confirmed, name=BEST.name, round=1)],
        stages={1: [observation(BEST, 1.0, facts=search)]},
    )


@pytest.mark.parametrize(
    ("allocated", "outside", "said"),
    [
        (20, 1, "It needs up to 21.00 GiB of a device's 24.00 GiB; 12 % stay free."),
        (22, 1, "WARNING: It needs up to 23.00 GiB of a device's 24.00 GiB, so only 4 % stay free. A long training"),
        (24, 1, "so only 0 % stay free"),
    ],
)
def test_cached_blocks_are_free_and_what_torch_does_not_count_is_not(allocated: int, outside: int, said: str) -> None:
    headroom = headroom_of(known(peak_allocated_bytes=allocated * GIB, outside_bytes=outside * GIB), BEST.name)
    assert headroom is not None
    assert said in headroom.text()


def test_on_the_cpu_nobody_knows() -> None:
    """The kernel's counters there are of the process, not of a device."""
    assert headroom_of(known(peak_allocated_bytes=20 * GIB), BEST.name) is None
    assert headroom_of(known(outside_bytes=1), "another") is None


def test_tables_show_the_memory_that_the_headroom_is_of() -> None:
    seen = known(peak_allocated_bytes=20 * GIB, outside_bytes=GIB)
    row = next(row for row in rows_of(spec(), seen, None) if row.name == BEST.name)
    headroom = headroom_of(seen, BEST.name)
    assert headroom is not None
    assert row.needed_bytes == headroom.needed_bytes == 21 * GIB
    untold = rows_of(spec(), known(peak_allocated_bytes=20 * GIB), None)
    assert untold[0].needed_bytes == 23 * GIB, "what was reserved, where nothing else is known"


@pytest.mark.parametrize(("retries", "said"), [(1, "ran out once in short runs"), (7, "ran out 7 times in short runs")])
def test_an_allocator_that_had_to_give_blocks_back_is_a_warning_though_much_seems_free(retries: int, said: str) -> None:
    seen = known(peak_allocated_bytes=20 * GIB, outside_bytes=GIB, alloc_retries=retries)
    headroom = headroom_of(seen, BEST.name)
    assert headroom is not None
    assert headroom.is_little
    assert headroom.text().startswith("WARNING: It needs up to 21.00 GiB")
    assert said in headroom.text()
