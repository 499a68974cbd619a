"""What ranks tell holds no secret any more when dsopt has read it."""

import pytest

from dsopt.experiment.hiding import without_secrets
from dsopt.protocol.events import Error, Event, Oom, Saved, Sources, Withheld
from tests.runs import engine, steps

SECRET = "planted-secret-4711"
TEXT = f"see {SECRET}"


@pytest.mark.parametrize(
    "event",
    [
        engine(device=TEXT, dtype=TEXT, autocast=TEXT, framework=TEXT, software=TEXT, own_settings=TEXT),
        Oom(rank=0, message=TEXT),
        Error(rank=0, type=TEXT, message=TEXT, origin=TEXT),
        Withheld(rank=0, what=TEXT, path=TEXT),
    ],
)
def test_no_text_of_an_event_repeats_a_secret(event: Event) -> None:
    assert SECRET in repr(event)
    [read] = without_secrets([event], lambda: [SECRET])
    assert SECRET not in repr(read)
    assert "see ***" in repr(read)


def test_files_of_the_script_keep_their_names_or_are_left_out() -> None:
    files = {"hf_finetune.py": "12", f"{SECRET}.py": "34", "a.py": SECRET}
    [read] = without_secrets([Sources(rank=0, files=files)], lambda: [SECRET])
    assert read == Sources(rank=0, files={"hf_finetune.py": "12"})


def test_files_keep_their_names_and_steps_ask_for_no_secrets() -> None:
    """What a run has saved is found by its name and removed."""
    saved = Saved(rank=0, path=f"/out/{SECRET}", host="node", inode="1", size=1, changed="1")
    events = [*steps(3), saved]
    assert without_secrets(events, lambda: pytest.fail("there is no text")) == events
