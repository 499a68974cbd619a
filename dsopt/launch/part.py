"""Starts a run's ranks on one node, tells how they do, and ends them: the far end of `launch/spread.py`.

`python -m dsopt.launch.part` runs on each node of a run. It speaks lines of JSON with the worker:

    {"look": port, "address": …}                          {"address": …, "port": that, or another that is free}
    {"start": {run_dir, cwd, kind, devices, …}}           {"refusal": null | why, "is_taken": whether for now}
    {"alive": true}, every few seconds                    {"file": name, "text": …}, as ranks write events and logs
    {"end": seconds of patience}                          {"exit": [number of the process, code]}, then {"gone": true}

Ranks get a run directory of this node's, so nodes need no folder in common for it. They end if the worker asks for it,
if the connection ends, if nothing is heard for `SILENCE_SECONDS`, and, through a guard, if this process is killed.
"""

import contextlib
import errno
import json
import os
import queue
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dsopt.launch.device_locks import reserved_on
from dsopt.launch.devices import free_ports, is_this_node
from dsopt.launch.guard import Guard
from dsopt.launch.leftovers import remove_shared_memory
from dsopt.launch.processes import kill_all
from dsopt.launch.program import path_with
from dsopt.launch.tidied import is_left
from dsopt.launch.undone import undo, undo_left
from dsopt.protocol.machine_folder import is_ours
from dsopt.protocol.private import append_private, make_private, write_private
from dsopt.protocol.run_dir import RUN_DIR_VARIABLE, WORKERS_RUN_DIR_VARIABLE, RunDir
from dsopt.study.own_programs import own_environment

SILENCE_SECONDS: Final = 45.0  # as long as a worker goes on that cannot reach the database
_POLL_SECONDS: Final = 0.02
_MOST_BYTES: Final = 1 << 16
_OLD_SECONDS: Final = 3600.0
_REFUSED: Final = 1


def main() -> None:
    """Serves until the run is over."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_REFUSED))
    part = _Part(_Requests())
    try:
        part.serve()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it at its end
    finally:
        part.close()


class _Requests:
    """What the worker says, as it comes; None once there will be no more."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def next(self) -> dict[str, Any] | None:
        """The next request; an empty one if there is none yet."""
        try:
            return self._lines.get(timeout=_POLL_SECONDS)
        except queue.Empty:
            return {}

    def _read(self) -> None:
        said, heard = b"", time.monotonic()
        while time.monotonic() - heard < SILENCE_SECONDS:
            if not select.select([sys.stdin], [], [], 1.0)[0]:
                continue
            block = os.read(sys.stdin.fileno(), _MOST_BYTES)
            if not block:
                break
            heard = time.monotonic()
            *lines, said = (said + block).split(b"\n")
            for line in lines:
                self._lines.put(json.loads(line))
        self._lines.put(None)
        # whoever should serve that may wait for a pipe that nobody reads
        time.sleep(SILENCE_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)  # the guard sees to the rest


def _own_folder() -> Path:
    """A node's folder for runs of this user, which no start of the machine empties: files of the user's may wait there.

    Raises:
        OSError: it cannot be made.
    """
    lasting = Path("/var/tmp")  # noqa: S108 - nobody else can write to the folder in it
    there = lasting if os.access(lasting, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    folder = there / f"dsopt-{os.getuid()}"
    make_private(folder)
    if not is_ours(folder):
        raise PermissionError(errno.EPERM, "another user has made it, or may write to it", str(folder))
    return folder


class _Part:
    """One node's part of a run."""

    def __init__(self, requests: _Requests) -> None:
        self._requests = requests
        self._guard = Guard()
        self._port = 0
        self._run_dir: RunDir | None = None
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._told: dict[Path, int] = {}

    def serve(self) -> None:
        """Answers requests, and tells what ranks write, until the end is asked for or nobody asks any more."""
        while (request := self._requests.next()) is not None:
            if "look" in request:
                self._look(request["look"], request["address"])
            elif "start" in request:
                order = request["start"]
                taken = reserved_on(order["kind"], order["devices"])
                refusal = f"a training of 'dsopt run' has {taken} there" if taken else self._start(order)
                _say(refusal=refusal, is_taken=taken is not None)
            elif "end" in request:
                self._end(request["end"])
                return
            ended = {number: code for number, p in self._running.items() if (code := p.poll()) is not None}
            self._tell_written()
            for number, code in ended.items():
                del self._running[number]
                _say(exit=[number, code])

    def close(self) -> None:
        """Ends what runs, and removes the files: the worker has them."""
        if self._run_dir is not None:
            kill_all(self._run_dir.path)
            undo(self._run_dir)
            remove_shared_memory(self._port)
            _remove(self._run_dir)
        self._guard.close()

    def _look(self, port: int, given: str | None) -> None:
        """Says where ranks can meet: at the address that the command gives, if that is this node's."""
        self._port = port if _is_free(port) else next(free_ports())
        address = given if given is not None and is_this_node(given) else _own_address()
        _say(address=address, port=self._port)

    def _start(self, order: Mapping[str, Any]) -> str | None:
        """Starts the processes; returns why it cannot."""
        cwd = Path(order["cwd"])
        if not cwd.is_dir():
            return f"there is no folder {cwd} (the study's cwd) there. Every node needs it, with the script in it"
        self._port = order["port"]
        try:
            folder = _own_folder()
        except OSError as error:
            return f"there can be no folder for runs there: {error}"
        undo_left(folder)  # of parts that died with the machine
        _remove_old(folder)
        self._run_dir = run_dir = RunDir.create(folder, str(os.getpid()))
        self._guard.watch(run_dir.path, self._port)
        for name in order["folders"]:
            make_private(run_dir.path / name)
        own = {name: _replaced(text, order["run_dir"], run_dir) for name, text in order["files"].items()}
        for name, text in own.items():
            write_private(run_dir.path / name, text)
        for number, process in enumerate(order["processes"]):
            argv = [_replaced(word, order["run_dir"], run_dir) for word in process["argv"]]
            environment = own_environment()
            for name, value in process["environment"].items():
                environment[name] = _replaced(value, order["run_dir"], run_dir)
            environment |= {RUN_DIR_VARIABLE: str(run_dir.path), WORKERS_RUN_DIR_VARIABLE: order["run_dir"]}
            environment["PATH"] = path_with(environment, Path(argv[0]))
            try:
                with append_private(run_dir.stdout) as stdout, append_private(run_dir.stderr) as stderr:
                    self._running[number] = subprocess.Popen(
                        argv,
                        cwd=cwd,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=stdout,
                        stderr=stderr,
                        start_new_session=True,
                    )
            except OSError as error:
                return f"{argv[0]} cannot be started there: {error.strerror}. Every node needs the same Python"
        return None

    def _tell_written(self) -> None:
        if self._run_dir is None:
            return
        for path in (self._run_dir.stdout, self._run_dir.stderr, *self._run_dir.all_events()):
            while block := self._new_in(path, is_of_lines=path.suffix == ".jsonl"):
                _say(file=path.name, text=block.decode("utf-8", "replace"))

    def _new_in(self, path: Path, *, is_of_lines: bool) -> bytes:
        at = self._told.get(path, 0)
        with contextlib.suppress(OSError), path.open("rb") as file:
            file.seek(at)
            block = file.read(_MOST_BYTES)
            if is_of_lines and len(block) < _MOST_BYTES:
                block = block[: block.rfind(b"\n") + 1]
            self._told[path] = at + len(block)
            return block
        return b""

    def _end(self, patience: float) -> None:
        if self._run_dir is not None:
            if patience:
                for process in self._running.values():
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGTERM)
                deadline = time.monotonic() + patience
                while any(p.poll() is None for p in self._running.values()) and time.monotonic() < deadline:
                    time.sleep(_POLL_SECONDS)
            kill_all(self._run_dir.path)
            self._tell_written()
        _say(gone=True)


def _remove_old(folder: Path) -> None:
    """Removes what former parts had to leave, and others have tidied since."""
    for run_dir in map(RunDir, folder.iterdir()):
        with contextlib.suppress(OSError):
            if time.time() - run_dir.undone.stat().st_mtime > _OLD_SECONDS:
                _remove(run_dir)


def _remove(run_dir: RunDir) -> None:
    """Removes the folder of a run, unless something is left to do: to put back, to look at, or to tidy."""
    away = (run_dir.aside, run_dir.replaced)
    if run_dir.undone.exists() and not any(folder.exists() for folder in away) and not is_left(run_dir):
        shutil.rmtree(run_dir.path, ignore_errors=True)


def _replaced(text: str, workers: str, run_dir: RunDir) -> str:
    """A text with this node's run directory in place of the worker's."""
    return text.replace(workers, str(run_dir.path))


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _own_address() -> str:
    """The address that other nodes reach this one by: its first one, as DeepSpeed's launcher takes it."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        told = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True, timeout=10)  # noqa: S607
        if told.stdout.split():
            return told.stdout.split()[0]
    return socket.gethostname()


def _say(**answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
