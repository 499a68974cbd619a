"""Notifications on their way: a real HTTP server, real commands, and what goes wrong with both."""

import http.server
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsopt.api import notifying
from dsopt.api.notifying import NotDelivered, Notification, check_target, send
from dsopt.errors import DsoptError
from dsopt.launch.environment import passed_on
from dsopt.study.command import LaunchCommand

ABOUT = Notification(
    study="tiny", state="finished", sentence="z1: 104 samples/s, 1.34 times the baseline (1.28–1.41).", factor=1.34,
    interval=(1.28, 1.41), own_global_batch=8, best_global_batch=64, storage="sqlite:////data/dsopt.db", node="gpu1",
)  # fmt: skip


class Hook(http.server.ThreadingHTTPServer):
    """A webhook that answers what it is told to, and keeps what it gets."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.answer = 204
        self.waits = threading.Event()
        self.waits.set()
        self.got: list[tuple[str, str, str | None, dict]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/services/T0/s3cret"


class Answering(http.server.BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.command, self.path, self.headers["Content-Type"], json.loads(content)))
        self.server.waits.wait(30)
        self.send_response(self.server.answer)
        if self.server.answer == 302:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.server.got.append((self.command, self.path, None, {}))
        self.send_error(200)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook() as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        yield server
        server.waits.set()
        server.shutdown()
        serving.join()


def test_a_webhook_gets_one_json_document(hook: Hook) -> None:
    send(hook.url, ABOUT)
    [(method, path, kind, content)] = hook.got
    assert (method, path, kind) == ("POST", "/services/T0/s3cret", "application/json")
    assert content == {
        "study": "tiny", "state": "finished", "sentence": ABOUT.sentence, "factor": 1.34, "interval": [1.28, 1.41],
        "own_global_batch": 8, "best_global_batch": 64, "storage": "sqlite:////data/dsopt.db", "node": "gpu1",
    }  # fmt: skip


@pytest.mark.parametrize(("answer", "said"), [(500, "500 Internal"), (404, "404 Not Found"), (302, "302 Found")])
def test_an_answer_that_is_a_refusal_is_told_without_the_secret_of_the_url(hook: Hook, answer: int, said: str) -> None:
    hook.answer = answer
    with pytest.raises(NotDelivered, match=f"^127.0.0.1:{hook.server_port}: the answer was {said}") as error:
        send(hook.url, ABOUT)
    assert "s3cret" not in str(error.value)
    assert len(hook.got) == 1  # a redirect is not followed


def test_a_webhook_that_does_not_answer_is_not_waited_for(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifying, "_ANSWER_SECONDS", 0.5)
    hook.waits.clear()
    began = time.monotonic()
    with pytest.raises(NotDelivered, match=r"no answer within 0 s|timed out"):
        send(hook.url, ABOUT)
    assert time.monotonic() - began < 5


def test_a_webhook_that_answers_a_byte_at_a_time_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifying, "_ANSWER_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                for _ in range(20):
                    try:
                        connection.sendall(b"H")
                    except OSError:
                        return
                    time.sleep(0.2)

        dripping = threading.Thread(target=drip)
        dripping.start()
        began = time.monotonic()
        with pytest.raises(NotDelivered, match="no answer within 1 s"):
            send(f"http://127.0.0.1:{listener.getsockname()[1]}/", ABOUT)
        assert time.monotonic() - began < 3
        dripping.join()


def test_what_does_not_speak_http_or_does_not_listen_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def speak() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"SSH-2.0-OpenSSH\r\n")

        speaking = threading.Thread(target=speak)
        speaking.start()
        with pytest.raises(NotDelivered, match="BadStatusLine"):
            send(f"http://127.0.0.1:{port}/", ABOUT)
        speaking.join()
    with pytest.raises(NotDelivered, match=f"127.0.0.1:{port}: Connection refused"):
        send(f"http://127.0.0.1:{port}/", ABOUT)


def test_a_command_gets_the_document_on_its_stdin(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    send(f"cat > '{tmp_path}/told'; echo noise; sleep 30 &", ABOUT)  # does not wait for what it leaves behind
    assert json.loads((tmp_path / "told").read_text())["interval"] == [1.28, 1.41]
    assert capfd.readouterr() == ("", "")
    send("true", ABOUT)  # need not read it


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo first; echo the mail server is away >&2; exit 3", "the command exited with 3: the mail server is away"),
        ("exit 4", "the command exited with 4"),
        (r"printf '\033[31mno\n'; exit 5", "the command exited with 5: \ufffd\\[31mno"),
        ("kill -9 $$", "the command was ended by signal 9"),
        ("no-such-command-here", "the command exited with 127: .*no-such-command-here"),
    ],
)
def test_a_command_that_fails_is_told_in_one_line(command: str, said: str) -> None:
    with pytest.raises(NotDelivered, match=said) as error:
        send(command, ABOUT)
    assert "\n" not in str(error.value)


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifying, "_COMMAND_SECONDS", 1.0)
    with pytest.raises(NotDelivered, match="took more than 1 s and was ended"):
        send(f"sleep 100 & echo $! > '{tmp_path}/child'; wait", ABOUT)
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 10
    while lives(child):
        assert time.monotonic() < deadline, "its child lives on"
        time.sleep(0.05)


def lives(pid: int) -> bool:
    """Whether a process is there, and is no zombie that nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    "what",
    ["http://hook:8080/x", "HTTPS://hooks.example.org/services/T0/B0?x=1", "http://[::1]:8080/", "cat > told",
     "(cat)", "X=1 env", "if true; then cat; fi", "cat | cat", "/bin/cat"],
)  # fmt: skip
def test_what_can_be_told_is_taken(what: str) -> None:
    check_target(what, "--notify")


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("", "is empty. Expected an http:// or https:// URL, or a command"),
        (" \n", "is empty"),
        ("ftp://host/x", "dsopt does not speak 'ftp://'"),
        ("file:///etc/passwd", "dsopt does not speak 'file://'"),
        ("http://", "the URL has no host"),
        ("http:/host/x", "lacks the // of a URL"),
        ("http://host:99999/", "is not a valid URL: Port out of range"),
        ("http://[::1/", "is not a valid URL"),
        ("http://me:hunter2@host/", "contains a user or a password, which dsopt does not send. Use a command: curl"),
        ("http://host/a b", "contains a space"),
        ("http://host/ä", "not ASCII"),
        ("echo 'half", "the shell does not understand the command: .*nterminated"),
        ("notfiy-send done", "there is no command 'notfiy-send' here"),
        ("./no-such-hook.sh", "there is no command './no-such-hook.sh' here"),
        ("cat\0", "contains a NUL byte"),
    ],
)
def test_what_can_never_be_told_is_refused_before_any_work(what: str, said: str) -> None:
    with pytest.raises(DsoptError, match=f"^--notify: .*{said}") as error:
        check_target(what, "--notify")
    assert "hunter2" not in str(error.value)


def test_runs_do_not_get_the_address_of_the_webhook() -> None:
    command = LaunchCommand.parse("deepspeed train.py --deepspeed_config ds.json", "a test")
    assert passed_on({"DSOPT_NOTIFY": "http://hook/", "HOME": "/root"}, command, []) == {"HOME": "/root"}
