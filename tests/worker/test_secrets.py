"""Nothing that a study leaves behind, shows or tells holds a secret, on both databases."""

import json
import os
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
import yaml

from tests.conftest import SCRIPTS, Dsopt
from tests.studies import STUDY

HUB, WANDB, WITHHELD, ASKED, LITERAL = (f"planted-{name}-4711" for name in ("hub", "wandb", "withheld", "asked", "lit"))
DATABASE = "planted-database-4711"
# what the stand-in launcher says, in an event or on stderr, when it fails; and in another event, when it does not
LAUNCHER = f"""#!{sys.executable}
import json, os, runpy, sys, time
from pathlib import Path
run_dir = Path(os.environ["DSOPT_RUN_DIR"])
with open(os.environ["TELL_TO"], "a") as file:
    file.write(json.dumps({{"argv": sys.argv, "environment": dict(os.environ)}}) + "\\n")
config = json.loads((run_dir / "ds_config.json").read_text())
bucket = config["zero_optimization"]["reduce_bucket_size"]
said = f"no access with {{sys.argv}} {{os.environ['WANDB_API_KEY']}} {{os.environ['ASKED_TOKEN']}}"
if bucket == 2:
    event = {{"v": 1, "event": "error", "rank": 0, "type": "OSError", "message": said, "time": time.time()}}
    (run_dir / "events-rank0.jsonl").write_text(json.dumps(event) + "\\n")
    time.sleep(1)
    sys.exit(1)
if bucket == 3:
    sys.exit(said)
event = {{"v": 1, "event": "sources", "rank": 0, "files": {{f"{{os.environ['WANDB_API_KEY']}}.py": "1234"}}}}
(run_dir / "events-rank0.jsonl").write_text(json.dumps(event) + "\\n")
runpy.run_path({str(SCRIPTS / "deepspeed")!r}, run_name="__main__")
"""


@pytest.fixture
def study(dsopt_on: Dsopt, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Dsopt, Path]:
    """A created study whose command refers to two secrets and has one written out, and what runs told."""
    program = tmp_path / "bin" / "deepspeed"
    program.parent.mkdir()
    program.write_text(LAUNCHER)
    program.chmod(0o755)
    (tmp_path / "train.py").touch()
    zero = {"stage": 1, "reduce_bucket_size": [1, 2, 3]}  # two of these fail, and all are tried
    (tmp_path / "ds.json").write_text(json.dumps({"train_micro_batch_size_per_gpu": [4], "zero_optimization": zero}))
    command = (
        f"WANDB_API_KEY=$WANDB_API_KEY {program} --num_gpus 2 train.py --deepspeed_config ds.json --token ${{HF_TOKEN}}"
    )
    content = {
        **STUDY, "command": command, "pass_env": ["ASKED_*"], "confirmation": {"finalists": 1, "rounds": 1},
        "autotuning": {"max_train_batch_size": 16, "tuner_type": "gridsearch"}, "max_attempts": 1,
    }  # fmt: skip
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(content))
    told = tmp_path_factory.mktemp("told") / "runs.jsonl"
    dsopt_on.environment |= {"HF_TOKEN": HUB, "WANDB_API_KEY": WANDB, "TELL_TO": str(told)}
    url = sa.make_url(dsopt_on.environment["DSOPT_STORAGE"])
    if url.drivername.startswith("postgres"):  # the test's server asks for no password, and takes any
        dsopt_on.environment["DSOPT_STORAGE"] = url.set(password=DATABASE).render_as_string(hide_password=False)
    return dsopt_on, told


def everything_left(dsopt: Dsopt) -> dict[str, bytes]:
    """Every file below the working folder, and every row of a PostgreSQL database, by name."""
    found = {str(path): path.read_bytes() for path in dsopt.cwd.rglob("*") if path.is_file()}
    url = sa.make_url(dsopt.environment["DSOPT_STORAGE"])
    if url.drivername.startswith("postgres"):
        engine = sa.create_engine(url.set(drivername="postgresql+psycopg"))
        with engine.connect() as connection:
            for table in sa.inspect(engine).get_table_names():
                rows = connection.execute(sa.text(f'SELECT t::text FROM "{table}" t')).scalars()
                found[table] = "\n".join(rows).encode()
        engine.dispose()
    assert any(b"deepspeed_config" in content for name, content in found.items() if "dsopt" in name)
    return found


def test_no_secret_is_left_anywhere(study: tuple[Dsopt, Path]) -> None:
    dsopt, told = study
    printed = {"create": dsopt("study", "create", "study.yaml")}
    dsopt.environment |= {"OTHER_TOKEN": WITHHELD, "ASKED_TOKEN": ASKED}
    printed["worker"] = dsopt("worker", "simulated", "--devices", "cpu:2")
    assert printed["worker"].count("Runs do not get these variables, which look like secrets: OTHER_TOKEN") == 1
    for words in (["study", "show"], ["study", "best"]):
        printed[words[1]] = dsopt(*words, "simulated") + dsopt(*words, "simulated", "--json")
    printed["report-issue"] = dsopt("report-issue", "simulated")
    printed["export"] = dsopt("worker", "simulated", "--json")
    assert "no access with" in printed["show"]
    assert [run["state"] for run in dsopt.json("study", "show", "simulated")["runs"]].count("failed") == 2

    runs = [json.loads(line) for line in told.read_text().splitlines()]
    assert len(runs) > 2
    for run in runs:
        assert run["argv"][-1] == HUB
        environment = run["environment"]
        given = [environment[name] for name in ("WANDB_API_KEY", "HF_TOKEN", "ASKED_TOKEN")]
        assert given == [WANDB, HUB, ASKED]
        assert not {"OTHER_TOKEN", "DSOPT_STORAGE"} & environment.keys()

    left = everything_left(dsopt)
    for secret in (HUB, WANDB, WITHHELD, ASKED, DATABASE):
        for name, text in printed.items():
            assert secret not in text, name
        for name, content in left.items():
            # what a script itself says is in its own logs
            if Path(name).name not in ("stderr.log", "stdout.log", "events-rank0.jsonl") or secret == WITHHELD:
                assert secret.encode() not in content, name
    results = dsopt.cwd / "autotuning_results"
    assert '--token "${HF_TOKEN}"' in (results / "cmd_optimal.txt").read_text()
    assert 'WANDB_API_KEY="$WANDB_API_KEY"' in (results / "baseline" / "cmd.txt").read_text()
    check_private(dsopt)


def check_private(dsopt: Dsopt) -> None:
    """Only the user may read what dsopt has written, whatever the umask."""
    folders = [dsopt.cwd / name for name in ("autotuning_results", "autotuning_exps", "storage")]
    paths = [path for folder in folders if folder.exists() for path in (folder, *folder.rglob("*"))]
    assert len(paths) > 20
    modes = {str(path): path.stat().st_mode & 0o777 for path in paths if path.name != "events-rank0.jsonl"}
    assert {mode for path, mode in modes.items() if Path(path).is_dir()} == {0o700}
    assert {path: oct(mode) for path, mode in modes.items() if Path(path).is_file() and mode != 0o600} == {}


def test_a_worker_without_the_variable_says_so_before_the_first_run(study: tuple[Dsopt, Path]) -> None:
    dsopt, told = study
    dsopt("study", "create", "study.yaml")
    del dsopt.environment["HF_TOKEN"]
    output = dsopt("worker", "simulated", "--devices", "cpu:2", code=1)
    assert "study 'simulated': command: the variable 'HF_TOKEN' is not set in this worker's environment" in output
    assert not told.exists()


def test_a_secret_that_is_written_out_is_shown_nowhere(dsopt: Dsopt) -> None:
    """It is in the stored command, which workers launch, and dsopt says so; what people see and files hide it."""
    (dsopt.cwd / "train.py").touch()
    (dsopt.cwd / "ds.json").write_text(json.dumps({"train_micro_batch_size_per_gpu": 4}))
    command = f"{SCRIPTS / 'deepspeed'} --num_gpus 2 train.py --deepspeed_config ds.json --token {LITERAL}"
    content = {**STUDY, "command": command, "confirmation": {"finalists": 1, "rounds": 1}, "max_attempts": 1}
    content["autotuning"] = {"max_train_batch_size": 8, "num_tuning_micro_batch_sizes": 1}
    (dsopt.cwd / "study.yaml").write_text(yaml.safe_dump(content))
    printed = dsopt("study", "create", "study.yaml")
    assert "--token seems to hold a secret, which is now in the database" in printed
    (dsopt.cwd / "study.yaml").write_text(yaml.safe_dump({**content, "max_attempts": 2}))
    printed += dsopt("study", "create", "study.yaml", code=1)
    printed += dsopt("worker", "simulated", "--devices", "cpu:2")
    printed += dsopt("study", "show", "simulated") + dsopt("study", "best", "simulated")
    (dsopt.cwd / "study.yaml").unlink()
    assert LITERAL not in printed
    holding = [name for name, content in everything_left(dsopt).items() if LITERAL.encode() in content]
    assert {Path(name).name.removesuffix("-wal") for name in holding} <= {"dsopt.db"}
    store = os.environ | dsopt.environment
    import optuna

    for summary in optuna.get_all_study_summaries(store["DSOPT_STORAGE"]):
        assert LITERAL not in str(summary.user_attrs)
