"""The pages in a real browser. `make test-browser` gets what it needs: playwright, axe, and Debian's chromium."""

import json
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import optuna
import pytest

import dsopt
from dsopt.api.storage import open_store
from dsopt.study.space import Candidate
from dsopt.web.access import Environ
from dsopt.web.server import DashboardServer
from tests.api.dry import dry_run
from tests.web.running import begin_run

CHROMIUM = shutil.which("chromium")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

# neither the page nor one of its tables is wider than its place
FITS = """[document.documentElement, ...document.querySelectorAll('.scroll')]
    .every(part => part.scrollWidth <= part.clientWidth)"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('browser')}/dsopt.db"


@pytest.fixture(scope="module")
def study(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dsopt.Study]:
    """A dry run that has not begun."""
    made = dsopt.create_study(dry_run(tmp_path_factory.mktemp("study")), storage=url)
    yield made
    made.close()


@pytest.fixture(scope="module")
def address(study: dsopt.Study, url: str) -> Iterator[str]:
    with served(url, "") as found:
        yield found


@pytest.fixture(scope="module")
def address_below(study: dsopt.Study, url: str) -> Iterator[str]:
    """Pages that a proxy shows under a path, and something else beside it."""
    with served(url, "/dsopt/x") as found:
        yield f"{found}dsopt/x/"


@contextmanager
def served(url: str, root: str) -> Iterator[str]:
    store = open_store(url)
    with DashboardServer(store, "127.0.0.1", 0, root=root) as server:
        pages = server.get_app()

        def proxy(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
            if environ["PATH_INFO"].startswith(f"{root}/"):
                return pages(environ, start_response)  # type: ignore[no-any-return]
            start_response("404 Not Found", [])
            return [b"This is another program's.\n"]

        server.set_app(proxy)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.url
        server.shutdown()
        thread.join()
    store.close()


@pytest.fixture(
    params=[("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)],
    ids=["light", "dark", "phone", "dark phone"],
)
def page(request: pytest.FixtureRequest, address: str) -> Iterator[Any]:
    """A page of the browser; errors on its console fail the test."""
    scheme, width = request.param
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        opened = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900}).new_page()
        errors: list[str] = []
        opened.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        opened.on("pageerror", lambda error: errors.append(str(error)))
        yield opened
        browser.close()
    assert errors == []


def test_a_study_appears_runs_and_finishes_while_somebody_looks(page: Any, address: str, study: dsopt.Study) -> None:
    page.goto(address)
    assert page.evaluate(FITS)
    page.get_by_role("link", name="dry").click()
    page.wait_for_selector("h1:has-text('dry')")
    if study.state != "finished":
        assert "Nothing was measured yet." in page.inner_text("main")
        study.run("cpu:1")
    page.wait_for_selector("text=times as fast as your configuration", timeout=20_000)  # by itself
    assert page.locator("svg.chart").count() == 4
    assert page.evaluate(FITS)
    page.get_by_role("link", name="z1", exact=True).click()
    page.wait_for_selector("text=dry/z1", timeout=20_000)


def test_a_run_that_begins_appears_while_somebody_looks(page: Any, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/dsopt.db"
    with dsopt.create_study(dry_run(tmp_path), storage=url) as made, served(url, "") as address:
        page.goto(address)
        page.wait_for_selector("text=No run is going on. Start a worker")
        with closing(open_store(url)) as store:
            begin_run(made, store, Candidate(stage=1, micro_batch=4, gas=1))
        page.wait_for_selector("td:has-text('ZeRO 1 · 4 × 1')", timeout=20_000)  # by itself


def test_a_report_opens_without_a_network(page: Any, study: dsopt.Study, url: str, tmp_path: Path) -> None:
    if study.state != "finished":
        study.run("cpu:1")
    path = tmp_path / "report.html"
    path.write_text(dsopt.study_report("dry", storage=url).html())
    page.context.set_offline(True)
    page.goto(path.as_uri())
    assert "times as fast as your configuration" in page.inner_text("main")
    assert page.locator("svg.chart").count() == 4
    assert page.evaluate("getComputedStyle(document.querySelector('.answer')).borderTopStyle") == "solid"


def test_nothing_on_a_page_writes(page: Any, address: str) -> None:
    page.goto(address)
    assert page.locator("form, button, input").count() == 0
    assert page.request.post(f"{address}api/studies", data="{}").status == 405


@pytest.mark.parametrize("below", [False, True], ids=["at the root", "below a path"])
def test_optuna_dashboard_shows_charts_and_files_and_changes_nothing(
    page: Any, address: str, address_below: str, below: bool, study: dsopt.Study
) -> None:
    if study.state != "finished":
        study.run("cpu:1")
    page.goto(f"{address_below if below else address}study/dry")
    page.get_by_role("link", name="z1", exact=True).click()
    page.wait_for_selector("text=throughput by micro-batch size, ZeRO stage 1", timeout=20_000)
    assert page.locator("[id='user-defined-plot:dsopt-micro-batch'] .point").count() >= 2
    assert page.is_visible("text=Read-only: nothing can be changed here.")

    page.goto(f"{page.url.partition('?')[0]}/trials?numbers=0")
    page.wait_for_selector("text=step_times.svg", timeout=20_000)
    page.wait_for_selector("text=the fullest rank needed")  # the trial's note
    drawn = page.locator("img[alt='step_times.svg']")
    assert drawn.evaluate("image => image.decode().then(() => image.naturalWidth)") == 640
    with page.expect_download() as got:
        page.locator("[download='ds_config.json']").click()
    assert json.loads(Path(got.value.path()).read_text())["zero_optimization"]["stage"] == 1
    page.locator("[aria-label='show artifact table']").click()
    page.wait_for_selector("text=step_milliseconds", timeout=20_000)
    page.keyboard.press("Escape")
    assert [shown_of(page, kind) for kind in ("EditIcon", "DeleteIcon", "StopCircleIcon")] == [0, 0, 0]
    assert page.locator("input[type=file]:visible").count() == 0

    page.get_by_role("link", name="Back to dsopt").click()
    page.get_by_role("link", name="optuna-dashboard").click()
    page.wait_for_selector("text=dry/reference", timeout=20_000)
    assert [shown_of(page, kind) for kind in ("AddBoxIcon", "DeleteIcon", "DriveFileRenameOutlineIcon")] == [0, 0, 0]
    assert page.locator("[data-testid=DeleteIcon]").count() >= 2  # they are there, and hidden


def test_a_trial_that_runs_cannot_be_ended_or_given_files(page: Any, address: str, url: str) -> None:
    theirs = optuna.create_study(study_name="theirs", storage=url, load_if_exists=True)
    trial = theirs.ask()
    page.goto(f"{address}optuna/studies/{theirs._study_id}/trials?numbers={trial.number}")
    page.wait_for_selector("text=Artifacts", timeout=20_000)
    assert page.locator("text=Fail Trial").count() == 1  # it is there, and hidden
    assert page.locator("text=Upload a New File").count() == 1
    assert page.locator("text=Fail Trial >> visible=true").count() == 0
    assert page.locator("text=Upload a New File >> visible=true").count() == 0


def shown_of(page: Any, icon: str) -> int:
    """How many buttons with this icon a reader sees."""
    found: int = page.locator(f"[data-testid={icon}]:visible").count()
    return found


def test_axe_finds_nothing_that_keeps_people_out(
    page: Any, address: str, study: dsopt.Study, url: str, tmp_path: Path
) -> None:
    if study.state != "finished":
        study.run("cpu:1")
    report = tmp_path / "report.html"
    report.write_text(dsopt.study_report("dry", storage=url).html())
    for place in (address, f"{address}study/dry", report.as_uri()):
        page.goto(place)
        page.wait_for_selector("h1")
        found = axe.Axe().run(page).response
        assert len(found["passes"]) > 5, place  # it has looked
        grave = [v for v in found["violations"] if v["impact"] in ("serious", "critical")]
        assert not grave, (place, [(v["id"], v["help"], [node["html"] for node in v["nodes"]]) for v in grave])
