"""`dsopt report-issue`: what it holds, and that no secret survives in it."""

import json
import shutil

import sqlalchemy as sa

from dsopt.store import engine
from dsopt.store.tables import new_id
from dsopt.store.url import storage_url
from tests.conftest import Dsopt
from tests.studies import write_study

HUB = "hf_" + "AbCd1234" * 4
SECRETS = {
    "assigned": "assigned-51f2", "flag": "flag-51f2", "key": "key-51f2", "logged": HUB, "url": "url-51f2",
    "environment": "environment-51f2", "private key": "MIIkey51f2",
}  # fmt: skip
LAUNCHER = f"""#!/bin/sh
echo "-----BEGIN PRIVATE KEY-----" >&2
for line in $(seq 50); do echo {SECRETS["private key"]} >&2; done  # the report begins in the middle of it
echo "-----END PRIVATE KEY-----" >&2
for line in $(seq 20); do echo "  in line $line" >&2; done
echo "env: WANDB_API_KEY=$WANDB_API_KEY; cloning https://ann:{SECRETS["url"]}@host/repo"
echo "logged in as $HUB_USER with {HUB} and {SECRETS["environment"]}" >&2
echo "RuntimeError: no access with {SECRETS["flag"]}" >&2
exit 7
"""


def test_a_report_holds_what_is_needed_and_no_secret(dsopt: Dsopt) -> None:
    launcher = dsopt.cwd / "bin" / "deepspeed"
    launcher.parent.mkdir()
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    write_study(
        dsopt.cwd,
        command=f"WANDB_API_KEY={SECRETS['assigned']} {launcher} --num_gpus 2 train.py --hub_token {SECRETS['flag']} "
        "--lr 0.25 --deepspeed_config ds.json",
        ds_config={"train_micro_batch_size_per_gpu": 4, "comet": {"enabled": False, "api_key": SECRETS["key"]}},
        max_attempts=1,
    )
    dsopt.environment["MY_TOKEN"] = SECRETS["environment"]
    dsopt("study", "create", "study.yaml")
    dsopt("worker", "simulated", "--devices", "cpu:2", code=1)

    report = dsopt("report-issue", "simulated")
    for secret in SECRETS.values():
        assert secret not in report
    for part in (
        "- dsopt: ", "- deepspeed: ", "- torch: ", "- storage: sqlite\n", "--lr 0.25", "--hub_token ***",
        "WANDB_API_KEY=***", '"train_micro_batch_size_per_gpu": 4', "baseline  failed  crash", "profile  failed  crash",
        "ended with exit code 7", "RuntimeError: no access with ***", "https://***@host/repo", "### stderr.log",
    ):  # fmt: skip
        assert part in report, part
    assert json.loads(report.partition("~~~~~json\n")[2].partition("\n~~~~~")[0])["command"]
    assert dsopt("report-issue") == report
    assert "Wrote report.md" in dsopt("report-issue", "-o", "report.md")
    assert (dsopt.cwd / "report.md").read_text() == report
    assert "already exists" in dsopt("report-issue", "-o", "report.md", code=1)
    assert "no study 'other'" in dsopt("report-issue", "other", code=1)


def create_failing(dsopt: Dsopt, says: str = "", flags: str = "") -> None:
    """A study whose launcher says something, and fails."""
    launcher = dsopt.cwd / "deepspeed"
    launcher.write_text(f"#!/bin/sh\n{says}\nexit 7\n")
    launcher.chmod(0o755)
    command = f"{launcher} --num_gpus 2 train.py {flags}--deepspeed_config ds.json"
    write_study(dsopt.cwd, command=command, max_attempts=1)
    dsopt("study", "create", "study.yaml")


def test_logs_are_left_out_where_a_secret_of_them_is_not_known(dsopt: Dsopt) -> None:
    """The command refers to a variable that this shell does not have, and the script printed its value."""
    dsopt.environment["MY_TOKEN"] = "odd-51f2-value"
    create_failing(dsopt, 'echo "called with $*" >&2', "--tok $MY_TOKEN ")
    dsopt("worker", "simulated", "--devices", "cpu:2", code=1)
    known = dsopt("report-issue")
    assert "called with" in known and "odd-51f2-value" not in known
    for value in ("", None):
        dsopt.environment["MY_TOKEN"] = ""
        if value is None:
            del dsopt.environment["MY_TOKEN"]
        unknown = dsopt("report-issue")
        assert "could be hidden: MY_TOKEN" in unknown
        assert "odd-51f2-value" not in unknown


def test_a_report_is_made_where_there_is_no_study_and_no_storage(dsopt_at_first: Dsopt) -> None:
    report = dsopt_at_first("report-issue")
    assert "- optuna: " in report
    assert "no such file; there is no study yet" in report
    assert "## Study" not in report
    refused = dsopt_at_first("report-issue", "--storage", "postgresql://u:secret-51f2@127.0.0.1:1/d")
    assert "cannot be reached" in refused
    assert "51f2" not in refused


def test_logs_that_are_gone_are_said_to_be(dsopt: Dsopt) -> None:
    """Run directories may be removed, or lie on another machine; a study that has not run has none."""
    create_failing(dsopt)
    assert "The study is created." in dsopt("report-issue")
    dsopt("worker", "simulated", "--devices", "cpu:2", code=1)
    shutil.rmtree(dsopt.cwd / "autotuning_results")
    assert "cannot be read: there is no such file" in dsopt("report-issue")


def test_a_report_reads_no_file_outside_of_the_results_folder(dsopt: Dsopt) -> None:
    """Where a run's files are is said by the database, to which others may be able to write."""
    write_study(dsopt.cwd)
    dsopt("study", "create", "study.yaml")
    elsewhere = dsopt.cwd / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "stderr.log").write_text("private-51f2")
    (dsopt.cwd / "autotuning_results").mkdir()
    (dsopt.cwd / "autotuning_results" / "link").symlink_to(elsewhere)
    results = dsopt.cwd / "autotuning_results"
    for run_dir in (elsewhere, results / ".." / "elsewhere", results / "link"):
        connected = engine.connect(storage_url(dsopt.environment["DSOPT_STORAGE"]))
        with connected.begin() as connection:
            [study] = connection.execute(sa.text("SELECT id FROM dsopt_studies")).scalars()
            columns = "id, study_id, stage, trial, candidate, round, state, reason, message, run_dir, started_at"
            values = f"'{new_id()}', '{study}', 'z0', 0, 'c', 0, 'failed', 'crash', 'no', '{run_dir}', 1"
            connection.execute(sa.text(f"INSERT INTO dsopt_attempts ({columns}) VALUES ({values})"))
        connected.dispose()
        report = dsopt("report-issue", "simulated")
        assert "c  failed  crash" in report and "51f2" not in report
