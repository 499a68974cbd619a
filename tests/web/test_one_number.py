"""Every factor that somebody reads follows from the figures that stand beside it."""

import re
from collections.abc import Iterator
from contextlib import closing

import pytest
from click.testing import CliRunner

import dsopt
from dsopt.api.storage import open_store
from dsopt.cli.ending import show_answer
from dsopt.cli.main import dsopt as command
from dsopt.web.app import application
from tests.api.dry import dry_run
from tests.web.asking import asker

FIGURE = r"(\d+(?:\.\d+)?)"
ROUNDED = 0.005 + 0.002  # of the factor, and of the two figures


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("one")
    yield f"sqlite:///{folder}/dsopt.db"


@pytest.fixture(scope="module", params=[("throughput", [2, 4]), ("latency", [4, 2])])
def study(request: pytest.FixtureRequest, url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dsopt.Study]:
    metric, sizes = request.param
    content = dry_run(tmp_path_factory.mktemp(metric), autotuning={"metric": metric})
    content["ds_config"] |= {"train_micro_batch_size_per_gpu": sizes}
    made = dsopt.create_study(content, name=f"by-{metric}", storage=url)
    made.run("cpu:1")
    yield made
    made.close()


def factor_of(study: dsopt.Study, own: str, best: str) -> float:
    return float(best) / float(own) if study.spec.autotuning.maximize else float(own) / float(best)


def said(text: str) -> float:
    found = re.search(rf"{FIGURE} times as (?:fast as your|good as your)\s+configuration", text)
    assert found is not None, text
    return float(found[1])


def rows(text: str, cell: str) -> tuple[str, str]:
    """The confirmed figures of the user's own configuration and of the best, in a table of text."""
    own = re.search(rf"your configuration \(ZeRO.*{cell}", text)
    best = re.search(rf"★ .*{cell}", text)
    assert own is not None and best is not None, text
    return own[1], best[1]


def test_the_box(study: dsopt.Study, capsys: pytest.CaptureFixture[str]) -> None:
    show_answer(study.find_best())
    text = capsys.readouterr().out
    row = re.search(rf"(?:throughput|time of a step) +{FIGURE} \S+ +→ +{FIGURE} ", text)
    assert row is not None, text
    assert said(text) == pytest.approx(factor_of(study, row[1], row[2]), abs=ROUNDED)


def test_the_table_in_the_terminal(study: dsopt.Study, url: str) -> None:
    text = CliRunner().invoke(command, ["study", "show", study.name, "--storage", url]).output
    own, best = rows(text, rf" {FIGURE} \(\S+–\S+\)")
    assert said(text) == pytest.approx(factor_of(study, own, best), abs=ROUNDED)


def test_the_summary(study: dsopt.Study) -> None:
    text = study.summary.text()
    found = re.search(
        rf": {FIGURE} \S+, {FIGURE} times (?:the baseline|as good as the baseline in time of a step) .*", text
    )
    own = re.search(rf"your configuration has {FIGURE} ", text)
    assert found is not None and own is not None, text
    assert float(found[2]) == pytest.approx(factor_of(study, own[1], found[1]), abs=ROUNDED)


def test_the_markdown_report(study: dsopt.Study, url: str) -> None:
    text = dsopt.study_report(study.name, storage=url).markdown()
    row = re.search(rf"\| (?:throughput|time of a step) +\| +{FIGURE} \S+ \| +{FIGURE} ", text)
    assert row is not None, text
    assert said(text) == pytest.approx(factor_of(study, row[1], row[2]), abs=ROUNDED)
    own, best = rows(text, rf"\| +{FIGURE} ±\d+\.\d %.*?\| +{FIGURE} \(\S+–\S+\)".replace(FIGURE, r"\S+", 1))
    assert said(text) == pytest.approx(factor_of(study, own, best), abs=ROUNDED)


def test_the_page_and_the_report(study: dsopt.Study, url: str) -> None:
    with closing(open_store(url)) as store:
        page = asker(application(store))(f"/study/{study.name}")[2]
        factor = re.search(rf"<strong>{FIGURE}×</strong>", asker(application(store))("/")[2].partition(study.name)[2])
    assert factor is not None
    for text in (page, dsopt.study_report(study.name, storage=url).html()):
        table = text.partition("Everything that was tried")[2]
        cell = rf'<td data-of="estimate" class="right">{FIGURE}<div class="quiet">\S+–\S+, '
        found = {}
        for row in table.split("<tr")[1:]:
            value = re.search(cell, row)
            if value is not None:
                found["best" if "★" in row else "own" if "your configuration" in row else "other"] = value[1]
        assert said(text) == pytest.approx(factor_of(study, found["own"], found["best"]), abs=ROUNDED)
        assert float(factor[1]) == said(text)
