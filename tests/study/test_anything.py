"""Whatever a study, a configuration, a command or an event file holds: a spec or an event, or a DsoptError."""

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from dsopt.errors import DsoptError
from dsopt.experiment.judge import Moment, judge, measurement_of
from dsopt.experiment.seen import Seen
from dsopt.protocol.event_reader import EventReader
from dsopt.protocol.run_dir import RunDir
from dsopt.study.command import LaunchCommand
from dsopt.study.command_secrets import literal_secrets, shown, with_values
from dsopt.study.documents import parse_json
from dsopt.study.ds_schema import schema_if_readable
from dsopt.study.load import load_spec
from dsopt.study.secrets import HIDDEN
from dsopt.study.spec import StudySpec
from dsopt.study.typed import typed_words
from tests.runs import launch, rules
from tests.study.watched import watched

NOWHERE = Path("/nowhere")
few = settings(max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
many = settings(few, max_examples=150)

TEXT = st.text(st.characters(exclude_categories=()), max_size=12)  # halves of characters and NUL, too
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from([*StudySpec.model_fields, "nonsense"])
DS_KEYS = st.sampled_from(
    "train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps zero_optimization fp16 bf16 optimizer "
    "scheduler autotuning wandb aio nonsense".split()
)
SECTIONS = st.dictionaries(
    st.sampled_from("enabled stage offload_optimizer device reduce_bucket_size type params arg_mappings fast".split()),
    VALUES,
    max_size=4,
)
WORDS = st.sampled_from(
    "deepspeed torchrun accelerate launch python -m torch.distributed.run env A=b --num_gpus 2 --num_nodes -H -i "
    "localhost:0-9 --include train.py --deepspeed --deepspeed_config ds.json --token $HF_TOKEN ${X --lr= = -- - "
    "--config_file --module WANDB_API_KEY=abc123def".split()
)


@pytest.fixture(scope="module", autouse=True)
def _schema() -> None:
    """Asks DeepSpeed once what it reads, so that no example waits for that."""
    schema_if_readable("test")


def load(study: str, config: str) -> None:
    """Reads both from files, and looks at what was created beside them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").touch()
        (folder / "ds.json").write_text(config, encoding="utf-8")
        (folder / "study.yaml").write_text(study, encoding="utf-8")
        with watched(folder):
            try:
                spec, _ = load_spec(folder / "study.yaml")
            except DsoptError as error:
                assert str(error)
            else:
                assert StudySpec.model_validate_json(spec.to_json()).digest == spec.digest
        assert {path.name for path in folder.iterdir()} == {"train.py", "ds.json", "study.yaml"}


@few
@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_any_study(keys: dict[str, Any]) -> None:
    known = {"command": "deepspeed --num_gpus 1 train.py --deepspeed_config ds.json", "name": "s"}
    try:
        text = yaml.safe_dump({**known, **keys})
    except yaml.YAMLError:
        return
    load(text, '{"train_micro_batch_size_per_gpu": 1}')


@few
@given(st.dictionaries(DS_KEYS, VALUES | SECTIONS, max_size=4))
def test_any_configuration(config: dict[str, Any]) -> None:
    text = json.dumps(config)
    load("name: s\ncommand: deepspeed --num_gpus 1 train.py --deepspeed_config ds.json\n", text)


@few
@given(st.text(alphabet="ab:-[]{},&*!|>'\"#%@\n\t 0", max_size=60))
def test_any_text_as_a_study_file(text: str) -> None:
    load(text, text)


@many
@given(st.text(alphabet='{}[]",:1 ea\\\n#/', max_size=60))
def test_any_text_as_json(text: str) -> None:
    with watched(NOWHERE), contextlib.suppress(DsoptError):
        parse_json(text, "test")


@many
@given(st.lists(WORDS | TEXT, max_size=8) | st.text(max_size=40))
def test_any_command(typed: list[str] | str) -> None:
    with watched(NOWHERE), contextlib.suppress(DsoptError):
        look_at(LaunchCommand.parse(typed_words(typed, "test"), "test"))


def look_at(command: LaunchCommand) -> None:
    """Asks a command all that dsopt asks it."""
    assert LaunchCommand.parse(str(command), "test") == command
    filled = with_values(command, {"HF_TOKEN": "the value"})
    assert "$HF_TOKEN" not in " ".join(filled.script_args)
    assert shown(command).count(HIDDEN) >= len(literal_secrets(command))
    assert command.ranks is None or command.ranks >= 0
    assert command.chosen_gpus is not None


LINES = st.lists(
    st.binary(max_size=40)
    | st.builds(
        lambda event, fields: json.dumps({"v": 1, "event": event, "rank": 0, **fields}).encode(),
        VALUES | st.sampled_from("engine step memory oom error batch flops end withheld".split()),
        st.dictionaries(
            st.sampled_from(
                "step seconds samples rank message type rows world_size num_params trainable_params device gas dtype "
                "device_memory_bytes zero_stage micro_batch peak_allocated_bytes peak_reserved_bytes time what".split()
            ),
            VALUES | st.integers(0, 9),
        ),
    ),
    max_size=20,
)


@many
@given(LINES)
def test_any_event_file(lines: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as name:
        run = RunDir(name)
        run.events(0).write_bytes(b"\n".join(lines) + b"\n")
        seen, known = Seen(), rules()
        with watched(Path(name)):
            for event in EventReader(run).read():
                seen.add(event)
            judge(seen, known, measurement_of(seen, known), Moment(seconds=10.0, exit_code=1), launch())


@pytest.mark.parametrize(
    ("act", "what"),
    [
        (lambda folder: (folder.parent / "outside").write_text("x"), "open"),
        (lambda folder: (folder / ".." / "outside").mkdir(), "os.mkdir"),
        (lambda folder: subprocess.run(["true"], check=True), "subprocess.Popen"),
    ],
)
def test_the_watch_sees(tmp_path: Path, act: Callable[[Path], object], what: str) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    with pytest.raises(AssertionError, match=what), watched(folder):
        act(folder)
    with watched(folder):
        (folder / "inside").write_text("x")
