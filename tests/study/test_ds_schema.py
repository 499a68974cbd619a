"""What the installed DeepSpeed reads: that it is as DeepSpeed's own parser behaves, and that it is asked only once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dsopt.study import ds_schema
from dsopt.study.ds_schema import Schema, SchemaError, Section, installed_schema
from dsopt.study.load import build_spec


def sections(section: Section, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Section]]:
    yield path, section
    for name, key in section.keys.items():
        if key.section is not None:
            yield from sections(key.section, (*path, name))


def parse(path: tuple[str, ...], value: object) -> None:
    import deepspeed.runtime.config as parser

    config: Any = value
    for name in reversed(path):
        config = {name: config}
    parser.DeepSpeedConfig({"train_micro_batch_size_per_gpu": 1, **config})


def test_what_becomes_of_unknown_keys_is_what_deepspeeds_parser_does() -> None:
    found = dict(sections(installed_schema().root))
    assert {("zero_optimization", "offload_param"), ("fp16",), ("timers", "throughput"), ("aio",)} <= found.keys()
    for path, section in found.items():
        given = {**({"type": "Adam"} if path == ("optimizer",) else {}), "nobody_knows_this": 1}
        if section.unknown == "refused":
            with pytest.raises(Exception, match="nobody_knows_this"):
                parse(path, given)
        else:
            parse(path, given)


def test_the_keys_of_sections_are_those_of_deepspeeds_models() -> None:
    from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
    from deepspeed.runtime.zero.offload_config import DeepSpeedZeroOffloadOptimizerConfig

    schema = installed_schema()
    for path, model in (
        (("zero_optimization",), DeepSpeedZeroConfig),
        (("zero_optimization", "offload_optimizer"), DeepSpeedZeroOffloadOptimizerConfig),
        (("fp16",), DeepSpeedFP16Config),
        (("bf16",), DeepSpeedBF16Config),
    ):
        section = schema.section(*path)
        assert section is not None
        declared = {name for field, info in model.model_fields.items() for name in (field, info.alias) if name}
        assert {name for name, key in section.keys.items() if key.refused is None} == declared


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder, of this process too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ds_schema._kept.cache_clear()
    yield tmp_path / "dsopt"
    ds_schema._kept.cache_clear()


def answering(monkeypatch: pytest.MonkeyPatch, folder: Path, program: str) -> Path:
    """Lets another program answer for DeepSpeed; the file it gives has a line for each time it was asked."""
    asked = folder / "asked"
    asked.touch()
    (folder / "made_up_probe.py").write_text(f"print('x', file=open({str(asked)!r}, 'a'))\n{program}\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setattr(ds_schema, "_PROBE", "made_up_probe")
    return asked


ANSWER = (
    '{"version": "9", "root": {"unknown": "ignored", "keys": {}}, "optimizers": {}, "schedulers": {}, "exclusive": []}'
)


def test_deepspeed_is_asked_once_and_the_answer_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = answering(monkeypatch, tmp_path, f"print('some log'); print({ANSWER!r})")
    for _ in range(2):
        assert installed_schema().version == "9"
        ds_schema._kept.cache_clear()  # as in another process
    assert asked.read_text().count("x") == 1
    [kept] = cache.iterdir()
    kept.write_text("{")  # a file that something else has spoiled
    assert isinstance(installed_schema(), Schema)
    assert asked.read_text().count("x") == 2
    assert kept.read_text() == ANSWER


def test_a_cache_that_cannot_be_written_is_done_without(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answering(monkeypatch, tmp_path, f"print({ANSWER!r})")
    cache.write_text("a file, where the folder would be")
    assert installed_schema().version == "9"


def test_a_study_is_made_without_the_check_where_deepspeed_cannot_be_asked(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answering(monkeypatch, tmp_path, "raise ImportError('libcudart.so.12: cannot open shared object file')")
    with pytest.raises(SchemaError, match="libcudart"):
        installed_schema()
    (tmp_path / "train.py").touch()
    content = {"name": "s", "command": "deepspeed train.py", "cwd": str(tmp_path), "ds_config": {"fp61": {}}}
    spec, [warning] = build_spec(content, "study.yaml")
    assert spec.ds_config == {"fp61": {}}
    assert "study.yaml: cannot check DeepSpeed's configuration" in warning
    assert "ImportError: libcudart.so.12" in warning
