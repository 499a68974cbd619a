"""One node's part of a run, seen from the worker: the connection to `launch/part.py` there."""

import contextlib
import json
import re
import subprocess
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from dsopt.launch.part import SILENCE_SECONDS
from dsopt.launch.placement import Place
from dsopt.protocol.private import append_private
from dsopt.protocol.run_dir import RUN_DIR_VARIABLE, RunDir
from dsopt.protocol.tail import tail
from dsopt.study.own_programs import own_program

_LAST_LINE_BYTES: Final = 4096
_WRITTEN: Final = re.compile(r"std(out|err)\.log|events-rank\d+\.jsonl", re.ASCII)
_SURELY_SECONDS: Final = SILENCE_SECONDS + 5.0  # after which its ranks have ended by themselves
_ENDED_SECONDS: Final = 2.0  # or because an engine has ended what started them


class FarPart:
    """A connection, from the moment that it is asked for.

    Args:
        place: the node.
        run_dir: the worker's, which what ranks write there comes into.
        environment: of the program that connects.

    Attributes:
        place: the node.
        exits: exit codes, by the number of the process.
        problem: why the node's part is over before its processes are; None: it is not.
        is_taken: whether that is because a training has its devices.
        is_gone: whether nothing of the run is left there.
    """

    def __init__(self, place: Place, run_dir: RunDir, environment: Mapping[str, str]) -> None:
        self.place = place
        self.exits: dict[int, int] = {}
        self.problem: str | None = None
        self.is_taken = False
        self.is_gone = False
        self._run_dir = run_dir
        self._log = run_dir.path / f"connection-{place.node}.log"
        self._answered = threading.Condition()
        self._answer: dict[str, Any] | None = None
        self._has_begun = False
        self._said_at = time.monotonic()
        with append_private(self._log) as log:
            self._process = subprocess.Popen(
                place.reach.argv(own_program("dsopt.launch.part")),
                env={**environment, RUN_DIR_VARIABLE: str(run_dir.path)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._saying = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="dsopt-part", daemon=True)
        self._reader.start()

    def ask(self, seconds: float, **request: object) -> dict[str, Any] | None:
        """What the node answers; None, with a `problem`, if it does not within this time."""
        self.say(**request)
        with self._answered:
            self._answered.wait_for(lambda: self._answer is not None or self.problem is not None, seconds)
            answer, self._answer = self._answer, None
        if answer is None and self.problem is None:
            self.problem = f"it has not answered for {seconds:.0f} s{self._last_words()}"
        return answer

    def say(self, **request: object) -> None:
        """Tells the node something that it answers nothing to, or later."""
        assert self._process.stdin is not None
        with self._saying, contextlib.suppress(OSError, ValueError):  # it is over, which the reader finds
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            self._said_at = time.monotonic()

    @property
    def is_lost(self) -> bool:
        """Whether a node has not said at the end that nothing of the run is left there."""
        return self._has_begun and bool(self.place.reach.words) and not self.is_gone

    def end(self, patience_seconds: float) -> None:
        """Asks the node to end its processes. Does not wait."""
        self.say(end=patience_seconds)

    def wait_until_gone(self, patience_seconds: float) -> None:
        """Waits until nothing of the run is left there: it says so, or its ranks must have ended by themselves."""
        deadline = time.monotonic() + patience_seconds
        self._reader.join(max(0.0, deadline - time.monotonic()))
        self._process.kill()
        self._process.wait()
        self._reader.join()
        if self.is_lost:
            surely = _ENDED_SECONDS if self.place.reach.is_ended else _SURELY_SECONDS
            time.sleep(max(0.0, self._said_at + surely - time.monotonic()))
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()

    def started(self, order: Mapping[str, Any], seconds: float) -> bool:
        """Starts processes there. False: it cannot, and `problem` says why."""
        if self.problem is not None:
            return False  # nobody was there who could begin anything
        self._has_begun = True
        answer = self.ask(seconds, start=order)
        if answer is not None and answer["refusal"] is not None:
            self.problem, self.is_taken = answer["refusal"], answer.get("is_taken") is True
        return self.problem is None

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                self._take(json.loads(line))
        except (OSError, ValueError, KeyError, TypeError) as error:
            self.problem = f"it said something else than dsopt there would: {error}"
        code = self._process.wait()
        with self._answered:
            if not self.is_gone and self.problem is None:
                self.problem = f"the connection has ended (exit code {code}){self._last_words()}"
            self._answered.notify_all()

    def _take(self, told: Mapping[str, Any]) -> None:
        if "file" in told:
            if _WRITTEN.fullmatch(told["file"]):
                with append_private(self._run_dir.path / told["file"]) as file:
                    file.write(told["text"].encode("utf-8", "replace"))
        elif "exit" in told:
            number, code = told["exit"]
            self.exits[int(number)] = int(code)
        elif "gone" in told:
            self.is_gone = True
        else:
            with self._answered:
                self._answer = dict(told)
                self._answered.notify_all()

    def _last_words(self) -> str:
        """The last line that the program which connects has said, such as ssh's refusal."""
        lines = tail(self._log, _LAST_LINE_BYTES).split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f": {said}" if said else ""
