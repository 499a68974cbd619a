"""The worker's end of `launch/ray/driver.py`: starts it, hears it, and ends it."""

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dsopt.errors import DsoptError
from dsopt.protocol.tail import tail
from dsopt.study.own_programs import own_program
from dsopt.study.secrets import OWN_ACCESS

_KNOCK_SECONDS: Final = 10.0
_CONNECT_SECONDS: Final = 90.0
_END_SECONDS: Final = 5.0
_TICK_SECONDS: Final = 1.0
_MOST_BYTES: Final = 1 << 16
_LAST_WORDS_BYTES: Final = 4096


class Connection:
    """A driver that is connected to Ray.

    Args:
        address: `HOST:PORT` of Ray's head, or `auto`.
        take: called with what the driver tells, and every second with nothing, from a thread.

    Attributes:
        first: what the driver told first: `nodes`.
        socket: where bridges connect.
        problem: why the connection is over; None: it is not.

    Raises:
        DsoptError: there is no Ray, or it cannot be used from here.
    """

    def __init__(self, address: str, take: Callable[[dict[str, Any]], None]) -> None:
        _knock(address)
        self._take = take
        self._folder = Path(tempfile.mkdtemp(prefix="dsopt-ray-"))  # private
        self._log = self._folder / "driver.log"
        self._saying = threading.Lock()
        self._has_begun = threading.Event()
        self.first: dict[str, Any] = {}
        self.problem: str | None = None
        self.socket = str(self._folder / "socket")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                own_program("dsopt.launch.ray.driver", address, self.socket),
                env={name: value for name, value in os.environ.items() if name not in OWN_ACCESS},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, name="dsopt-ray", daemon=True)
        self._reader.start()
        self._has_begun.wait(_CONNECT_SECONDS)
        if not self.first:
            problem = self.problem or f"it has not answered for {_CONNECT_SECONDS:.0f} s"
            self.close()
            raise DsoptError(f"--ray {address}: Ray cannot be used: {problem}")

    def say(self, **request: object) -> None:
        """Asks the driver for something. Does not wait."""
        assert self._process.stdin is not None
        with self._saying, contextlib.suppress(OSError, ValueError):  # it is over, which the reader finds
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """Ends the driver, and with it what Ray has given to it."""
        with self._saying, contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        said = b""
        while True:
            if not select.select([self._process.stdout], [], [], _TICK_SECONDS)[0]:
                self._take({})
                continue
            block = os.read(self._process.stdout.fileno(), _MOST_BYTES)
            if not block:
                break
            *lines, said = (said + block).split(b"\n")
            for line in lines:
                self._hear(json.loads(line))
        self._process.wait()
        self._process.stdout.close()
        self.problem = self.problem or self._last_words()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._has_begun.set()
        self._take({})

    def _hear(self, told: dict[str, Any]) -> None:
        if "connected" in told:
            self.first = told["connected"]
            self._has_begun.set()
        elif "refused" in told:
            self.problem = told["refused"]
        else:
            self._take(told)

    def _last_words(self) -> str:
        """What the driver said last, such as why Ray aborted it."""
        lines = tail(self._log, _LAST_WORDS_BYTES).splitlines()
        said = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        return f"its driver has ended (exit code {self._process.returncode}): {said}"


def _knock(address: str) -> None:
    """Looks whether somebody answers at an address: Ray itself would look for a minute.

    Raises:
        DsoptError: nobody does, or it is of another form.
    """
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    expected = "Expected HOST:PORT of the head, as 'ray start' prints it, or auto."
    if not host or not port.isdecimal():
        raise DsoptError(f"--ray {address}: that is no address. {expected}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise DsoptError(f"--ray {address}: nobody answers there ({error}). Is Ray running? {expected}") from None
