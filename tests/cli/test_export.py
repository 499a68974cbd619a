"""`dsopt export`: files of every run, on a whole dry run, and what is refused."""

import csv
import io
import json
import math
import os
import stat
import subprocess
import sys

import pytest
import yaml

import dsopt as api
from dsopt.api.exporting import to_parquet
from dsopt.api.run_table import RunTable
from tests.api.dry import dry_run
from tests.conftest import Dsopt


def create(dsopt: Dsopt, **keys: object) -> api.Study:
    (dsopt.cwd / "dry.yaml").write_text(yaml.safe_dump(dry_run(dsopt.cwd, **keys)))
    dsopt("study", "create", "dry.yaml")
    return api.load_study("dry", storage=dsopt.environment["DSOPT_STORAGE"])


def finished(dsopt: Dsopt) -> api.Study:
    study = create(dsopt)
    dsopt("worker", "dry", "--devices", "cpu:1")
    return study


def test_a_dry_runs_times_and_costs_are_the_clusters(dsopt: Dsopt) -> None:
    study = create(dsopt, price_per_gpu_hour=3.6)  # a thousandth a second
    dsopt("worker", "dry", "--devices", "cpu:1")
    seconds = [float(row["run_seconds"]) for row in csv.DictReader(io.StringIO(dsopt("export", "dry", "-o", "-")))]
    assert len(seconds) == len(study.runs) and min(seconds) > 10
    assert dsopt.json("study", "show", "dry")["cost"]["study"] == pytest.approx(sum(seconds) * 16 / 1000)


def test_every_run_is_a_row_of_csv_and_of_parquet(dsopt: Dsopt) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    study = finished(dsopt)
    runs = study.runs
    assert dsopt("export", "dry", "-o", "runs.csv") == f"Wrote {len(runs)} runs to runs.csv.\n"
    assert stat.S_IMODE((dsopt.cwd / "runs.csv").stat().st_mode) == 0o600
    told = dsopt.json("export", "dry", "-o", "runs.parquet")
    assert told == {"study": "dry", "file": str(dsopt.cwd / "runs.parquet"), "num_runs": len(runs)}
    assert sorted(path.name for path in dsopt.cwd.glob("*runs*")) == ["runs.csv", "runs.parquet"]
    assert not list(dsopt.cwd.glob(".*.part"))

    with (dsopt.cwd / "runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    table = parquet.read_table(dsopt.cwd / "runs.parquet")
    frame = study.trials_dataframe()
    assert list(rows[0]) == table.column_names == ["id", *frame.columns]
    for run, text, typed in zip(runs, rows, table.to_pylist(), strict=True):
        assert text["id"] == typed["id"] == run.id
        assert float(text["metric"]) == typed["metric"] == run.metric
        assert text["metric_unit"] == typed["metric_unit"] == "samples/s"
        assert text["started_at"] == typed["started_at"].isoformat(timespec="microseconds")
        assert math.isclose(typed["started_at"].timestamp(), run.started_at, abs_tol=1e-5)
        assert text["taken_over"] == "" and typed["taken_over"] is None
    [best] = [row for row in rows if row["candidate"] == "z1_gas1_tmbspg4" and row["round"] == "0"]
    assert (best["zero_stage"], best["params_train_micro_batch_size_per_gpu"]) == ("1", "4")
    assert next(row for row in rows if row["candidate"] == "baseline")["zero_stage"] == ""


def test_a_dash_prints_csv_and_nothing_else(dsopt: Dsopt) -> None:
    finished(dsopt)
    done = subprocess.run([sys.executable, "-m", "dsopt", "export", "dry", "-o", "-"], cwd=dsopt.cwd,
                          env=dsopt.environment, capture_output=True, text=True, check=True)  # fmt: skip
    dsopt("export", "dry", "-o", "runs.csv")
    assert done.stdout == (dsopt.cwd / "runs.csv").read_text() and done.stderr == ""
    assert len(list(csv.reader(io.StringIO(done.stdout)))) > 3


def test_csv_needs_neither_pandas_nor_pyarrow(dsopt: Dsopt) -> None:
    create(dsopt)
    program = (
        "import sys; sys.modules['pandas'] = sys.modules['pyarrow'] = None; "
        "sys.argv = ['dsopt', 'export', 'dry', '-o', sys.argv[1]]; from dsopt.cli.main import main; main()"
    )

    def export(file: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", program, file], cwd=dsopt.cwd, env=dsopt.environment,
                              capture_output=True, text=True, check=False)  # fmt: skip

    assert export("none.csv").stdout == "Wrote 0 runs to none.csv.\n"
    assert (dsopt.cwd / "none.csv").read_text().startswith("id,stage,trial,candidate,round,state,reason,started_at,")
    refused = export("runs.parquet")
    assert refused.returncode == 1 and "pip install 'dsopt[parquet]'" in refused.stderr
    assert not (dsopt.cwd / "runs.parquet").exists()


def test_force_replaces_a_file_and_keeps_who_may_read_it(dsopt: Dsopt) -> None:
    create(dsopt)
    target, link = dsopt.cwd / "shared.csv", dsopt.cwd / "link.csv"
    target.write_text("mine")
    target.chmod(0o644)
    link.symlink_to(target)
    assert "exists. Name another file, or replace it with --force" in dsopt("export", "dry", "-o", "link.csv", code=1)
    assert target.read_text() == "mine"
    dsopt("export", "dry", "-o", "link.csv", "--force")
    assert link.is_symlink() and target.read_text().startswith("id,stage,")
    assert stat.S_IMODE(target.stat().st_mode) == 0o644


def test_a_study_that_is_not_trusted_is_exported_with_a_warning(dsopt: Dsopt) -> None:
    create(dsopt)
    (dsopt.cwd / "keys").mkdir()
    dsopt.environment["DSOPT_KEYS"] = str(dsopt.cwd / "keys")
    dsopt("key", "create")
    told = dsopt("export", "dry", "-o", "runs.csv")
    assert "warning: " in told and "is not signed" in told and "Wrote 0 runs" in told


WRONG = [
    (["nothing", "-o", "runs.csv"], 1, "no study 'nothing'"),
    (["dry"], 2, "Name a file or a tracker: -o FILE"),
    (["dry", "-o", "runs.xlsx"], 1, "runs.xlsx: its name does not tell the format. Expected a name that ends in .csv"),
    (["dry", "-o", "runs"], 1, "runs: its name does not tell the format"),
    (["dry", "-o", "runs.csv", "--format", "xlsx"], 2, "'xlsx' is not one of 'csv', 'parquet'"),
    (["dry", "-o", "folder", "--format", "csv"], 1, "folder: is a folder. Name a file in it, such as folder/runs.csv"),
    (["dry", "-o", "away/runs.csv"], 1, "away/runs.csv: cannot be written: No such file or directory"),
    (["dry", "-o", "dry.yaml/runs.csv"], 1, "cannot be written: Not a directory"),
    (["dry", "-o", "pipe.csv", "--force"], 1, "pipe.csv: is a pipe or a device. Name a file"),
    (["dry", "-o", "dangling.csv"], 1, "dangling.csv: exists"),
    (["dry", "-o", "-", "--format", "parquet"], 2, "For parquet, name a file: -o runs.parquet"),
    (["dry", "-o", "-", "--json"], 2, "Give one of them"),
    (["dry", "-o", "dry.yaml", "--format", "csv"], 1, "dry.yaml: exists"),
]


def test_what_is_refused_leaves_everything_as_it_was(dsopt: Dsopt) -> None:
    create(dsopt)
    (dsopt.cwd / "folder").mkdir()
    os.mkfifo(dsopt.cwd / "pipe.csv")
    (dsopt.cwd / "dangling.csv").symlink_to("nowhere.csv")
    before = {path: path.lstat().st_mtime_ns for path in dsopt.cwd.rglob("*") if "storage" not in str(path)}
    for args, code, said in WRONG:
        assert said in dsopt("export", *args, code=code), args
    assert {p: p.lstat().st_mtime_ns for p in dsopt.cwd.rglob("*") if "storage" not in str(p)} == before


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([None, None], [None, None]),
        ([True, False, None], [True, False, None]),
        ([50_000_000, 5e8], [50_000_000.0, 5e8]),
        ([50_000_000, "auto"], ["50000000", "auto"]),
        ([True, 1], ["True", "1"]),
    ],
)
def test_a_column_of_parquet_has_one_type(values: list[object], expected: list[object]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = RunTable(columns=["params_x"], rows=[{"params_x": value} for value in values])
    found = parquet.read_table(io.BytesIO(to_parquet(table))).column("params_x").to_pylist()
    assert [(type(value), value) for value in found] == [(type(value), value) for value in expected]
    assert json.dumps(found) == json.dumps(expected)
