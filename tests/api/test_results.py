"""What a study's rows say as data."""

import pytest

from dsopt.api.results import _devices


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ('{"a": ["gpu:10/GPU-1", "gpu:2/GPU-2"], "b": ["gpu:0/GPU-3"]}', "a:2,10@b:0"),
        (None, None),
        ('{"a": ["x"]}', None),
        ('{"a": 3}', None),
        ("[]", None),
        ("{", None),
    ],
)
def test_devices_are_those_of_leases_or_unknown(stored: str | None, shown: str | None) -> None:
    """Somebody may have written something else into the database."""
    assert _devices(stored) == shown
