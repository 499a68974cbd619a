"""The size of what a reader has to take in at once."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "dsopt"
MOST_LINES_OF_A_FILE = 300
MOST_LINES_OF_A_FUNCTION = 50


def test_no_file_is_too_long() -> None:
    paths = list(PACKAGE.rglob("*.py"))
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in paths}
    assert {str(path): length for path, length in lengths.items() if length > MOST_LINES_OF_A_FILE} == {}


def test_no_function_is_too_long() -> None:
    lengths = {
        f"{path}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
    }
    assert {place: length for place, length in lengths.items() if length > MOST_LINES_OF_A_FUNCTION} == {}
