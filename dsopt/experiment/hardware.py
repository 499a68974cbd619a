"""Faults of a GPU or its machine, and peers that are gone without a word, as ranks tell: no candidate is at fault."""

import re
from typing import Final

from dsopt.experiment.outcome import Failed, FailedReason
from dsopt.experiment.reason import in_one_line, raised_by
from dsopt.experiment.seen import Seen
from dsopt.launch.launch import Launch
from dsopt.protocol.events import NODE_LOST, NODE_TAKEN, Error

# `cudaGetErrorString` of errors 214, 220, 721, 802 (driver_types.h); what NVML and the driver say of a lost GPU
_OF_DEVICE: Final = re.compile(
    r"uncorrectable (ecc|nvlink) error|fallen off the bus|gpu is lost|gpu requires reset|nvlink or a hardware error"
    r"|system not yet initialized",
    re.IGNORECASE,
)

# `ncclGetErrorString`, and gloo's transport
_OF_PEER: Final = re.compile(
    r"nccl(remote|system)error|nccl.*(remote process|unhandled system error)|gloo.*connection (closed|reset) by peer",
    re.IGNORECASE | re.DOTALL,
)

# a disk that is full or broken, wherever it is; a port that somebody has; a helper such as a compiler that was killed,
# or whose lock somebody removed
_OF_MACHINE: Final = re.compile(
    r"no space left on device|disk quota exceeded|\[errno 5\]|stale file handle|address already in use"
    r"|PytorchStreamWriter failed|died with <signals\.|killed signal terminated program|exit status (137|-9)\b"
    r"|no such file or directory: '[^']*torch_extensions[^']*/lock'"
    # the network, of a script that reads its data from there: errno(3), urllib3, huggingface_hub
    r"|\[errno (32|10[0-4]|11[0-3])\]|max retries exceeded|couldn't connect to 'https?:"
    r"|caused by \w*(connect|timeout|ssl|proxy|protocolerror|resolution|responseerror|incompleteread)\w*[(:]"
    r"|\bconnection (aborted|broken)\b"
    r"|\b(429 client|5\d\d server) error|http error (429|5\d\d)\b",
    re.IGNORECASE,
)
# exceptions of the network, of Python and of what scripts fetch their data with
_NETWORK: Final = (
    *("ConnectionError", "ConnectionResetError", "ConnectionRefusedError", "ConnectionAbortedError", "BrokenPipeError"),
    *("TimeoutError", "ConnectTimeout", "ReadTimeout", "ReadTimeoutError", "ConnectTimeoutError", "PoolTimeout"),
    *("URLError", "gaierror", "RemoteDisconnected", "IncompleteRead", "BadStatusLine", "SSLError", "SSLEOFError"),
    *("MaxRetryError", "NewConnectionError", "ChunkedEncodingError", "ProxyError", "ConnectError"),
    *("RemoteProtocolError", "ClientConnectorError", "ServerDisconnectedError", "ClientOSError", "ClientPayloadError"),
    *("ServerTimeoutError", "EndpointConnectionError", "ConnectionClosedError", "LocalEntryNotFoundError"),
)


def not_its_fault(seen: Seen, launch: Launch) -> Failed | None:
    """The outcome of a run that a GPU, its machine, or a rank that is gone has ended, if one has: it is tried again."""
    told = [problem for problem in seen.problems if isinstance(problem, Error)]
    log = f"Log: {launch.run_dir.stderr}"
    lost = next((error for error in told if error.type in (NODE_LOST, NODE_TAKEN)), None)
    if lost is not None and launch.placement is not None:
        node = launch.placement.node_of(lost.rank)
        reason: FailedReason = "hardware" if lost.type == NODE_LOST else "taken"
        return Failed(reason=reason, message=f"{in_one_line(lost.message)} {log}", retryable=True, node=node)
    faulty = next((error for error in told if _OF_DEVICE.search(error.message)), None)
    if faulty is not None:
        device, said = _device_of(faulty.rank, launch), f"rank {faulty.rank}: {in_one_line(faulty.message)}"
        if device is None:
            return Failed(reason="crash", message=f"{said} {log}", retryable=True)
        return Failed(reason="hardware", message=f"GPU {device}: {said} {log}", retryable=True, device=device)
    if told and all(_OF_PEER.search(error.message) for error in told):
        message = f"{raised_by(told[0])} Another rank had ended, or cannot be reached, and none said why. {log}"
        return Failed(reason="crash", message=message, retryable=True)
    first = min(told, key=lambda error: error.time, default=None)
    if first is None:
        return None
    if _misses_script(first, launch) or first.type in _NETWORK or _OF_MACHINE.search(first.message):
        return Failed(reason="machine", message=f"{raised_by(first)} {log}", retryable=True)
    return None


def _misses_script(error: Error, launch: Launch) -> bool:
    """Whether the script itself was not there, as while a branch is checked out, or a disk is away."""
    path = error.message.rpartition(": ")[2].strip("'\" ")
    return error.type == "FileNotFoundError" and f"/{path}".endswith(f"/{launch.command.script.lstrip('/')}")


def _device_of(rank: int, launch: Launch) -> int | None:
    """The GPU that a rank has, if all ranks are on this node."""
    indices = launch.devices.indices
    if launch.devices.kind != "gpu" or not launch.is_local or rank >= len(indices):
        return None
    return indices[rank]
