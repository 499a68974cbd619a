"""`dsopt dashboard`, asked over HTTP as browsers, programs and strangers ask it."""

import contextlib
import http.client
import json
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.conftest import Dsopt
from tests.studies import write_study

TOKEN = "a-token-of-the-test-0123"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Served:
    """A dashboard in another process, and what it printed."""

    address: str
    port: int
    printed: str

    def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """One request; a header's underscores are hyphens, and `Host=""` sends none."""
        connection = http.client.HTTPConnection(self.address, self.port, timeout=30)
        try:
            connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
            for name, value in headers.items():
                if value:
                    connection.putheader(name.replace("_", "-"), value)
            connection.endheaders()
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()


@contextlib.contextmanager
def serving(dsopt: Dsopt, *args: str, lines: int = 1) -> Iterator[Served]:
    """`dsopt dashboard` on a free port with an empty study, until SIGTERM."""
    write_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    process = dsopt.start("dashboard", "--port", "0", *args)
    assert process.stdout is not None
    try:
        printed = "".join(process.stdout.readline() for _ in range(lines))
        found = re.search(r"on http://(\S+):(\d+)/", printed)
        assert found is not None, printed + process.stdout.read()
        address = found[1].strip("[]") if found[1] != os.uname().nodename else "127.0.0.1"
        yield Served(address, int(found[2]), printed)
    finally:
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0, rest
    assert "Dashboard stopped." in rest


def test_on_loopback_it_shows_the_studies_to_localhost_and_changes_nothing(dsopt: Dsopt) -> None:
    with serving(dsopt) as served:
        summaries = json.loads(served.ask("/api/studies").body)["study_summaries"]
        assert {s["study_name"] for s in summaries} == {"simulated/reference", *(f"simulated/z{n}" for n in range(4))}
        assert b"<html" in served.ask("/optuna/").body
        for method, path in (("POST", "studies"), ("DELETE", "studies/1"), ("PUT", "studies/1/note")):
            assert served.ask(f"/api/{path}", method).status == 405
        for name in ("localhost", "LOCALHOST:1234", "127.0.0.1:80", "[::1]:8080", "localhost."):
            assert served.ask("/api/studies", Host=name).status == 200, name
        for name in (
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "",
            "[::1].evil",
        ):
            refused = served.ask("/api/studies", Host=name)
            assert (refused.status, b"study" in refused.body) == (403, False), name
        assert served.ask("/healthz", Host="10.1.2.3").body == b"ok\n"


def test_every_study_of_a_finished_one_has_its_page(dsopt: Dsopt) -> None:
    """Trials of the baseline and the confirmation have no parameters, and the dashboard divides by their number."""
    with serving(dsopt) as served:
        dsopt.environment["SIMULATED_SECONDS"] = "0"
        dsopt("worker", "simulated", "--devices", "cpu:2")
        for study in json.loads(served.ask("/api/studies").body)["study_summaries"]:
            page = f"/api/studies/{study['study_id']}"
            assert served.ask(f"{page}?after=0").status == 200
            importances = served.ask(f"{page}/param_importances")
            assert importances.status == 200, study
            is_reference = study["study_name"].endswith("reference")
            assert not is_reference or json.loads(importances.body) == {"param_importances": [[]]}
        assert served.ask("/api/studies/999/param_importances").status == 404


@pytest.mark.parametrize(
    "path",
    ["/static/../", "/static/..", "/static/../../etc/passwd", "/static/%2e%2e/", "/static/", "/static/a%00b",
     "/static/none.js", "/static/..%5c..%5cx"],
)  # fmt: skip
def test_what_is_no_file_is_not_found(loopback: Served, path: str) -> None:
    for headers in ({}, {"Accept_Encoding": "gzip"}):
        assert loopback.ask(path, **headers).status == 404


@pytest.fixture(scope="module")
def loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("dashboard")
    with serving(Dsopt(folder, f"sqlite:///{folder / 'dsopt.db'}")) as served:
        yield served


def test_the_dashboards_own_files_are_served_with_and_without_compression(loopback: Served) -> None:
    script = re.search(rb'src="(/static/[^"]+\.js)"', loopback.ask("/optuna/").body)
    assert script is not None
    for headers in ({}, {"Accept_Encoding": "gzip"}):
        assert loopback.ask(script[1].decode(), **headers).status == 200


def test_off_loopback_it_wants_the_token_that_it_prints(dsopt: Dsopt) -> None:
    with serving(dsopt, "--host", "0.0.0.0", lines=2) as served:
        token = re.search(r"\?token=(\S{16,})", served.printed)
        assert token is not None
        assert "can read all studies" in served.printed
        refused = served.ask("/api/studies")
        assert (refused.status, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert b"study" not in refused.body
        first = served.ask(f"/optuna/?a=b&token={token[1]}")
        assert (first.status, first.headers["Location"]) == (303, "/optuna/?a=b")
        cookie = first.headers["Set-Cookie"].partition(";")[0]
        assert "HttpOnly" in first.headers["Set-Cookie"]
        assert served.ask("/api/studies", Cookie=cookie).status == 200
        assert served.ask("/api/studies", Host="any.name", Cookie=f"other=1; {cookie}").status == 200
        assert served.ask("/api/studies", Cookie=f'theirs={{"a": [1, "b"]}}; {cookie}').status == 200
        assert served.ask("/api/studies", "POST", Cookie=cookie).status == 405
        for wrong in (cookie[:-1], cookie + "x", cookie.upper(), "nonsense", '=;="'):
            assert served.ask("/api/studies", Cookie=wrong).status == 401
        assert served.ask("/healthz").status == 200


def test_it_listens_on_ipv6(dsopt: Dsopt) -> None:
    with serving(dsopt, "--host", "::1") as served:
        assert "http://[::1]:" in served.printed
        assert served.ask("/api/studies").status == 200
        assert served.ask("/api/studies", Host="evil.example").status == 403


def test_the_first_visit_leads_to_no_other_host(dsopt: Dsopt) -> None:
    with serving(dsopt, "--token", TOKEN, lines=2) as served:
        for path in ("//evil.example/", "/%5Cevil.example/", "/%2F%2Fevil.example/"):
            assert served.ask(f"{path}?token={TOKEN}").headers["Location"] == "/evil.example/"
        split = served.ask(f"/a%0d%0aSet-Cookie:%20x=y?token={TOKEN}")
        assert "x=y" not in split.headers["Set-Cookie"]


def test_a_token_of_ones_own_is_asked_for_and_not_printed(dsopt: Dsopt) -> None:
    (dsopt.cwd / "token").write_text(f"{TOKEN}\n")
    with serving(dsopt, "--token-file", "token", lines=2) as served:
        assert TOKEN not in served.printed
        assert served.ask("/api/studies").status == 401
        assert served.ask("/api/studies", Authorization=f"Bearer {TOKEN}").status == 200
        assert served.ask("/api/studies", Authorization=f"Bearer {TOKEN}", Host="evil.example").status == 403
        assert served.ask("/api/studies", Authorization="Bearer é").status == 401


def test_the_storage_can_be_named_in_a_file(dsopt: Dsopt) -> None:
    write_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    (dsopt.cwd / "url").write_text(dsopt.environment.pop("DSOPT_STORAGE") + "\n")
    dsopt.environment["DSOPT_STORAGE_FILE"] = "url"
    assert [s["name"] for s in dsopt.json("study", "list")] == ["simulated"]
    (dsopt.cwd / "url").write_text("\n")
    assert "DSOPT_STORAGE_FILE=url: the file is empty" in dsopt("study", "list", code=1)
    (dsopt.cwd / "url").unlink()
    assert "DSOPT_STORAGE_FILE=url: cannot be read: No such file" in dsopt("study", "list", code=1)
