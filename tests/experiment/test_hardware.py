"""Whose fault it is when a GPU fails, or a rank is gone."""

import pytest

from dsopt.experiment.hardware import not_its_fault
from dsopt.experiment.outcome import Failed
from dsopt.experiment.seen import Seen
from dsopt.launch.devices import DevicePool
from dsopt.protocol.events import Error
from tests.runs import launch

ON_GPUS = launch(devices=DevicePool(kind="gpu", indices=(2, 5)))
GONE = "[Rank 0] NCCL error: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting"


def seen(*told: tuple[int, str]) -> Seen:
    found = Seen()
    for rank, message in told:
        found.add(Error(rank=rank, type="RuntimeError", message=message, time=1.0))
    return found


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be asynchronously reported",
        "CUDA error: uncorrectable NVLink error detected during the execution",
        "CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error",
        "NVML error: GPU is lost",
        "nvidia-smi: GPU 0000:3b:00.0 has fallen off the bus",
    ],
)
def test_a_fault_of_a_gpu_names_it(message: str) -> None:
    outcome = not_its_fault(seen((0, GONE), (1, message)), ON_GPUS)
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.device, outcome.retryable) == ("hardware", 5, True)
    assert outcome.message.startswith("GPU 5: rank 1: ")


def test_a_rank_without_a_known_gpu_is_only_tried_again() -> None:
    outcome = not_its_fault(seen((7, "uncorrectable ECC error encountered")), ON_GPUS)
    assert outcome is not None
    assert (outcome.reason, outcome.device, outcome.retryable) == ("crash", None, True)


def test_ranks_that_only_miss_another_are_tried_again() -> None:
    outcome = not_its_fault(seen((0, GONE), (1, "gloo/transport/tcp/pair.cc:534] Connection closed by peer")), ON_GPUS)
    assert outcome is not None
    assert (outcome.reason, outcome.retryable) == ("crash", True)
    assert not_its_fault(seen((0, GONE), (1, "KeyError: 'loss'")), ON_GPUS) is None


@pytest.mark.parametrize(
    "message",
    [
        "OSError: [Errno 28] No space left on device: '/cache/tokens.bin'",
        "[Errno 5] Input/output error",
        "The server socket has failed to listen on any local network address. EADDRINUSE: address already in use",
        "[enforce fail at inline_container.cc:820] . PytorchStreamWriter failed writing file data/3: file write failed",
        "Error building extension 'cpu_adam'\nCaused by CalledProcessError: Command '['ninja', '-v']' died with "
        "<Signals.SIGKILL: 9>.",
        "Error building extension 'cpu_adam': g++: fatal error: Killed signal terminated program cc1plus\n"
        "Caused by CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.",
        "[Errno 2] No such file or directory: '/root/.cache/torch_extensions/py311_cpu/deepspeed_shm_comm/lock'",
        "429 Client Error: Too Many Requests for url: https://host/api",
        "504 Server Error: Gateway Time-out for url: https://host/api",
        "HTTP Error 503: Service Unavailable",
        "cannot load the data\nCaused by ConnectionError: HTTPSConnectionPool(host='data', port=443)",
    ],
)
def test_what_the_machine_lacked_for_a_moment_is_tried_again(message: str) -> None:
    outcome = not_its_fault(seen((1, message), (0, "KeyError: 'gone'")), ON_GPUS)
    assert outcome is not None
    assert (outcome.reason, outcome.retryable) == ("machine", True)
    assert outcome.message.startswith("rank 1: RuntimeError: ")


@pytest.mark.parametrize(
    ("type_", "message", "is_machines"),
    [
        ("TimeoutError", "[Errno 110] Connection timed out", True),
        ("OSError", "[Errno 101] Network is unreachable", True),
        ("RemoteDisconnected", "Remote end closed connection without response", True),
        (
            "SSLError",
            "HTTPSConnectionPool(host='h', port=443): Max retries exceeded (Caused by SSLError(SSLEOFError(",
            True,
        ),
        (
            "DataError",
            "cannot load\n(Caused by ReadTimeoutError('HTTPSConnectionPool(host=…): Read timed out.'))",
            True,
        ),
        ("DataError", "cannot load\n(Caused by ValueError('too few columns'))", False),
        ("OSError", "[Errno 22] Invalid argument", False),
    ],
)
def test_a_network_that_is_away_is_the_machines(type_: str, message: str, is_machines: bool) -> None:
    found = Seen()
    found.add(Error(rank=0, type=type_, message=message, time=1.0))
    outcome = not_its_fault(found, ON_GPUS)
    assert (outcome is not None and outcome.reason == "machine") == is_machines


@pytest.mark.parametrize(
    ("type_", "path", "is_machines"),
    [
        ("FileNotFoundError", "train.py", True),
        ("FileNotFoundError", "/made/up/train.py", True),
        ("FileNotFoundError", "/made/up/data.bin", False),
        ("FileNotFoundError", "/made/up/pretrain.py", False),
        ("OSError", "train.py", False),
    ],
)
def test_a_script_that_is_away_is_no_candidates_fault(type_: str, path: str, is_machines: bool) -> None:
    """It is while somebody checks out another branch, or a disk is not mounted."""
    found = Seen()
    found.add(Error(rank=0, type=type_, message=f"[Errno 2] No such file or directory: '{path}'", time=1.0))
    outcome = not_its_fault(found, ON_GPUS)
    assert (outcome is not None and outcome.reason == "machine") == is_machines


@pytest.mark.parametrize(
    "message",
    ["an illegal memory access", "401 Client Error: Unauthorized", "a hardware error flag", "Connection reset by peer"],
)
def test_what_a_script_does_wrong_is_its_own_fault(message: str) -> None:
    assert not_its_fault(seen((0, f"RuntimeError: {message}")), ON_GPUS) is None
