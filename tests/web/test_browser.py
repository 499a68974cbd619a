"""The pages in a real browser. `make test-browser` gets what it needs: playwright, and Debian's chromium."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dsopt
from dsopt.api.storage import open_store
from dsopt.web.server import DashboardServer
from tests.api.dry import dry_run

CHROMIUM = shutil.which("chromium")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


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
    store = open_store(url)
    with DashboardServer(store, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.url
        server.shutdown()
        thread.join()
    store.close()


@pytest.fixture(params=[("light", 1280), ("dark", 1280), ("light", 390)], ids=["light", "dark", "phone"])
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
    page.get_by_role("link", name="dry").click()
    page.wait_for_selector("h1:has-text('dry')")
    if study.state != "finished":
        assert "Nothing was measured yet." in page.inner_text("main")
        study.run("cpu:1")
    page.wait_for_selector("text=times as fast as your configuration", timeout=20_000)  # by itself
    assert page.locator("svg.chart").count() == 4
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.get_by_role("link", name="z1", exact=True).click()
    page.wait_for_selector("text=dry/z1", timeout=20_000)


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
