"""What a command prints to, and what it does where that is closed, or cannot show a character."""

import contextlib
import errno
import io
import os
import select
import sys
from typing import Any, Final

from typing_extensions import Buffer

_STREAMS: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def prepare_streams() -> None:
    """Opens /dev/null for what whoever started this has closed. No odd character and no closed terminal ends a command.

    A file that is opened would otherwise get the closed one's number, and programs that dsopt starts would write to it.
    """
    for number, (name, mode) in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - until the process ends
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError):
                stream.reconfigure(errors="replace")
            if stream.isatty():
                terminal: Any = _Terminal(stream.fileno(), "w", closefd=False)  # raw, as with `python -u`
                setattr(sys, name, io.TextIOWrapper(terminal, stream.encoding, "replace", line_buffering=True))


class _Terminal(io.FileIO):
    """A terminal that may be closed while a program goes on, as after `disown`: the rest goes to /dev/null.

    Libraries put streams of their own above that of Python; all of them write to this. No buffer is between: it would
    write again what a Ctrl-C comes after, and threads that print when Python ends would abort it.
    """

    def write(self, data: Buffer, /) -> int:
        left = memoryview(data).cast("B")
        total = len(left)
        while left:
            try:
                written = super().write(left)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                nothing = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nothing, self.fileno())
                os.close(nothing)
                continue
            if written is None:  # somebody has made the terminal non-blocking, and it is full
                select.select([], [self], [])
            else:
                left = left[written:]
        return total
