"""What a terminal shows of a study: while it goes on, at its end, and when somebody asks."""

import io
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

import dsopt
from dsopt.api.events import DevicesAwaited, StudyProgressed
from dsopt.cli.live import LiveView, Plain
from dsopt.cli.main import dsopt as command
from dsopt.cli.shown import screen
from dsopt.store.stored import StoredStudy
from tests.api.dry import dry_run
from tests.made_up import history, spec


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A storage with a finished dry run."""
    folder = tmp_path_factory.mktemp("shown")
    url = f"sqlite:///{folder}/dsopt.db"
    made = dsopt.create_study(dry_run(folder), storage=url)
    made.run("cpu:1")
    made.close()
    return url


def run(url: str, *words: str, code: int = 0) -> str:
    result = CliRunner().invoke(command, [*words, "--storage", url])
    assert result.exit_code == code, result.output
    return result.output


def test_a_study_is_shown_on_one_screen_best_first(url: str) -> None:
    text = run(url, "study", "show", "dry")
    lines = text.splitlines()
    assert lines[0].startswith("dry  finished")
    assert "A dry run: gpt2-xl on 16 simulated A100-80GB. No figure is measured." in text
    assert lines[0].endswith(" on the cluster")
    assert len(lines) <= 24
    assert all(len(line) <= 100 for line in lines if "│" in line or "×" in line)
    [best] = [line for line in lines if line.startswith("★")]
    assert "ZeRO 1 · 4 × 1" in best
    assert "chosen:" not in text


def test_advice_is_one_block(url: str) -> None:
    study = dsopt.load_study("dry", storage=url)
    shown, console = replace(study.standing, advice=["One.", "- two", "- three"]), Console(file=io.StringIO(), width=90)
    study.close()
    for part in screen(shown, console, every=False, why=False):
        console.print(part)
    assert "\n\nOne.\n- two\n- three\n" in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("width", "columns"),
    [(100, ["memory", "batch"]), (90, ["memory", "batch"]), (80, ["memory", "batch"]), (76, ["memory"]), (60, [])],
)
def test_a_name_is_broken_only_where_there_is_no_room(url: str, width: int, columns: list[str]) -> None:
    study, console = dsopt.load_study("dry", storage=url), Console(file=io.StringIO(), width=width)
    for part in screen(study.standing, console, every=False, why=False):
        console.print(part)
    study.close()
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    own = [" ".join(line.split()) for line in lines[lines.index("") :]]
    where = next(at for at, line in enumerate(own) if line.startswith("your configuration"))
    if width >= 100:
        assert own[where].startswith("your configuration (ZeRO 1 · 2 × 1) ")
    else:  # it breaks between its two parts, and before a column goes
        assert own[where + 1] == "(ZeRO 1 · 2 × 1)"
    [header] = [line for line in lines if line.lstrip().startswith("configuration")]
    assert [name for name in ("memory", "batch") if name in header] == columns


def test_the_own_configuration_stays_on_the_screen_of_a_study_that_goes_on(url: str) -> None:
    """A factor is of it, and the best so far has a star."""
    study = dsopt.load_study("dry", storage=url)
    best, own = study.standing.rows
    study.close()
    others = [replace(best, label=f"ZeRO 2 · {size} × 1", is_best=False) for size in range(20)]
    going_on = replace(study.standing, state="searching", rows=[best, *others, own])
    console = Console(file=io.StringIO(), width=120)
    for part in screen(going_on, console, every=False, why=False):
        console.print(part)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "your configuration (ZeRO 1 · 2 × 1)" in text
    assert "more: 10 measured (--all)" in text


def test_why_tells_what_each_run_was_for(url: str) -> None:
    text = run(url, "study", "show", "dry", "--why")
    assert "z1_gas1_tmbspg4" in text


def test_watching_ends_with_the_study(url: str) -> None:
    assert "dry  finished" in run(url, "study", "show", "dry", "--watch")
    assert "--watch shows a screen, --json prints data." in run(
        url, "study", "show", "dry", "--watch", "--json", code=2
    )


def test_the_end_is_an_answer_in_a_box(url: str) -> None:
    text = run(url, "worker", "dry")
    assert "times as fast as your configuration (95 % interval" in text
    box = [line for line in text.splitlines() if line.startswith(("╭", "│", "╰"))]
    assert {len(line) for line in box} == {100}
    assert any("micro-batch per GPU" in line and "2  →  4" in line for line in box)
    [line] = [line for line in text.splitlines() if line.startswith("Train with:")]
    assert line.endswith("ds_config_optimal.json")
    assert "dsopt study show dry --why" in text


def test_the_best_so_far_needs_no_end(url: str, tmp_path: Path) -> None:
    from dsopt.api.so_far import best_so_far

    assert run(url, "study", "best", "dry", "--so-far") == run(url, "study", "best", "dry")  # it has a confirmed one
    done = dsopt.load_study("dry", storage=url)
    found = best_so_far(done, tmp_path / "found.json")
    done.close()
    assert str(found).startswith("So far: ZeRO 1 · 4 × 1, ")
    assert str(found).endswith("(by all its runs). Its global batch is 64 samples, yours 32.")
    assert found.factor is not None and found.factor > 1
    assert found.command is not None and str(tmp_path / "found.json") in found.command
    assert found.ds_config["train_micro_batch_size_per_gpu"] == 4  # and not the user's own
    assert json.loads((tmp_path / "found.json").read_text()) == found.ds_config
    begun = dsopt.create_study({**dry_run(tmp_path), "name": "begun"}, storage=url)
    with pytest.raises(dsopt.DsoptError, match="study 'begun' has measured nothing yet"):
        best_so_far(begun)
    begun.delete()
    begun.close()


@pytest.mark.parametrize("width", [60, 80, 140])
def test_the_live_view_fits_the_terminal(width: int) -> None:
    view = LiveView("2 CPU slots")
    study = StoredStudy(id="1", spec=spec(), state="searching", note=None, created_at=0.0, finished_at=None)
    view.update(StudyProgressed(study=study, history=history()))
    view.update(DevicesAwaited(study=study, holders=[(2, "other", "gpu1"), (1, None, "gpu2")], training=1))
    shown = io.StringIO()
    Console(file=shown, width=width).print(view.render())
    told = " ".join(shown.getvalue().split())
    assert "Waiting for devices: 2 held by study 'other' on gpu1, 1 held by a deleted study on gpu2, " in told
    assert "1 held by a training that dsopt has started." in told
    assert all(len(line.rstrip()) <= width for line in shown.getvalue().splitlines())


def test_a_log_says_something_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    view = LiveView("2 CPU slots")
    with Plain(view, seconds=0.2):
        until = time.monotonic() + 30
        said = ""
        while "Waiting for a study." not in said and time.monotonic() < until:
            time.sleep(0.05)
            said += capsys.readouterr().out
    assert "Waiting for a study." in said
