"""A real terminal of a chosen width: runs a command in it, answers it, and gives what it showed."""

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.cells import cell_len

from tests.fork_server import Command

_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_SECONDS = 300.0
# what is pasted or opened: a line break in it would spoil it, so the terminal wraps it
_PASTED = ("Configuration: ", "Train with: ", "In a browser: ", "  dsopt ")


@dataclass(frozen=True, slots=True)
class Shown:
    """What a terminal showed, and how the command ended."""

    raw: str
    code: int

    @property
    def text(self) -> str:
        """Without colours and movements of the cursor."""
        return _SEQUENCE.sub("", self.raw)

    @property
    def lines(self) -> list[str]:
        """Every line as it was written, also those of a live view that were replaced."""
        return [line for part in self.text.split("\n") for line in part.split("\r") if line.strip()]

    @property
    def has_colour(self) -> bool:
        """Whether anything was coloured, not only bold or dim."""
        codes = {code for found in _COLOUR.findall(self.raw) for code in found[2:-1].split(";")}
        return any(code.startswith(("3", "9")) and len(code) == 2 for code in codes)

    def too_wide(self, width: int) -> list[str]:
        """The lines that the terminal would cut within a word."""
        return [line for line in self.lines if cell_len(line.rstrip()) > width and not line.startswith(_PASTED)]


def run_in_terminal(
    words: list[str], cwd: Path, environment: Mapping[str, str], *, width: int, answers: Mapping[str, str] | None = None
) -> Shown:
    """Runs `dsopt` with these words in a terminal so wide.

    Args:
        words: after `dsopt`.
        cwd, environment: of the process; COLUMNS is left out, which would hide the terminal's own width.
        width: in characters.
        answers: what is typed when a text has appeared, once each.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    env = {**environment, "TERM": "xterm-256color"}
    for name in ("COLUMNS", "LINES"):
        env.pop(name, None)
    process = Command(words, cwd, env, (theirs, theirs, theirs))
    os.close(theirs)
    shown, left, deadline = b"", dict(answers or {}), time.monotonic() + _SECONDS
    try:
        while time.monotonic() < deadline:
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    shown += os.read(ours, 65536)
                except OSError:  # nobody holds the other end any more
                    break
            so_far = _SEQUENCE.sub("", shown.decode(errors="ignore"))
            for awaited in [text for text in left if text in so_far]:
                os.write(ours, left.pop(awaited).encode())
        text = shown.decode(errors="replace")
        assert time.monotonic() < deadline, f"no end within {_SECONDS:.0f} s; so far:\n{_SEQUENCE.sub('', text)}"
        return Shown(raw=text, code=process.wait(10.0))
    finally:
        process.kill()
        process.wait()
        os.close(ours)
