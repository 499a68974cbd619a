"""What dsopt adds to optuna-dashboard, asked as a WSGI server asks it."""

import csv
import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import optuna
import pytest

import dsopt
from dsopt.api.storage import open_store
from dsopt.protocol.run_dir import RunDir
from dsopt.store.studies import Store
from dsopt.study.folders import results_folder
from dsopt.web import optuna_files
from dsopt.web.app import application
from dsopt.web.optuna_files import OptunaFiles, UnknownScriptError
from tests.api.dry import COMMAND, dry_run
from tests.store import ledger
from tests.web.asking import Ask, asker

SECRET = "hf_abcdefghijklmnop"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("optuna-pages")


@pytest.fixture(scope="module")
def store(folder: Path) -> Iterator[Store]:
    """A storage with a study that is finished, one that has not begun, and one of Optuna's own."""
    url = f"sqlite:///{folder}/dsopt.db"
    for name in ("done", "begun"):
        (folder / name).mkdir()
        asked = dry_run(folder / name, command=[*COMMAND, "--hub_token", SECRET])
        made = dsopt.create_study(asked, name=name, storage=url)
        if name == "done":
            made.run("cpu:1")
        made.close()
    optuna.create_study(study_name="theirs", storage=url).add_trial(
        optuna.trial.create_trial(value=1.0, user_attrs={"candidate": "z1", "run_dir": str(folder)})
    )
    opened = open_store(url)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def ask(store: Store) -> Ask:
    return asker(application(store))


def detail(ask: Ask, name: str) -> dict[str, Any]:
    """What optuna-dashboard is told about a study of that name, with its id."""
    [found] = [s for s in json.loads(ask("/api/studies")[2])["study_summaries"] if s["study_name"] == name]
    return {**json.loads(ask(f"/api/studies/{found['study_id']}")[2]), "id": found["study_id"]}


def files_of(ask: Ask, study: dict[str, Any], number: int = 0) -> dict[str, tuple[str, str]]:
    """By name, type and content of the files of a trial."""
    trial = study["trials"][number]
    found = {}
    for file in trial["artifacts"]:
        status, headers, text = ask(f"/artifacts/{study['id']}/{trial['trial_id']}/{file['artifact_id']}")
        assert status == "200 OK"
        assert headers["Content-Type"].startswith(file["mimetype"])
        found[file["filename"]] = (headers["Content-Type"], text)
    return found


def test_a_trial_has_its_configuration_step_times_and_log(ask: Ask, folder: Path) -> None:
    study = detail(ask, "done/z1")
    attributes = {a["key"]: a["value"] for a in study["trials"][0]["user_attrs"]}
    (Path(attributes["run_dir"]) / "stdout.log").write_text(f"loss 3.2\nlogged in with {SECRET}\n")
    files = files_of(ask, study)
    assert list(files) == ["ds_config.json", "step_times.csv", "step_times.svg", "log.txt"]

    config = json.loads(files["ds_config.json"][1])
    assert config["train_micro_batch_size_per_gpu"] == int(attributes["micro_batch"])
    assert config["zero_optimization"]["stage"] == 1

    rows = list(csv.DictReader(files["step_times.csv"][1].splitlines()))
    assert len(rows) == int(attributes["measured_steps"]) + int(attributes["warmup_steps"])
    measured = [float(row["step_milliseconds"]) for row in rows if row["is_warmup"] == "0"]
    assert sum(measured) / len(measured) == pytest.approx(float(attributes["step_milliseconds"]), rel=0.02)
    assert {"forward_milliseconds", "backward_milliseconds", "optimizer_milliseconds"} <= rows[0].keys()

    drawn = ElementTree.fromstring(files["step_times.svg"][1])
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}circle"))) == len(rows)

    log = files["log.txt"][1]
    assert "loss 3.2" in log
    assert SECRET not in log


def test_the_users_own_run_and_a_confirmation_have_their_configurations(ask: Ask) -> None:
    study = detail(ask, "done/reference")
    for number, trial in enumerate(study["trials"]):
        attributes = {a["key"]: a["value"] for a in trial["user_attrs"]}
        config = json.loads(files_of(ask, study, number)["ds_config.json"][1])
        assert config["train_micro_batch_size_per_gpu"] in ([2, 4], "auto", int(attributes["micro_batch"]))
        assert "reason" not in config


def test_the_log_of_a_run_that_goes_on_is_shown(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/dsopt.db", make=True)
    study, _ = store.create(ledger.spec("going", cwd=str(tmp_path)))
    run_dir = RunDir.create(results_folder(study.spec), "z0_gas1_tmbspg1")
    ledger.begin(ledger.ledger_of(store), study, ledger.new_task(), store, str(run_dir.path))
    run_dir.stdout.write_text("step 1 of 100\n")
    ask = asker(application(store))
    files = files_of(ask, detail(ask, "going/z0"))
    store.close()
    assert list(files) == ["ds_config.json", "log.txt"]
    assert "step 1 of 100" in files["log.txt"][1]


@pytest.mark.parametrize("value", [None, "", "odd-51f2-value"])
def test_a_log_is_left_out_where_a_secret_of_it_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    """The command refers to a variable, and the script prints its value; a dashboard may run without it."""
    monkeypatch.delenv("MY_TOKEN", raising=False)
    if value is not None:
        monkeypatch.setenv("MY_TOKEN", value)
    store = open_store(f"sqlite:///{tmp_path}/dsopt.db", make=True)
    command = "deepspeed --num_gpus 2 t.py --tok $MY_TOKEN --deepspeed_config c.json"
    study, _ = store.create(ledger.spec("going", cwd=str(tmp_path), command=command))
    run_dir = RunDir.create(results_folder(study.spec), "z0_gas1_tmbspg1")
    ledger.begin(ledger.ledger_of(store), study, ledger.new_task(), store, str(run_dir.path))
    run_dir.stdout.write_text("called with odd-51f2-value\n")
    log = files_of(asker(application(store)), detail(asker(application(store)), "going/z0"))["log.txt"][1]
    store.close()
    assert "odd-51f2-value" not in log
    assert ("called with ***" if value else "could be hidden: MY_TOKEN") in log


def test_a_log_that_is_not_here_says_where_it_is(ask: Ask, folder: Path) -> None:
    study = detail(ask, "done/z1")
    run_dir = Path({a["key"]: a["value"] for a in study["trials"][-1]["user_attrs"]}["run_dir"])
    aside = folder / "aside"
    shutil.move(run_dir, aside)
    try:
        log = files_of(ask, study, -1)["log.txt"][1]
    finally:
        shutil.move(aside, run_dir)
    assert log.startswith(f"The log cannot be read here. The run's folder is {run_dir} on node ")


def test_a_log_that_is_a_link_is_not_followed(ask: Ask, folder: Path) -> None:
    study = detail(ask, "done/z1")
    run_dir = Path({a["key"]: a["value"] for a in study["trials"][0]["user_attrs"]}["run_dir"])
    (folder / "private").write_text("not for readers of the dashboard")
    (run_dir / "stderr.log").unlink()
    (run_dir / "stderr.log").symlink_to(folder / "private")
    assert "not for readers" not in files_of(ask, study)["log.txt"][1]


@pytest.mark.parametrize(
    "named", ["{0}/elsewhere", "{0}/done/autotuning_results/no-run/../../../elsewhere", "/", "a\0b"]
)
def test_a_folder_elsewhere_that_the_database_names_is_not_read(folder: Path, ask: Ask, named: str) -> None:
    (folder / "elsewhere").mkdir(exist_ok=True)
    (folder / "elsewhere" / "stdout.log").write_text("not for readers of the dashboard")
    (folder / "elsewhere" / ".dsopt-run").touch()
    assert_not_read(folder, ask, named.format(folder))


def test_a_folder_that_dsopt_has_not_made_for_a_run_is_not_read(folder: Path, ask: Ask) -> None:
    inside = folder / "done" / "autotuning_results" / "no-run"
    inside.mkdir()
    (inside / "stdout.log").write_text("not for readers of the dashboard")
    assert_not_read(folder, ask, str(inside))


def assert_not_read(folder: Path, ask: Ask, named: str) -> None:
    """Somebody who can write to the database names a folder as that of a run."""
    study = detail(ask, "done/z1")
    copy = folder / "copy.db"
    with closing(sqlite3.connect(folder / "dsopt.db")) as database, closing(sqlite3.connect(copy)) as copied:
        database.backup(copied)
        with copied:
            changed = copied.execute(
                "UPDATE trial_user_attributes SET value_json = ? WHERE trial_id = ? AND key = 'run_dir'",
                (json.dumps(named), study["trials"][0]["trial_id"]),
            )
        assert changed.rowcount == 1
    store = open_store(f"sqlite:///{copy}")
    log = files_of(asker(application(store)), study)["log.txt"][1]
    store.close()
    copy.unlink()
    assert log.startswith("The log cannot be read here.")


@pytest.mark.parametrize(
    "path", ["/artifacts/{study}/{trial}/0-9", "/artifacts/{study}/999999/0-0", "/artifacts/999/1/1-0"]
)
def test_a_file_that_is_not_there_is_said(ask: Ask, path: str) -> None:
    study = detail(ask, "done/z1")
    status, _, text = ask(path.format(study=study["id"], trial=study["trials"][0]["trial_id"]))
    assert (status, text[:22]) == ("404 Not Found", "There is no such file,")


def test_studies_that_are_none_of_dsopts_stay_as_they_are(ask: Ask) -> None:
    theirs = detail(ask, "theirs")
    assert theirs["trials"][0]["artifacts"] == []
    assert theirs["plotly_graph_objects"] == []
    assert ask(f"/artifacts/{theirs['id']}/{theirs['trials'][0]['trial_id']}/1-3")[0] == "404 Not Found"


def test_each_part_has_a_chart_with_intervals_and_units(ask: Ask) -> None:
    [chart] = detail(ask, "done/z1")["plotly_graph_objects"]
    figure = json.loads(chart["graph_object"])
    assert figure["layout"]["yaxis"]["title"]["text"] == "samples/s"
    assert len(figure["data"][0]["x"]) >= 2
    assert all(half > 0 for half in figure["data"][0]["error_y"]["array"])
    [confirmed] = detail(ask, "done/reference")["plotly_graph_objects"]
    [bars] = json.loads(confirmed["graph_object"])["data"]
    assert len(bars["x"]) == 2


@pytest.mark.parametrize(
    ("part", "why"), [("z1", "Nothing was measured yet."), ("reference", "Nothing was launched a second time yet")]
)
def test_a_chart_without_data_says_why(ask: Ask, part: str, why: str) -> None:
    [chart] = detail(ask, f"begun/{part}")["plotly_graph_objects"]
    figure = json.loads(chart["graph_object"])
    assert figure["data"] == []
    assert figure["layout"]["annotations"][0]["text"].startswith(why)


def test_the_page_says_that_it_is_read_only(ask: Ask) -> None:
    _, headers, text = ask("/optuna/studies/1")
    assert "Read-only: nothing can be changed here." in text
    assert 'href="/assets/optuna.css"' in text
    assert headers["Content-Length"] == str(len(text.encode()))
    assert 'aria-label="rename study"' in ask("/assets/optuna.css")[2]


def test_below_a_path_every_address_is_below_it(store: Store) -> None:
    ask = asker(application(store, root="/dsopt/x"))
    _, _, page = ask("/optuna")
    assert 'src="/dsopt/x/static/bundle.js"' in page
    assert json.loads(ask("/api/meta")[2])["jupyterlab_extension_context"] == {"base_url": "/dsopt/x"}
    status, headers, script = ask("/static/bundle.js")
    assert status == "200 OK"
    assert 'url_prefix:"/dsopt/x/optuna"' in script
    assert ".baseURL}/api/" not in script
    assert "`/csv/" not in script
    assert ask("/static/../_app.py")[0] == "404 Not Found"
    assert ask("/static/nothing.js")[0].startswith("404")
    assert "Content-Encoding" not in headers


def test_the_script_is_sent_once(store: Store) -> None:
    ask = asker(application(store, root="/dsopt"))
    zipped = {"HTTP_ACCEPT_ENCODING": "gzip"}
    _, headers, _ = asker(_without_body(application(store, root="/dsopt")))("/static/bundle.js", **zipped)
    assert headers["Content-Encoding"] == "gzip"
    status, _, text = ask("/static/bundle.js", HTTP_IF_NONE_MATCH=headers["ETag"], **zipped)
    assert (status, text) == ("304 Not Modified", "")


def test_a_version_with_other_addresses_is_told_in_words(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownScriptError):
        OptunaFiles("/dsopt").script(b'fetch("/api/studies")')
    monkeypatch.setattr(optuna_files, "_ADDRESSES", ((b"an address that no version has", b"%s"),))
    status, _, text = asker(application(store, root="/dsopt"))("/optuna/")
    assert status == "501 Not Implemented"
    assert "cannot be shown under /dsopt. Start &#39;dsopt dashboard&#39; on another port without --root-path" in text
    ask = asker(application(store))  # at the root it works where it shows itself
    status, headers, _ = ask("/optuna/studies/1", QUERY_STRING="a=1")
    assert (status, headers["Location"]) == ("302 Found", "../../dashboard/studies/1?a=1")
    assert ask("/dashboard/studies/1")[0] == "200 OK"
    assert 'url_prefix:"/dashboard"' in ask("/static/bundle.js")[2]


def test_an_address_of_optuna_dashboard_itself_leads_to_the_same_page(ask: Ask) -> None:
    for path, there in (
        ("/dashboard", "optuna"),
        ("/dashboard/", "../optuna/"),
        ("/dashboard/studies/1", "../../optuna/studies/1"),
    ):
        status, headers, _ = ask(path)
        assert (status, headers["Location"]) == ("302 Found", there)
    assert 'url_prefix:"/optuna"' in ask("/static/bundle.js")[2]


def test_a_head_request_has_no_body(ask: Ask) -> None:
    status, headers, text = ask("/optuna", "HEAD")
    assert (status, text) == ("200 OK", "")
    assert int(headers["Content-Length"]) > 1000


def _without_body(pages: Any) -> Any:
    """The application for those who ask for headers alone: a compressed body is no text."""

    def application(environ: Any, start_response: Any) -> list[bytes]:
        list(pages(environ, start_response))
        return []

    return application
