"""What running out of memory looks like: as an exception, and as a line of a log."""

import errno
import re
import sys

# what torch, its CPU allocator, CUDA's libraries and NCCL say when memory is short, beside exceptions of that type
_OUT_OF_MEMORY = (
    "can't allocate memory",
    "cuda out of memory",
    "cuda error: out of memory",
    "cuda driver error: out of memory",
    "triton error [cuda]: out of memory",
    "hip out of memory",
    "cublas_status_alloc_failed",
    "failed to cuda calloc",
    "std::bad_alloc",
)
_PATTERNS = re.compile(
    r"cuda failure (?:2 )?'out of memory'"
    r"|cublas_status_not_initialized when calling .?cublascreate"  # it finds no room for its handle
    r"|cudnn_status_\w*alloc\w*_failed"
    r"|unable to mmap .*cannot allocate memory"
)
# what Python, the system and torch's CPU allocator say of memory that is the host's
_OF_THE_HOST = re.compile(
    rf"(?<![a-z])memoryerror|\[errno {errno.ENOMEM}\]|can't allocate memory|cannot allocate memory|std::bad_alloc"
)
_OF_A_DEVICE = re.compile(r"cuda|\bhip\b|\bgpu\b|\bxpu\b")
_A_PATH = re.compile(r"(?<!\S)[^\s/]*/\S*")  # whatever it is called
# logs also contain advice about memory; a real failure is called an error or failure
_FAILURE = re.compile(r"error|failure|terminate called", re.IGNORECASE)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this exception, or one of its causes, is a failed allocation, on CUDA or on the CPU."""
    return _allocation(error) is not None


def shown(error: BaseException) -> str:
    """What an exception that comes of a failed allocation says, and what the allocation said (`is_of_the_host`)."""
    found = _allocation(error)
    is_pythons = isinstance(found, MemoryError) and type(found).__module__.partition(".")[0] in ("builtins", "numpy")
    told = f"MemoryError: {found}" if is_pythons else str(found or "")
    said = str(error)
    return told if found is error or not said else said if told in said else f"{said} ({told})"


def is_of_the_host(told: str) -> bool:
    """Whether the memory that an exception's text (`shown`) names is the host's, and no device's."""
    said = _A_PATH.sub("", told.lower())
    return _OF_THE_HOST.search(said) is not None and _OF_A_DEVICE.search(said) is None


def _allocation(error: BaseException) -> BaseException | None:
    """The failed allocation among an exception and its causes."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        if isinstance(current, MemoryError) or _is_torch_oom(current):
            return current
        if isinstance(current, OSError) and current.errno == errno.ENOMEM:
            return current
        if isinstance(current, RuntimeError) and _names_memory(str(current)):
            return current
        current = current.__cause__ or current.__context__
    return None


def says_out_of_memory(line: str) -> bool:
    """Whether this line of a log says that an allocation failed."""
    is_python = line.split()[-1:] == ["MemoryError"] or "MemoryError: " in line
    return is_python or (_FAILURE.search(line) is not None and _names_memory(line))


def _names_memory(text: str) -> bool:
    lowered = text.lower()
    return any(known in lowered for known in _OUT_OF_MEMORY) or _PATTERNS.search(lowered) is not None


def _is_torch_oom(error: BaseException) -> bool:
    torch = sys.modules.get("torch")
    kind = getattr(torch, "OutOfMemoryError", None)
    return kind is not None and isinstance(error, kind)
