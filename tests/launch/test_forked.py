"""What may be imported before the ranks are forked, and what of a script's imports is learned."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsopt.launch.forked import ForkedStarts, imported_before
from dsopt.protocol.run_dir import RunDir
from dsopt.study.launchers.launcher import RankStart

IMPORT_ALL = """
import json, sys
from dsopt.probe.beforehand import import_all
refusal = import_all(json.loads(sys.argv[1]))
print(json.dumps(refusal and [refusal.why, refusal.since]))
"""
BEFORE = ["package", "package.sub.part", "early"]
LATE = ["package.sub.other", "package.sub", "bears_no_fork.part", "needed", "bears_no_fork", "late"]
# stands in for an installed package: `click` is one, and light
SCRIPT = """
import sys
from dsopt.protocol.run_dir import RunDir
from dsopt.probe.imported import ImportRecord
record = ImportRecord()
import own
import click
{change}
import yaml
record.write(RunDir(sys.argv[1]))
"""


def after_one_rank(run_dir: RunDir, why: list[str]) -> ForkedStarts:
    """Starts that learnt from a run, after they have started one rank, which has ended."""
    warm = ForkedStarts(lambda: False, why.append)
    warm.learn(run_dir)
    start = RankStart(argv=(sys.executable, "-m", "dsopt.probe"), environment=dict(os.environ))
    ranks = warm.fork([start], run_dir.path, run_dir)
    assert ranks is not None, why
    ranks[0].wait()
    warm.close()
    return warm


def python(code: str, *arguments: str, folder: Path) -> str:
    words = [sys.executable, "-c", "import sys\n" + code, *arguments]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("source", "refusal"),
    [
        ("import os; LANGUAGE = os.environ.get('LANG')", None),
        ("import os; port = os.environ.get('MASTER_PORT')", "reads the environment variable MASTER_PORT when it is"),
        ("import os; is_run = 'DSOPT_RUN_DIR' in os.environ", "reads the environment variable DSOPT_RUN_DIR"),
        ("import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", "threads"),
        ("raise RuntimeError('not today')", "beforehand: RuntimeError: not today"),
        ("import not_there_at_all", "No module named 'not_there_at_all'"),
        ("import click", " if imported beforehand, but the script"),
        ("import on_the_path", "on_the_path would come from"),
    ],
)
def test_what_must_not_be_imported_beforehand_is_refused(tmp_path: Path, source: str, refusal: str | None) -> None:
    for name, content in (("beforehand", source), ("on_the_path", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.py").write_text(content)
    modules = json.dumps({"beforehand": str(tmp_path / "beforehand" / "beforehand.py")})
    code = f"sys.path += [{str(tmp_path / 'beforehand')!r}, {str(tmp_path / 'on_the_path')!r}]\n" + IMPORT_ALL
    told = json.loads(python(code, modules, folder=tmp_path))
    assert told is None if refusal is None else refusal in told[0], told
    if told is not None:
        assert told[1] == ("beforehand" if refusal == "threads" else None)


_ENDS_ITS_THREAD = """
#include <pthread.h>
#include <unistd.h>
static int asked[2];
static pthread_t thread;
static void *wait_until_asked(void *unused) { char one; (void)!read(asked[0], &one, 1); return unused; }
static void end(void) { (void)!write(asked[1], "x", 1); pthread_join(thread, 0); }
__attribute__((constructor)) static void begin(void) {
    (void)!pipe(asked); pthread_create(&thread, 0, wait_until_asked, 0); pthread_atfork(end, 0, 0);
}
"""


def test_threads_that_a_library_ends_before_a_fork_forbid_none(tmp_path: Path) -> None:
    """As OpenBLAS's; numpy 2.5 shows no function that would end them."""
    library = tmp_path / "library.so"
    build = ["cc", "-shared", "-fPIC", "-pthread", "-x", "c", "-", "-o", library]
    subprocess.run(build, input=_ENDS_ITS_THREAD, text=True, check=True)
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "beforehand.py").write_text(f"import ctypes; ctypes.CDLL({str(library)!r})")
    modules = json.dumps({"beforehand": str(tmp_path / "path" / "beforehand.py")})
    code = f"sys.path += [{str(tmp_path / 'path')!r}]\n" + IMPORT_ALL
    assert json.loads(python(code, modules, folder=tmp_path)) is None


def test_nothing_is_imported_from_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "beforehand.py").write_text("raise RuntimeError('mine')")
    modules = json.dumps({"beforehand": str(tmp_path / "beforehand.py")})
    assert json.loads(python(IMPORT_ALL, modules, folder=tmp_path)) is None


@pytest.mark.parametrize(
    ("change", "learned", "changed"),
    [
        ("", True, ""),
        ("import os; os.environ['OMP_NUM_THREADS'] = '4'", False, "OMP_NUM_THREADS"),
        ("import os; os.environ.update(A='1', B='2')", False, "A"),
        ("import os; os.environ.pop('PATH')", False, "PATH"),
    ],
)
def test_what_is_imported_after_a_change_of_the_environment_is_not_learned(
    tmp_path: Path, change: str, learned: bool, changed: str
) -> None:
    (tmp_path / "own.py").write_text("import json\n")
    (tmp_path / "script.py").write_text(SCRIPT.format(change=change))
    python("exec(compile(open('script.py').read(), 'script.py', 'exec'))", str(tmp_path), folder=tmp_path)
    imports = json.loads(RunDir(tmp_path).imports.read_text())
    assert "click" in imports["modules"]
    assert "own" not in imports["modules"]
    assert ("yaml" in imports["modules"]) is learned
    assert imports["changed"] == changed


def test_ranks_are_forked_before_a_package_that_bears_no_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is installed by `pip install --target`, after which the folder is on PYTHONPATH.

    `package.sub` is imported whole when one of its parts is, so neither it nor what follows is imported beforehand.
    """
    starts_threads = "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    files = {
        "package/__init__.py": "", "package/sub/__init__.py": "import package.sub.part, early, package.sub.other",
        "package/sub/part.py": "", "package/sub/other.py": "", "early.py": "",
        "bears_no_fork/__init__.py": f"import bears_no_fork.part, needed; {starts_threads}",
        "bears_no_fork/part.py": "", "needed.py": "", "late.py": "",
    }  # fmt: skip
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "bears_no_fork-1.0.dist-info").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    run_dir, why = RunDir(tmp_path / "run"), list[str]()
    run_dir.path.mkdir()
    record = "from dsopt.probe.imported import *; record = ImportRecord()\n"
    code = f"{record}import torch, package.sub, bears_no_fork, late\nrecord.write(RunDir({str(run_dir.path)!r}))"
    python(code, folder=run_dir.path)
    assert list(json.loads(run_dir.imports.read_text())["modules"])[-9:] == [*BEFORE, *LATE]
    warm = after_one_rank(run_dir, why)
    assert warm._modules is not None
    assert "torch" in warm._modules
    assert "package" in warm._modules
    assert not {"package.sub.part", "early", *LATE} & {*warm._modules}
    assert why == []


@pytest.mark.parametrize(
    ("modules", "since", "early"),
    [
        (["torch", "bad", "late"], "bad", ["torch"]),
        (["torch", "package.part", "bad", "package"], "bad", ["torch"]),
        (["torch", "package.namespace.part", "bad", "package"], "bad", ["torch"]),
        (["torch", "one", "one.part", "bad"], "bad", ["torch", "one", "one.part"]),
        (["torch", "two.part", "one.part", "two", "bad", "one"], "bad", ["torch"]),
        (["torch", "one.part", "between", "one"], None, ["torch", "one.part", "between", "one"]),
    ],
)
def test_nothing_is_imported_beforehand_whose_package_was_imported_later(
    modules: list[str], since: str | None, early: list[str]
) -> None:
    """What comes before the end of a package that comes before the module that is refused may be imported, though."""
    assert list(imported_before(since, dict.fromkeys(modules, ""))) == early


def test_a_long_chain_of_packages_is_read_at_once() -> None:
    """A script may write such a record."""
    links = 30_000
    chain = [f"p{link + 1}.x" if half else f"p{link}" for link in reversed(range(links)) for half in (True, False)]
    assert imported_before("bad", dict.fromkeys(["torch", *chain, "bad", f"p{links}"], "")).keys() == {"torch"}


def test_a_script_that_changes_the_environment_before_torch_is_started_directly(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path)
    run_dir.write_json(run_dir.imports, {"modules": {"yaml": "/there/yaml.py"}, "changed": "OMP_NUM_THREADS"})
    why: list[str] = []
    warm = ForkedStarts(lambda: False, why.append)
    warm.learn(run_dir)
    warm.learn(run_dir)
    assert why == ["the script changes the environment variable OMP_NUM_THREADS before it imports torch"]


@pytest.mark.parametrize("given", [None, "0"])
def test_torch_asks_the_drivers_library_where_ranks_are_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    """Otherwise a library that asks whether there are GPUs begins with CUDA, which no fork bears."""
    name = "PYTORCH_NVML_BASED_CUDA_CHECK"
    (tmp_path / "asks_for_gpus").mkdir()
    (tmp_path / "asks_for_gpus-1.0.dist-info").mkdir()
    told = tmp_path / "told"
    code = f"import os, pathlib; pathlib.Path({str(told)!r}).write_text(str(os.environ.get({name!r})))"
    (tmp_path / "asks_for_gpus" / "__init__.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv(name, raising=False)
    if given is not None:
        monkeypatch.setenv(name, given)
    run_dir, why = RunDir(tmp_path / "run"), list[str]()
    run_dir.path.mkdir()
    record = "from dsopt.probe.imported import *; record = ImportRecord()\n"
    python(f"{record}import torch, asks_for_gpus\nrecord.write(RunDir({str(run_dir.path)!r}))", folder=run_dir.path)
    told.unlink()
    after_one_rank(run_dir, why)
    assert told.read_text() == (given or "1")
