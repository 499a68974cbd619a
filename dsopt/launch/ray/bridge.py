"""Connects a run to a program in a bundle of its placement group: `python -m dsopt.launch.ray.bridge` in front of it.

It stands where ssh stands for a host file. `launch/ray/driver.py` at the other end of the socket speaks with Ray. The
program's output comes in frames: a letter (`o` for output, `e` for why it has ended), a length, and so many bytes.
"""

import contextlib
import json
import os
import socket
import struct
import sys
import threading
from typing import Final

FRAME: Final = struct.Struct(">cI")
_MOST_BYTES: Final = 1 << 16
_LOST: Final = 1


def main() -> int:
    """Connects until the program has ended, or nobody listens any more."""
    path, grant, bundle, *argv = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        order = {"grant": grant, "bundle": int(bundle), "argv": argv}
        connection.sendall(json.dumps(order).encode() + b"\n")
        threading.Thread(target=_pass_input, args=(connection,), daemon=True).start()
        with connection.makefile("rb") as frames:
            while head := frames.read(FRAME.size):
                kind, length = FRAME.unpack(head)
                data = frames.read(length)
                os.write(2, data + b"\n") if kind == b"e" else _put_out(data)
    return _LOST


def _put_out(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def _pass_input(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(0, _MOST_BYTES):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    sys.exit(main())
