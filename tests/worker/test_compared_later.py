"""A study that a later comparison contradicts says so, everywhere its factor is told."""

import time
from dataclasses import replace
from pathlib import Path

import dsopt
from dsopt.store.studies import Store
from dsopt.web.histories import Histories
from dsopt.web.overview import Overview
from dsopt.web.study_page import StudyPages
from dsopt.worker.compared_later import contradiction
from dsopt.worker.history import load_history
from dsopt.worker.results import summary_of
from tests.api.dry import dry_run


def test_a_comparison_that_finds_another_factor_is_told(tmp_path: Path, storage_url: str) -> None:
    made = dsopt.create_study(dry_run(tmp_path), storage=storage_url)
    made.run("cpu:1")
    store = Store.open(storage_url)
    study = store.get("dry")
    summary = summary_of(store, study)
    assert summary.comparison is not None and summary.comparison.interval is not None
    other = replace(summary, comparison=replace(summary.comparison, interval=(9.0, 10.0)))
    known = load_history(store, study)
    assert contradiction(store, study, other, known) is None  # nothing was compared yet

    pages, overview = (kind(store, Histories(store)) for kind in (StudyPages, Overview))
    before = pages.read("dry")
    assert len(overview.read().studies) == 1
    table = dsopt.compare("dry", devices="cpu:1", storage=storage_url)
    assert table.fastest == "dsopt"
    ratio = next(row.factor for row in table.rows if row.name == "dsopt")
    assert ratio is not None
    told = contradiction(store, study, other, known)
    assert told is not None and told.startswith(
        f"WARNING: A later comparison found another factor: {ratio.factor:.2f} times (95 % interval "
    )
    assert told.endswith("believe that one. See: dsopt study show dry-compare")
    assert contradiction(store, study, summary, known) is None  # it finds the same
    resumed = replace(study, finished_at=time.time() + 1)
    assert contradiction(store, resumed, other, known) is None  # the comparison is the earlier of the two
    assert pages.read("dry") is not before  # though nothing of the study itself has changed
    [comparison, _] = overview.read().studies
    assert comparison.good == f"a comparison; dsopt is the fastest, {ratio.factor:.2f} times yours"
    store.close()
    made.close()


def test_a_comparison_of_an_earlier_study_of_the_same_name_says_nothing(tmp_path: Path, storage_url: str) -> None:
    dsopt.create_study(dry_run(tmp_path), storage=storage_url).run("cpu:1")
    dsopt.compare("dry", devices="cpu:1", storage=storage_url)
    store = Store.open(storage_url)
    store.delete(store.get("dry"))
    changed = {**dry_run(tmp_path)["ds_config"], "zero_optimization": {"stage": [3]}}
    dsopt.create_study(dry_run(tmp_path, ds_config=changed), storage=storage_url).run("cpu:1")
    study = store.get("dry")
    summary, known = summary_of(store, study), load_history(store, study)
    assert summary.comparison is not None
    other = replace(summary, comparison=replace(summary.comparison, interval=(9.0, 10.0)))
    assert contradiction(store, study, other, known) is None
    at_once = replace(study, finished_at=0.0)  # by clocks that disagree
    assert contradiction(store, at_once, other, known) is None
    store.close()
