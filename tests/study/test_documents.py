"""Files with a person's mistakes in them."""

from pathlib import Path

import pytest

from dsopt.errors import DsoptError
from dsopt.study.documents import nearest, read_json, read_yaml


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [", "line 1, column 8"),
        ("name: a\ncommand: b\nname: c", "line 3, column 1: key 'name' appears twice"),
        ("a:\n  b: 1\n  b: 2", "line 3, column 3: key 'b' appears twice"),
        ("- 1\n- 2", "contains a list"),
        ("", "contains nothing"),
        ("just text", "contains text"),
        ("a: !!python/object:os.system 1", "could not determine a constructor"),
        ("a: 2026-13-45", "month must be in 1..12"),
        ("a: !!int x", "invalid"),
        ("[" * 5000, "invalid YAML"),
    ],
)
def test_yaml_mistakes_are_named_with_their_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    with pytest.raises(DsoptError) as caught:
        read_yaml(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_numbers_such_as_5e8_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("a: 5e8\nb: [5e7, 1.5e+9]\nc: e8\nd: 007")
    assert read_yaml(path) == {"a": 5e8, "b": [5e7, 1.5e9], "c": "e8", "d": 7}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,\n "b": }', "line 2, column 7: invalid JSON"),
        ('{"zero_optimization": {"stage": 1, "stage": 2}}', "key 'stage' appears twice"),
        ("[1]", "contains a list"),
        ("", "line 1, column 1: invalid JSON"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ("[" * 100_000, "invalid JSON"),
    ],
)
def test_json_mistakes_are_named_with_their_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "ds_config.json"
    path.write_text(text)
    with pytest.raises(DsoptError) as caught:
        read_json(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_missing_folder_and_binary_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DsoptError, match="no such file"):
        read_yaml(tmp_path / "no.yaml")
    with pytest.raises(DsoptError, match="is a folder"):
        read_json(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DsoptError, match="not UTF-8"):
        read_json(tmp_path / "binary")


def test_nearest_gives_the_misspelled_word_or_nothing() -> None:
    assert nearest("metrc", ["metric", "fast"]) == "metric"
    assert nearest("something_else", ["metric", "fast"]) is None


@pytest.mark.parametrize(
    "text",
    [
        '{"a": {"b": [1, 2,],},}',
        '{\n  // a comment\n  "a": {"b": [1, 2]} /* another */\n}',
        '{\n  # a comment of another kind\n  "a": {"b": [1, 2]}\n}',
        '"a": {"b": [1, 2]}',
    ],
)
def test_json_as_documents_show_it(tmp_path: Path, text: str) -> None:
    (tmp_path / "ds_config.json").write_text(text)
    assert read_json(tmp_path / "ds_config.json") == {"a": {"b": [1, 2]}}


@pytest.mark.parametrize("text", ['{"a": 1 "b": 2}', '{"a": on}', "{a b}", '{"a": "x}', "{'a': tru,}"])
def test_what_deepspeeds_reader_would_misunderstand_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "ds_config.json").write_text(text)
    with pytest.raises(DsoptError, match="invalid JSON"):
        read_json(tmp_path / "ds_config.json")
