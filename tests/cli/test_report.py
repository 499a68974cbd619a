"""`dsopt report`: what it writes, and what it leaves as it is."""

import stat

import pytest
import yaml

from tests.api.dry import dry_run
from tests.conftest import Dsopt

NAME = "dry-report.html"


@pytest.fixture
def study(dsopt: Dsopt) -> Dsopt:
    (dsopt.cwd / "dry.yaml").write_text(yaml.safe_dump(dry_run(dsopt.cwd)))
    dsopt("study", "create", "dry.yaml")
    return dsopt


def test_an_earlier_report_is_replaced_and_its_owner_alone_can_read_it(study: Dsopt) -> None:
    assert study("report", "dry") == study("report", "dry") == f"Wrote {NAME}.\n"
    file = study.cwd / NAME
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)
    study("report", "dry")
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_a_file_of_the_users_stays(study: Dsopt) -> None:
    (study.cwd / NAME).write_text("mine")
    assert f"{NAME}: exists." in study("report", "dry", code=1)
    assert (study.cwd / NAME).read_text() == "mine"
    study("report", "dry", "--force")
    assert "dsopt report" in (study.cwd / NAME).read_text()
    assert f"{NAME}: exists." in study("report", "dry", "--json", "-o", NAME, code=1)


def test_a_link_is_not_followed_without_being_asked_to(study: Dsopt) -> None:
    study("report", "dry", "-o", "other.html")
    earlier = (study.cwd / "other.html").read_bytes()
    (study.cwd / NAME).symlink_to("other.html")
    assert "exists." in study("report", "dry", code=1)
    assert (study.cwd / "other.html").read_bytes() == earlier


def test_what_cannot_be_written_leaves_what_was_there(study: Dsopt) -> None:
    study("report", "dry", "--json", "-o", "kept.json")
    earlier = (study.cwd / "kept.json").read_bytes()
    assert "kept.json: exists" in study("report", "dry", "-o", "kept.json", code=1)
    assert (study.cwd / "kept.json").read_bytes() == earlier
    assert "cannot be written" in study("report", "dry", "-o", "no/such/folder.html", code=1)


def test_a_name_tells_the_form_and_a_dash_prints(study: Dsopt) -> None:
    for name, beginning in (("r.md", "# "), ("r.json", "{"), ("r.HTML", "<!doctype html>")):
        study("report", "dry", "-o", name)
        written = (study.cwd / name).read_text()
        assert written.lower().startswith(beginning)
    assert "a report's name ends in .html, .md or .json" in study("report", "dry", "-o", "r.pdf", code=2)
    study("report", "dry", "--md", "-o", "r.txt")
    assert study("report", "dry", "--md", "-o", "-") == (study.cwd / "r.txt").read_text()
    assert study("report", "dry", "-o", "-").startswith("<!doctype html>")
    assert not (study.cwd / "-").exists()
