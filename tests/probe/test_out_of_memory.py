"""What running out of memory looks like, and what only reads like it."""

import errno
import os

import pytest

from dsopt.protocol.out_of_memory import is_of_the_host, is_out_of_memory, says_out_of_memory, shown

FAILURES = (
    "CUDA out of memory. Tried to allocate 2.00 GiB.",
    "CUDA driver error: out of memory",
    "Triton Error [CUDA]: out of memory",
    "NCCL error: unhandled cuda error, NCCL version 2.21.5. Last error: Cuda failure 'out of memory'",
    "NCCL error: unhandled cuda error. Last error: Cuda failure 2 'out of memory'",
    "NCCL error: unhandled system error. Last error: Failed to CUDA calloc 8388608 bytes",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes",
    "unable to mmap 34359738368 bytes from file </dev/shm/x>: Cannot allocate memory (12)",
)


@pytest.mark.parametrize("said", FAILURES)
def test_each_librarys_words_are_known(said: str) -> None:
    assert is_out_of_memory(RuntimeError(said))
    assert says_out_of_memory(f"RuntimeError: {said}")


@pytest.mark.parametrize(
    "said",
    [
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasSgemm(handle, opa, opb)`",
        "CUDA error: device-side assert triggered",
        "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    ],
)
def test_other_failures_are_not_taken_for_it(said: str) -> None:
    assert not is_out_of_memory(RuntimeError(said))
    assert not says_out_of_memory(f"RuntimeError: {said}")


CUDA = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.06 GiB is free."
)


@pytest.mark.parametrize(
    ("error", "is_host"),
    [
        (MemoryError(), True),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), True),  # as of a data loader's fork
        (RuntimeError(FAILURES[-2]), True),
        (RuntimeError(FAILURES[-1]), True),
        (RuntimeError("std::bad_alloc"), True),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), "/usr/local/cuda/bin/nvcc"), True),
        (RuntimeError("unable to mmap 9 bytes from file </data/gpu/x>: Cannot allocate memory (12)"), True),
        (RuntimeError("XPU out of memory: std::bad_alloc"), False),
        *((RuntimeError(said), False) for said in FAILURES[:-2]),
        (RuntimeError(CUDA), False),
        (
            type("OutOfMemoryError", (MemoryError,), {"__module__": "cupy.cuda"})("Out of memory allocating 1 bytes"),
            False,
        ),
        (type("OutOfMemoryError", (RuntimeError,), {})(f"torch.OutOfMemoryError: {CUDA}"), False),
    ],
)
def test_the_hosts_memory_is_told_from_a_devices(error: Exception, is_host: bool) -> None:
    """Of a host that others had filled, candidates were said not to fit on their GPUs."""
    outer = RuntimeError("the loader failed")
    outer.__cause__ = error
    assert is_of_the_host(shown(error)) == is_of_the_host(shown(outer)) == is_host
    assert str(error) in shown(error) and shown(outer).startswith("the loader failed (")
