"""What holds one bundle of a placement group: an actor that starts a program in it, with pipes to here.

Ray's Python on the node may have no dsopt: this class is sent there as a value, and uses the standard library alone.
"""

import collections
import json
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_MOST_BYTES = 1 << 16
_WORDS = 20  # lines of a program's errors that are kept
_ABOUT_SECONDS = 60.0
_LAST_WORDS_SECONDS = 1.0


class Bundle:
    """An actor in a bundle. Its methods `write` and `read` have a thread each, so that each keeps its order."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._said: collections.deque[str] = collections.deque(maxlen=_WORDS)
        self._gpus: Sequence[str] = ()

    def about(self, list_gpus: Sequence[str]) -> dict[str, Any]:
        """Which node this is, and the GPUs that Ray has granted here.

        Args:
            list_gpus: a program that prints the UUIDs of this node's GPUs by index, as JSON.
        """
        import ray

        context = ray.get_runtime_context()
        self._gpus = context.get_accelerator_ids().get("GPU", [])
        uuids = _uuids(list_gpus) if self._gpus and any(Path("/dev").glob("nvidia[0-9]*")) else {}
        return {"node_id": context.get_node_id(), "gpus": self._gpus, "uuids": uuids}

    def start(self, argv: Sequence[str]) -> None:
        """Starts a program with this node's own environment."""
        self._process = subprocess.Popen(
            argv,
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
        self._listener.start()

    def write(self, data: bytes) -> None:
        """Gives the program input; nothing: there will be no more."""
        assert self._process is not None and self._process.stdin is not None
        try:
            if data:
                self._process.stdin.write(data)
                self._process.stdin.flush()
            else:
                self._process.stdin.close()
        except (OSError, ValueError):
            pass  # it has ended, which whoever reads finds

    def read(self) -> bytes:
        """What the program has put out since; nothing once there will be no more."""
        assert self._process is not None and self._process.stdout is not None
        return os.read(self._process.stdout.fileno(), _MOST_BYTES)

    def ended(self) -> str:
        """Waits for the end of the program; what it said last, and its exit code, in words."""
        assert self._process is not None and self._process.stdout is not None
        self._process.stdout.close()
        code = self._process.wait()
        self._listener.join(_LAST_WORDS_SECONDS)  # something that it has left may have its errors open
        said = next((line for line in reversed(self._said) if line.strip()), "")
        return f"{said or 'it has ended'} (exit code {code})"

    def _listen(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stderr is not None
        with process.stderr as said:
            for line in said:
                self._said.append(line.decode("utf-8", "replace").strip())

    def _environment(self) -> Mapping[str, str]:
        """That of the raylet, as whoever started Ray gave it, with the devices that Ray shows to this actor.

        Ray gives actors more, such as a number of OpenMP's threads, which would be the training's.
        """
        try:
            raylet = Path(f"/proc/{os.getppid()}/environ").read_bytes()
        except OSError:
            return os.environ
        pairs = (os.fsdecode(line).partition("=") for line in raylet.split(b"\0") if line)
        environment = {name: value for name, _, value in pairs}
        for name in (name for name in os.environ if name.endswith("_VISIBLE_DEVICES") and self._gpus):
            environment[name] = os.environ[name]
        return environment


def _uuids(list_gpus: Sequence[str]) -> dict[str, str]:
    try:
        told = subprocess.run(list_gpus, capture_output=True, check=True, timeout=_ABOUT_SECONDS)
        return dict(json.loads(told.stdout))
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}  # then they are known by their numbers alone
