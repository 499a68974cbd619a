"""Every command of the start page and the guides runs, in order, in a folder with a script and its configuration."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import SCRIPTS
from tests.docs.pages import DOCS, PAGES, Block, blocks
from tests.fork_server import make_command

ROOT = DOCS.parent
REAL = ("accelerate", "trainer")  # these guides train
MOST_NOT_RUN = 3
HOME = "/home/me/train"  # where the pages say that their reader is
ONE_BY_ONE = {  # a dry run's figures come out alike
    "dsopt worker my-study\n": "dsopt worker my-study --devices cpu:1\n",
    "dsopt worker keep\n": "dsopt worker keep --devices cpu:1\n",
}
STANDS_FOR = {
    "--num_gpus 8": "--num_gpus 2",
    '"--num_gpus", "8"': '"--num_gpus", "2"',
    "dsopt dashboard\n": "timeout --signal=INT 8 dsopt dashboard --port 0 || test $? = 124\n",
}
DATABASE = "postgresql://dsopt_owner@db.example.org/dsopt"


def test_few_blocks_are_not_run() -> None:
    reasons = [f"{page.stem}: {block.reason}" for page in PAGES for block in blocks(page) if block.reason]
    assert len(reasons) <= MOST_NOT_RUN, reasons


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_is_shown_alone_is_valid(page: Path) -> None:
    for block in blocks(page):
        if block.kind == "json":
            json.loads(block.text)
        elif block.kind == "yaml":
            assert yaml.safe_load(block.text)
        else:
            assert block.kind in ("sh", "text", "python"), f"no test knows what to do with a block of {block.kind!r}"


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if page.stem not in REAL], ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = made_folder(tmp_path)
    database = request.getfixturevalue("postgres_url") if page.stem == "postgres" else ""
    stands_for = {**STANDS_FOR, DATABASE: database, **(ONE_BY_ONE if "simulation: {" in page.read_text() else {})}
    (tmp_path / "bin").mkdir()
    make_command(tmp_path / "bin")
    path = [tmp_path / "bin", SCRIPTS, Path(sys.executable).parent]
    check(page, folder, stands_for, path=os.pathsep.join(map(str, path)))


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.xdist_group("hour")  # beside the other real runs, and not after them: each takes minutes
@pytest.mark.parametrize("name", REAL)
def test_the_guides_that_train_run(name: str, tmp_path: Path) -> None:
    check(DOCS / "guides" / f"{name}.md", tmp_path, {}, path=str(Path(sys.executable).parent))


def made_folder(folder: Path) -> Path:
    """A folder with a script and its configuration, and what is left of `make install`.

    `deepspeed` on the path is a launcher that trains nothing.
    """
    (folder / "train.py").write_text("raise SystemExit('the launcher of the tests runs no script')\n")
    config = {"train_micro_batch_size_per_gpu": [4, 8], "zero_optimization": {"stage": [1]}}
    (folder / "ds_config.json").write_text(json.dumps(config))
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "activate").write_text(f"VIRTUAL_ENV='{sys.prefix}'\n")
    return folder


def check(page: Path, folder: Path, stands_for: dict[str, str], *, path: str) -> None:
    """Runs a page's blocks in one shell, and looks for the output that it shows."""
    found = list(blocks(page))
    environment = {
        **os.environ,
        "PATH": f"{path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "100",
        "OMP_NUM_THREADS": "1",
    }
    script = "set -euo pipefail\n" + "".join(shell_of(block, stands_for) for block in found)
    ended = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, text=True, timeout=1500,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert ended.returncode == 0, f"exit code {ended.returncode}, output:\n{ended.stdout}"
    printed = comparable(ended.stdout.replace(str(folder), HOME))
    for block in found:
        for line in block.text.splitlines() if block.kind == "text" else ():
            assert comparable(line) in printed, f"{page.name} shows what no command prints: {line}\n\n{ended.stdout}"


def shell_of(block: Block, stands_for: dict[str, str]) -> str:
    """What a shell does with a block: write the file, run the commands, or nothing."""
    if block.caption:
        return f"cat > '{block.caption}' <<'END OF FILE'\n{block.text}END OF FILE\n"
    if block.reason or block.kind not in ("sh", "python"):
        return ""
    text = block.text
    for written, here in stands_for.items():
        text = text.replace(written, here)
    return f"python - <<'END OF FILE'\n{text}END OF FILE\n" if block.kind == "python" else text


def comparable(text: str) -> str:
    """A text without what may differ between two runs: figures, and the room that they take."""
    return re.sub(r"[\s│─╭╮╰╯]+", " ", re.sub(r"\d+(\.\d+)?", "#", text)).strip()
