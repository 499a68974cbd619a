"""The pages of a storage, asked as a WSGI server asks them."""

import io
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from sqlalchemy import event

import dsopt
from dsopt.api.backups import back_up, restore
from dsopt.api.storage import open_store
from dsopt.report.software import software_of
from dsopt.store.studies import Store
from dsopt.study.space import Candidate
from dsopt.web.app import application
from dsopt.web.metrics import metrics_text
from dsopt.web.overview import Card, Running, Shown
from dsopt.web.render import render
from dsopt.worker.history import load_history
from tests.api.dry import dry_run
from tests.web.asking import Ask, asker
from tests.web.running import begin_run


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A storage with a study that is finished, and one that has not begun."""
    folder = tmp_path_factory.mktemp("pages")
    url = f"sqlite:///{folder}/dsopt.db"
    for name in ("done", "begun"):
        (folder / name).mkdir()
        made = dsopt.create_study(dry_run(folder / name), name=name, storage=url)
        if name == "done":
            made.run("cpu:1")
        made.close()
    opened = open_store(url)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def ask(store: Store) -> Ask:
    return asker(application(store))


def test_the_overview_shows_every_study_with_its_result(ask: Ask) -> None:
    status, headers, text = ask("/")
    assert status == "200 OK"
    assert "script-src 'self'" in headers["Content-Security-Policy"]
    assert text.index('href="study/begun"') < text.index('href="study/done"')  # the newest first
    assert re.search(r"<strong>\d\.\d\d×</strong>", text)
    assert "No run is going on." in text
    assert text.count(">dry run</span>") == 2
    assert "Its global batch is 64 samples, yours 32." in text
    assert 'dsopt_study_batch_factor{study="done"} 2' in ask("/metrics")[2]
    assert len(text.encode()) < 300_000


def test_a_study_has_a_page_with_the_answer_and_its_evidence(ask: Ask) -> None:
    status, _, text = ask("/study/done")
    assert status == "200 OK"
    assert "times as fast as your configuration (95 % interval" in text
    assert "A dry run: gpt2-xl on 16 simulated A100-80GB" in text
    assert text.count('<svg class="chart"') == 4
    assert re.search(r'<a href="../optuna/studies/\d+">z1</a>', text)
    assert "your configuration (ZeRO" in text
    assert (
        '★ <span class="whole">ZeRO 1</span> · <span class="whole">4 × 1</span>' in text
    )  # names break between pieces
    assert re.findall(r'<span class="z\d">(ZeRO \d)</span>', text) == ["ZeRO 1"]
    assert re.search(r"\d runs?, .*on the cluster", text)


def test_the_overview_calls_what_runs_by_its_readable_name(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/dsopt.db"
    candidate = Candidate(stage=1, micro_batch=4, gas=1)
    with dsopt.create_study(dry_run(tmp_path), storage=url) as made, closing(open_store(url)) as store:
        begin_run(made, store, candidate)
        text = asker(application(store))("/")[2].partition("Running now")[2]
        assert '<td><span class="whole">ZeRO 1</span> · <span class="whole">4 × 1</span></td>' in text
        assert [run.label for worker in dsopt.list_workers(storage=url) for run in worker.runs] == ["ZeRO 1 · 4 × 1"]


def test_a_study_that_has_run_nothing_says_why_there_is_nothing_to_see(ask: Ask) -> None:
    _, _, text = ask("/study/begun")
    assert text.count("Nothing was measured yet.") == 2  # once for the study, once for a chart
    assert "No run is going on. Go on with: dsopt worker begun" in text
    assert "<svg" not in text


def test_a_page_of_a_study_that_goes_on_reads_only_what_is_new_and_shows_all_of_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/dsopt.db"
    since: list[int] = []
    with dsopt.create_study(dry_run(tmp_path), storage=url) as study, closing(open_store(url)) as store:
        early = asker(application(store))
        event.listen(store.engine, "before_cursor_execute", lambda *call: since.extend(versions_in(call[2], call[3])))
        early("/study/dry")
        early("/")
        study.run("cpu:1")
        late = early("/study/dry")[2], early("/")[2]
        assert since[0] == -1
        assert since[1:]
        assert min(since[1:]) > -1
        anew = asker(application(store))
        assert late == (anew("/study/dry")[2], anew("/")[2])


def versions_in(statement: str, parameters: tuple[object, ...]) -> list[int]:
    """Since which version a statement reads claims, if it does."""
    return [int(str(parameters[1]))] if "dsopt_claims.version > ?" in statement else []


def test_what_changes_is_served_alone_and_only_if_it_has_changed(ask: Ask) -> None:
    status, headers, text = ask("/study/done", QUERY_STRING="part=1")
    assert status == "200 OK"
    assert text.startswith("done – dsopt\n")
    assert "<html" not in text
    again = ask("/study/done", QUERY_STRING="part=1", HTTP_IF_NONE_MATCH=headers["ETag"])
    assert (again[0], again[2]) == ("304 Not Modified", "")


@pytest.mark.parametrize(
    "path", ["/study/nobody", "/study/", "/nothing/there", "/assets/app.py", "/study/%3Cb%3E", "/study/%00"]
)
def test_what_is_not_there_is_said(ask: Ask, path: str) -> None:
    status, _, text = ask(path)
    assert status == "404 Not Found"
    assert "All studies" in text
    assert "<b>" not in text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", ["/", "/study/done", "/api/studies"])
def test_nothing_can_be_changed(ask: Ask, path: str, method: str) -> None:
    assert ask(path, method, **{"wsgi.input": io.BytesIO(b"{}")})[0] == "405 Method Not Allowed"  # type: ignore[dict-item]


def test_optuna_dashboard_is_beside_it(ask: Ask) -> None:
    assert "<html" in ask("/optuna/")[2]
    assert ask("/optunas")[0] == ask("/dashboards")[0] == "404 Not Found"
    names = {study["study_name"] for study in json.loads(ask("/api/studies")[2])["study_summaries"]}
    assert {"done/z1", "begun/reference"} <= names


def test_prometheus_can_read_it(ask: Ask) -> None:
    status, headers, text = ask("/metrics")
    assert (status, headers["Content-Type"]) == ("200 OK", "text/plain; version=0.0.4; charset=utf-8")
    assert 'dsopt_study_state{study="done",state="finished"} 1' in text
    assert 'dsopt_study_state{study="begun",state="finished"} 0' in text
    assert re.search(r'^dsopt_study_factor\{study="done"\} \d+\.\d+$', text, re.MULTILINE)
    for line in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) .+|[a-z_]+(\{.*\})? [-+.e\d]+", line), line


@pytest.mark.parametrize(
    ("state", "silent", "said", "runs"),
    [
        ("searching", [], "No run is going on.", 0),
        ("searching", [True], "Its worker is silent.", 0),
        ("searching", [True, False], "", 1),
        ("finished", [], "", 0),
    ],
)
def test_it_is_said_of_a_study_that_nobody_works_on(state: str, silent: list[bool], said: str, runs: int) -> None:
    run = Running(study="s", link="", label="ZeRO 1 · 4 × 1", node="n", seconds=1.0, is_silent=False)
    card = Card(name="s", link="", state=state)
    running = [replace(run, is_silent=is_silent) for is_silent in silent]
    shown = Shown(storage="", studies=[card], running=running, workers=())
    assert shown.standstill(card) == said
    assert f'dsopt_study_runs_running{{study="s"}} {runs}\n' in metrics_text(shown)
    text = render("overview", page=shown)
    assert text.count("its worker is silent") == silent.count(True)
    assert not said or said in text
    assert ("Start a worker" in text) == (not silent and state != "finished")


def test_the_overview_says_why_a_study_stopped_and_what_failed_last_and_how_good_it_is_so_far() -> None:
    why = "Stopped: by somebody. Go on with: dsopt study resume s"
    stopped = Card(name="s", link="", state="stopped", stopped=why, failed=2, last_failure="it broke")
    going_on = Card(name="t", link="", state="searching", so_far=1.5, is_doubted=True)
    page = Shown(storage="", studies=[stopped, going_on], running=(), workers=())
    assert "dsopt_study_factor{" not in metrics_text(page)  # it is of what is confirmed
    text = render("overview", page=page)
    assert why in text
    assert "2 failed. it broke" in text
    assert "1.50× so far" in text and "<strong>" not in text
    assert text.count("in doubt: see its page") == 1


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [f"{tag} {name}={value}" for name, value in attrs if name in ("src", "href")]


def test_a_report_needs_nothing_but_itself(store: Store, tmp_path: Path) -> None:
    report = dsopt.study_report("done", storage=store.shown_url)
    html = report.html()
    links = _Links()
    links.feed(html)
    assert links.found == []
    assert "<script" not in html
    assert "url(" not in html
    assert html.index("times as fast as your configuration") < html.index("Everything that was tried")
    assert "How to reproduce it" in html
    assert "gpt2-xl" in html

    assert report.made_with.keys() == {"dsopt", "python"} and report.software is None  # nothing trained in a dry run
    text = report.markdown()
    assert text.startswith("# done\n")
    assert "| throughput" in text
    [change] = re.findall(r"\| train\\_micro\\_batch\\_size\\_per\\_gpu \| +(\d+) \| +(\d+) \| +\d\.\d\d× .*", text)
    assert change == ("2", "4")
    data = json.loads(json.dumps(report.to_json()))
    assert data["answer"]["headline"] in text
    assert data["standing"]["rows"][0]["is_best"]


def test_a_report_says_the_versions_of_the_runs_and_not_of_its_machine(store: Store) -> None:
    report = replace(dsopt.study_report("done", storage=store.shown_url), software="torch 1.2, DeepSpeed 3.4, CUDA 5.6")
    told = "They trained with torch 1.2, DeepSpeed 3.4, CUDA 5.6."
    assert told in report.html() and told in report.markdown()
    assert report.to_json()["software"] == report.software
    known = load_history(store, store.get("done"))
    run = replace(known.reference[0], engine=replace(known.reference[0].engine, software="torch 1.2"))
    assert software_of(replace(known, reference=[run, *known.reference])) == "torch 1.2"


def test_markdown_shows_what_a_script_said_as_it_is() -> None:
    from dsopt.study.markdown import plain_markdown
    from dsopt.web.report import _fenced

    shown = plain_markdown("<script>x</script> [a](b) `c` | *d*")
    assert shown == r"&lt;script&gt;x&lt;/script&gt; \[a\](b) \`c\` \| \*d\*"
    assert _fenced("a ``` b") == ["````", "a ``` b", "````"]


def test_pages_show_what_a_restored_backup_holds(tmp_path: Path) -> None:
    """It has the versions that the pages have seen, and other figures."""
    url, copy = f"sqlite:///{tmp_path}/dsopt.db", tmp_path / "copy.db"
    with dsopt.create_study(dry_run(tmp_path), storage=url) as study:
        study.run("cpu:1")
    back_up(copy, storage=url)
    for table, column in (("dsopt_claims", "ended"), ("trial_values", "value")):
        with closing(sqlite3.connect(copy)) as connection, connection:
            read = f"json_extract({column}, '$.value')" if column == "ended" else column
            times = f"json_set({column}, '$.value', {read} * 1000)" if column == "ended" else f"{column} * 1000"
            connection.execute(f"UPDATE {table} SET {column} = {times} WHERE {column} IS NOT NULL")
    with closing(open_store(url)) as store:
        early = asker(application(store))
        places = ("/study/dry", "/", "/api/studies/1")
        before = [early(place)[2] for place in places]
        restore(copy, replace=True, storage=url)
        after = [early(place)[2] for place in places]
    assert all(one != other for one, other in zip(before, after, strict=True))
    with closing(open_store(url)) as store:
        anew = asker(application(store))
        assert [anew(place)[2] for place in places] == after
