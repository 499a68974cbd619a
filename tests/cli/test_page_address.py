"""Where the pages are, said by whoever works on a study or shows it."""

import json
import os
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

import dsopt
from dsopt.api.page_address import noted_address, page_of
from dsopt.cli.main import dsopt as command
from dsopt.cli.study import study as study_command
from tests.api.dry import dry_run
from tests.conftest import make_cache


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(make_cache(tmp_path / "cache")))
    url = f"sqlite:///{tmp_path}/dsopt.db"
    dsopt.create_study(dry_run(tmp_path), storage=url).close()
    return url


def test_the_address_is_known_while_a_server_is_there_and_has_no_token(url: str) -> None:
    assert page_of("dry", url) is None
    with noted_address("http://127.0.0.1:8080/?token=secret-4711", url):
        assert page_of("dry", url) == "http://127.0.0.1:8080/study/dry"
        assert page_of("dry", url + ".other") is None
        shown = CliRunner().invoke(command, ["study", "show", "dry", "--storage", url]).output
        assert "In a browser: http://127.0.0.1:8080/study/dry" in shown
    assert page_of("dry", url) is None


def test_a_server_that_died_is_not_named(url: str, tmp_path: Path) -> None:
    with noted_address("http://127.0.0.1:8080/", url):
        [note] = (tmp_path / "cache" / "dsopt" / "pages").glob("*/*")
        note.write_text(note.read_text().replace(str(os.getpid()), "4194399"))
        assert page_of("dry", url) is None
        note.write_text("{")
        assert page_of("dry", url) is None


def test_of_two_servers_the_one_that_goes_on_is_named(url: str, tmp_path: Path) -> None:
    with noted_address("http://127.0.0.1:8080/", url):
        [folder] = (tmp_path / "cache" / "dsopt" / "pages").iterdir()
        other = {"url": "http://127.0.0.1:9090/", "pid": os.getppid()}
        (folder / f"{socket.gethostname()}-{os.getppid()}.json").write_text(json.dumps(other))
        (killed := folder / f"{socket.gethostname()}-4194399.json").write_text(json.dumps({**other, "pid": 4194399}))
    assert page_of("dry", url) == "http://127.0.0.1:9090/study/dry"
    with noted_address("http://127.0.0.1:8080/", url):
        assert not killed.exists()


def test_a_shell_completes_names_of_studies(url: str) -> None:
    shown = study_command.commands["show"]
    context = shown.make_context("show", ["d", "--storage", url])
    argument = next(parameter for parameter in shown.params if parameter.name == "name")
    assert [item.value for item in argument.shell_complete(context, "d")] == ["dry"]
    assert argument.shell_complete(context, "x") == []
