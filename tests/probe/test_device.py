"""What the probe asks of a device, with a library in place of `torch.cuda`. None of this is tested on CUDA here."""

import pytest

from dsopt.probe.device import AcceleratorDevice, HostDevice, check_device

GIB = 2**30


class Library:
    """A device of 80 GiB, of which torch has reserved 20 and others 2."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.share = 1.0

    def mem_get_info(self, index: int) -> tuple[int, int]:
        self.asked.append(f"mem_get_info {index}")
        return 58 * GIB, 80 * GIB

    def memory_reserved(self, index: int) -> int:
        self.asked.append(f"memory_reserved {index}")
        return 20 * GIB

    def set_per_process_memory_fraction(self, share: float, index: int) -> None:
        self.asked.append(f"set_per_process_memory_fraction {index}")
        self.share = share

    def get_device_name(self, index: int) -> str:
        return f"made up {index}"


@pytest.fixture
def library() -> Library:
    return Library()


@pytest.fixture
def device(library: Library) -> AcceleratorDevice:
    return AcceleratorDevice("cuda", library, 3)


def test_a_limit_includes_what_torch_does_not_count(device: AcceleratorDevice, library: Library) -> None:
    """A card of 24 GiB has no more than that, context and communication libraries included."""
    device.limit_memory(24 * GIB)
    assert library.share == 22 / 80
    assert {word.split()[1] for word in library.asked} == {"3"}  # never the device of another rank


@pytest.mark.parametrize(("limit", "share"), [(1 * GIB, 0.0), (500 * GIB, 1.0)])
def test_a_limit_is_a_share(device: AcceleratorDevice, library: Library, limit: int, share: float) -> None:
    device.limit_memory(limit)
    assert library.share == share


def test_where_the_device_keeps_the_peak_a_sample_asks_nothing(device: AcceleratorDevice, library: Library) -> None:
    device.memory().sample()
    assert library.asked == []


def test_a_run_trains_on_what_it_leased(device: AcceleratorDevice) -> None:
    check_device(device, "gpu")
    check_device(HostDevice(), "cpu")
    check_device(device, None)  # nobody said: the script was started by hand
    with pytest.raises(RuntimeError, match="gave this run CPU slots, but DeepSpeed would train on made up 3"):
        check_device(device, "cpu")
    with pytest.raises(RuntimeError, match="gave this run GPUs, but DeepSpeed would train on the CPU"):
        check_device(HostDevice(), "gpu")
