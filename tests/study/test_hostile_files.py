"""Files that a study or a configuration cannot be: each is refused at once, with its name, and nothing is created."""

import base64
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from dsopt.errors import DsoptError
from dsopt.study.load import load_spec
from dsopt.study.space import Candidate

STUDY = {
    "name": "s", "command": "deepspeed --num_gpus 1 train.py --deepspeed_config ds.json",
    "autotuning": {"fast": True},
}  # fmt: skip
HEAD = f"name: s\ncommand: {STUDY['command']}\n"
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    """A test that hangs fails."""

    def end(*_: object) -> None:
        raise AssertionError("it hangs")  # no TimeoutError: code that expects an OSError would swallow it

    signal.signal(signal.SIGALRM, end)
    signal.alarm(60)
    yield
    signal.alarm(0)


def study(**changes: object) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / "study.yaml").write_text(yaml.safe_dump({**STUDY, **changes}))
        return folder / "study.yaml"

    return write


def study_text(text: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / "study.yaml").write_text(text)
        return folder / "study.yaml"

    return write


def config_text(text: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / "ds.json").write_text(text)
        return study()(folder)

    return write


def study_fifo(folder: Path) -> Path:
    os.mkfifo(folder / "study.yaml")
    return folder / "study.yaml"


def config_fifo(folder: Path) -> Path:
    (folder / "ds.json").unlink()
    os.mkfifo(folder / "ds.json")
    return study()(folder)


def config_folder(folder: Path) -> Path:
    (folder / "ds.json").unlink()
    (folder / "ds.json").mkdir()
    return study()(folder)


def in_an_odd_folder(folder: Path) -> Path:
    odd = folder / os.fsdecode(b"\xff")
    odd.mkdir()
    for name in ("train.py", "ds.json"):
        (odd / name).write_text((folder / name).read_text())
    return study()(odd)


def folder_loop(folder: Path) -> Path:
    (folder / "loop").symlink_to("loop")
    return study(cwd="loop")(folder)


def in_base64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param(study_fifo, "study.yaml: is a pipe or a device", id="study is a pipe"),
        pytest.param(lambda _: Path("/dev/zero"), "/dev/zero: is a pipe or a device", id="study is a device"),
        pytest.param(lambda folder: folder, "is a folder", id="study is a folder"),
        pytest.param(config_fifo, "ds.json: is a pipe or a device", id="config is a pipe"),
        pytest.param(config_folder, "ds.json: is a folder", id="config is a folder"),
        pytest.param(study_text(BOMB), "more than 50000 values once its aliases", id="aliases"),
        pytest.param(study_text(BOMB + "z: {<<: [{k: *i}, {l: *i}]}\n"), "more than 50000 values", id="merged aliases"),
        pytest.param(
            study_text("x: &x {a: 1}\nds_config: {<<: *x}\n"), "a merge key. is not supported", id="merge key"
        ),
        pytest.param(study_text("x: {=: 1}\n"), "'=' is no key", id="value key"),
        pytest.param(study_text("a: &a [*a]\n"), "or holds itself", id="alias of itself"),
        pytest.param(study_text("a: " + "[" * 60 + "]" * 60), "nested more than 50 levels", id="deep study"),
        pytest.param(study_text("a: " + "[" * 100_000), "invalid YAML", id="very deep study"),
        pytest.param(study_text("a: b\n" * 100_000), "more than 256 KiB", id="large study"),
        pytest.param(config_text('{"a":' * 60 + "1" + "}" * 60), "nested more than 50 levels", id="deep config"),
        pytest.param(config_text("[" * 100_000), "ds.json: .*invalid JSON", id="very deep config"),
        pytest.param(config_text("{a: " * 5_000), "ds.json: .*invalid JSON", id="very deep Hjson"),
        pytest.param(config_text(json.dumps({"a": "x" * 2_000_000})), "more than 1024 KiB", id="large config"),
        pytest.param(config_text('{"train_batch_size": ' + "9" * 5000 + "}"), "ds.json", id="long number"),
        pytest.param(config_text('{"train_batch_size": ' + "9" * 400 + "}"), "ds.json", id="number beyond floats"),
        pytest.param(
            config_text('{"zero_optimization": {"stage": null}}'),
            "zero_optimization.stage: None. Expected a value",
            id="null",
        ),
        pytest.param(
            study(command=f"deepspeed t.py --deepspeed_config {in_base64('{' * 3000)}"), "base64", id="deep base64"
        ),
        pytest.param(
            study(command="deepspeed fifo --deepspeed_config ds.json"),
            "no training script 'fifo'",
            id="script is a pipe",
        ),
        pytest.param(study(command=f"deepspeed {'x' * 300}.py"), "no training script", id="long script"),
        pytest.param(study(command=f"deepspeed -H {'x' * 300} --num_nodes 2 train.py"), "no host file", id="long host"),
        pytest.param(study(command="deepspeed --num_gpus " + "9" * 5000 + " train.py"), "num_gpus", id="many GPUs"),
        pytest.param(study(search={"args": {"--" + "x" * 600: ["1", "2"]}}), "too long for a flag", id="long flag"),
        pytest.param(study(isolate=["--" + "x" * 600]), "too long for a flag", id="long isolated flag"),
        pytest.param(study(isolate=["--a/../../x"]), "is not a flag", id="isolated flag with a path"),
        pytest.param(study(search={"ds_config": {"x" * 600: [1, 2]}}), "is not a path", id="long key"),
        pytest.param(study(search={"ds_config": {"../x/y": [1, 2]}}), "is not a path", id="key with slashes"),
        pytest.param(
            study(search={"ds_config": {f"key{n}": [1, 2] for n in range(21)}}),
            "Expected at most 20",
            id="21 dimensions",
        ),
        pytest.param(study(cwd="x" * 300), "is not a folder", id="long folder"),
        pytest.param(folder_loop, "cwd: .* is not a folder", id="folder is a loop of links"),
        pytest.param(in_an_odd_folder, "is not UTF-8 text", id="folder of odd bytes"),
        pytest.param(study(name="n" * 101), "name", id="long name"),
        *(
            pytest.param(study_text(f"{HEAD}{line}"), "has a NUL byte or is not UTF-8 text", id=f"{kind} in {key}")
            for kind, text in (("NUL", "\\0"), ("half a character", "\\uDC80"))
            for key, line in (
                ("a flag's values", f'search: {{args: {{--x: ["1", "{text}"]}}}}'),
                ("a key", f'autotuning: {{"{text}": 1}}'),
                ("a folder", f'cwd: "{text}"'),
                ("the results folder", f'autotuning: {{results_dir: "{text}"}}'),
            )
        ),
        pytest.param(config_text('{"tag": "\\u0000"}'), "has a NUL byte or is not UTF-8 text", id="NUL in config"),
        pytest.param(config_text('{"tag": "\\udc80"}'), "has a NUL byte or is not UTF-8 text", id="half in config"),
    ],
)
def test_it_is_refused(tmp_path: Path, given: Callable[[Path], Path], message: str) -> None:
    (tmp_path / "train.py").touch()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1}')
    path = given(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DsoptError, match=message) as refused:
        load_spec(path)
    assert len(str(refused.value)) < 6000
    assert sorted(tmp_path.rglob("*")) == before


def test_a_long_name_of_a_candidate_is_short_enough_for_files_and_stays_its_own() -> None:
    values = [f"{'v' * 39}{number}" for number in range(2)]
    names = {
        Candidate(stage=1, micro_batch=1, gas=1, knobs=tuple((f"--{'f' * 190}{n}", value) for n in range(9))).name
        for value in values
    }
    assert len(names) == 2
    assert all(len(name) <= 150 and name.startswith("z1_fff") for name in names)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(study(compare=[{"name": "plain", "command": "deepspeed train.py"}]), id="comparison in a file"),
        pytest.param(
            config_text(
                '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"max_live_parameters": [null, 1]}}'
            ),
            id="list with null first",
        ),
    ],
)
def test_it_is_a_study(tmp_path: Path, given: Callable[[Path], Path]) -> None:
    """Files that once ended in a traceback."""
    (tmp_path / "train.py").touch()
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1}')
    spec, _ = load_spec(given(tmp_path))
    assert [spec.space(stage).stage for stage in spec.stages] == list(spec.stages)
