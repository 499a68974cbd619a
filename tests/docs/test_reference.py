"""The reference pages, which are written from the code, and what links to them."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from dsopt.study.spec import StudySpec
from tests.docs.pages import DOCS

README = DOCS.parent / "README.md"
MOST_LINES = 60
MOST_IMAGE_BYTES = 200_000
WRITTEN = ("cli.md", "study-file.md", "api.md")
LINK = re.compile(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)")


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_key_of_a_study_has_a_meaning(generate: ModuleType) -> None:
    page = generate.study_page()
    for key in StudySpec.model_fields:
        assert (f"\n| `{key}` | " in page) == (key not in generate.OLD_KEYS), key
    assert "| `min_train_batch_size` | bounds of micro-batch" in page


def test_a_key_without_a_meaning_is_an_error(generate: ModuleType) -> None:
    class Silent(StudySpec):
        """A section.

        Attributes:
            name: its name.
        """

        unheard: int = 1

    with pytest.raises(LookupError, match="unheard"):
        generate.descriptions(Silent)


def test_every_command_and_public_name_is_there(generate: ModuleType) -> None:
    commands = generate.command_page()
    assert "\n## dsopt study best\n" in commands
    assert "| `--so-far` | Also of a study that goes on" in commands
    assert "\n.. autofunction:: dsopt.create_study\n" in generate.api_page()


def test_pages_that_do_not_change_are_not_written_again(generate: ModuleType, tmp_path: Path) -> None:
    generate.write(tmp_path)
    before = {name: (tmp_path / name).stat().st_mtime_ns for name in WRITTEN}
    generate.write(tmp_path)
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in WRITTEN} == before


def test_the_readme_is_one_screen() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("page", [README, *sorted(DOCS.rglob("*.md"))], ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in LINK.findall(re.sub(r"`[^`\n]*`", "", prose)):
        found = (page.parent / target).resolve()
        assert found.exists() or (found.parent.name == "reference" and found.name in WRITTEN), f"{page.name}: {target}"


def test_pictures_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in (DOCS / "img").iterdir()}
    assert {name: size for name, size in sizes.items() if size > MOST_IMAGE_BYTES} == {}
