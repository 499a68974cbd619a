"""Nothing that a study over two nodes leaves behind on either of them, shows or tells holds a secret."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cluster.sshd import Hosts, hosts
from tests.conftest import SCRIPTS, Dsopt
from tests.studies import STUDY, write_study

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("slurm")]

HUB, WANDB, WITHHELD, ASKED = (f"planted-{name}-4711" for name in ("hub", "wandb", "withheld", "asked"))
SECRETS = (HUB, WANDB, WITHHELD, ASKED)
# tells what a rank is given, and which files of its run directory on its node hold a secret; at ZeRO 2 it fails
SCRIPT = f"""
import json, os, runpy, sys, uuid
from pathlib import Path
told = Path(os.environ["TELL_TO"])
files = [path for path in Path(os.environ["DSOPT_RUN_DIR"]).rglob("*") if path.is_file()]
held = [path.name for path in files if any(secret.encode() in path.read_bytes() for secret in {SECRETS!r})]
given = {{"argv": sys.argv, "environment": dict(os.environ), "held": held, "files": [path.name for path in files]}}
# a new file for each: what a run appends to one of an earlier run does not stay
(told / f"{{os.uname().nodename}}-{{uuid.uuid4().hex}}.json").write_text(json.dumps(given))
at = sys.argv.index("--token")
del sys.argv[at : at + 2]
config = json.loads(Path(sys.argv[sys.argv.index("--deepspeed_config") + 1]).read_text())
if config.get("zero_optimization", {{}}).get("stage") == 2:
    secrets = [os.environ["WANDB_API_KEY"], os.environ["ASKED_TOKEN"], given["argv"]]
    raise RuntimeError(f"no access with {{secrets}}")
runpy.run_path({str(SCRIPTS / "pretends.py")!r}, run_name="__main__")
"""


@pytest.fixture
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Two nodes of a test's own."""
    with hosts(tmp_path_factory.mktemp("ssh"), "node1", "node2") as found:
        yield found


@pytest.mark.parametrize("is_shared", [True, False], ids=["a folder in common", "no folder in common"])
def test_no_secret_is_left_on_any_node(
    dsopt: Dsopt, two_nodes: Hosts, tmp_path_factory: pytest.TempPathFactory, is_shared: bool
) -> None:
    told = tmp_path_factory.mktemp("told")
    (dsopt.cwd / "tells_and_pretends.py").write_text(SCRIPT)
    (dsopt.cwd / "hosts").write_text(two_nodes.host_file(1))
    command = (
        "WANDB_API_KEY=$WANDB_API_KEY deepspeed --hostfile hosts tells_and_pretends.py --deepspeed_config ds.json "
        "--token ${HF_TOKEN}"
    )
    write_study(
        dsopt.cwd, command=command, pass_env=["ASKED_*", "TELL_TO"], max_attempts=1,
        ds_config={"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": [1, 2]}},
        confirmation={"finalists": 1, "rounds": 1}, autotuning={**STUDY["autotuning"], "tuner_num_trials": 4},
    )  # fmt: skip
    dsopt.environment |= two_nodes.environment
    dsopt.environment |= {"HF_TOKEN": HUB, "WANDB_API_KEY": WANDB, "OTHER_TOKEN": WITHHELD, "ASKED_TOKEN": ASKED}
    dsopt.environment["TELL_TO"] = str(told)
    results = dsopt.cwd / "autotuning_results"
    results.mkdir()
    printed = dsopt("study", "create", "study.yaml")
    for node in two_nodes.nodes.values() if not is_shared else ():
        node.run("mount", "-t", "tmpfs", "tmpfs", str(results))
    printed += dsopt("worker", "simulated") + dsopt("study", "show", "simulated") + dsopt("study", "best", "simulated")
    assert "no access with" in printed

    check_ranks(told)
    for secret in SECRETS:
        assert secret not in printed
        for name, content in left_in(dsopt).items():
            # what a script itself says is in its own logs
            own = Path(name).name in ("stdout.log", "stderr.log") or Path(name).name.startswith("events-rank")
            assert secret.encode() not in content or (own and secret != WITHHELD), name
        for node in two_nodes.nodes.values():
            node.run(
                "grep", "-rqF", "--exclude=*.log", "--exclude=events-rank*", secret, str(results), "/dev/shm", code=1
            )


def check_ranks(told: Path) -> None:
    """Both nodes' ranks got what the command and the study name, and nothing else; no file there held it meanwhile."""
    for node in ("node1", "node2"):
        ranks = [json.loads(path.read_text()) for path in told.glob(f"{node}-*.json")]
        assert len(ranks) > 3
        for rank in ranks:
            environment = rank["environment"]
            assert rank["argv"][-1] == HUB
            assert [environment[name] for name in ("WANDB_API_KEY", "ASKED_TOKEN")] == [WANDB, ASKED]
            assert not {"OTHER_TOKEN", "DSOPT_STORAGE"} & environment.keys()
            assert WITHHELD not in str(environment)
            assert rank["files"] and rank["held"] == []


def left_in(dsopt: Dsopt) -> dict[str, bytes]:
    """Every file below the working folder, by name; of the database, what it holds, too."""
    found = {str(path): path.read_bytes() for path in dsopt.cwd.rglob("*") if path.is_file()}
    found.pop(str(dsopt.cwd / "tells_and_pretends.py"))  # the test's own, which knows what it looks for
    with closing(sqlite3.connect(dsopt.environment["DSOPT_STORAGE"].removeprefix("sqlite:///"))) as database:
        found["the database"] = "\n".join(database.iterdump()).encode()
    assert b"deepspeed_config" in found["the database"]
    return found
