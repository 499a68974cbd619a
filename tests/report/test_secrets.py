"""What is taken out of a report before others read it, and what stays readable."""

import json
from pathlib import Path

import pytest

from dsopt.protocol.tail import tail
from dsopt.report.secrets import HIDDEN, secrets_of, shown_command, without_secrets
from dsopt.study.command import LaunchCommand
from dsopt.study.secrets import shown_settings

GITHUB = "ghp_" + "a1B2" * 9
HUB = "hf_" + "AbCd1234" * 4
WANDB = "0123456789abcdef" * 2 + "01234567"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"logged in with {HUB}.", HUB),
        ("train.py --pwd hunter2go", "hunter2go"),
        ("train.py --pat abc123def", "abc123def"),
        ("train.py --sas 'https://x.blob/y?sv=1&sig=Zx9abc%3D'", "Zx9abc"),
        ('--cfg "{\\"api_key\\": \\"abc123def\\"}"', "abc123def"),
        ("login failed for token abc123def", "abc123def"),
        ("the API_KEY is abc123def now", "abc123def"),
        ("curl -u me:hunter2go https://h", "hunter2go"),
        ("https://hooks.slack.com/services/T0/B0/abcDEF", "abcDEF"),
        ("npm_abcdefghij0123456789", "npm_abcdefghij0123456789"),
        (f"openai: sk-proj-{'x1' * 12}", f"sk-proj-{'x1' * 12}"),
        (f"remote: {GITHUB} was refused", GITHUB),
        ("github_pat_11ABCDEFG0abcdefghij_klmnop", "github_pat_11ABCDEFG0abcdefghij_klmnop"),
        ("credentials AKIAIOSFODNN7EXAMPLE found", "AKIAIOSFODNN7EXAMPLE"),
        ("slack xoxb-123456789012-abcdef", "xoxb-123456789012-abcdef"),
        (f"wandb: {WANDB}", WANDB),
        ("jwt eyJhbGciOi.eyJzdWIiOi.SflKxwRJSM", "SflKxwRJSM"),
        ("postgresql://ann:p4ss@host/db", "p4ss"),
        ("postgresql://ann:p@ss/word@host/db", "ss/word"),
        ("https://ann@host/db", "ann"),
        ("git clone https://x-access-token:abc123@github.com/a/b", "abc123"),
        ("postgresql://host/db?user=ann&password=s3cr3t", "s3cr3t"),
        ("--hub_token s3cr3t --steps 5", "s3cr3t"),
        ("--hub-token=s3cr3t", "s3cr3t"),
        ("--api-key 's3cr3t of two words'", "two words"),
        ("WANDB_API_KEY=s3cr3t python train.py", "s3cr3t"),
        ("AWS_SECRET_ACCESS_KEY: s3cr3t", "s3cr3t"),
        ("Namespace(hub_token='s3cr3t', steps=5)", "s3cr3t"),
        ('{"comet": {"api_key": "s3 cr3t"}}', "s3 cr3t"),
        ("password = s3cr3t", "s3cr3t"),
        ("Authorization: Bearer s3cr3t-s3cr3t", "s3cr3t"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIs3cr3t\n-----END RSA PRIVATE KEY-----", "s3cr3t"),
        ("s3cr3t\nqhkiG9w0\n-----END RSA PRIVATE KEY-----\nTraceback", "s3cr3t"),  # the end of a log
        ("the value passed is known-only-by-name", "known-only-by-name"),
    ],
)
def test_a_secret_is_hidden(text: str, secret: str) -> None:
    shown = without_secrets(text, ["known-only-by-name"])
    assert secret not in shown
    assert HIDDEN in shown


@pytest.mark.parametrize(
    "text",
    [
        "KeyError: 'hidden_size'",
        "--tokenizer_name gpt2 --steps 5",
        "author: DeepSpeed team",
        "rank 0: CUDA out of memory. Tried to allocate 2.00 GiB",
        '"zero_optimization": {"stage": 3, "reduce_bucket_size": 500000000}',
        "Traceback (most recent call last): line 12, in main",
        "sqlite:///tuning.db: no such file",
        '"pass_env": [\n    "LANG"\n  ]',
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text


def test_json_stays_json() -> None:
    settings = {"pass_env": ["LANG"], "api_key": "x", "token": 'a "quoted" one', "auth": {"scheme": "y"}, "lr": 0.1}
    shown = json.loads(without_secrets(json.dumps(settings, indent=2)))
    assert shown == settings | {"api_key": HIDDEN, "token": HIDDEN}


def test_the_environments_own_secrets_and_the_persons_name_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", "plain-looking value")
    monkeypatch.setenv("HOME", "/data/people/ann")
    monkeypatch.setenv("LOGNAME", "annlee")
    text = "plain-looking value in /data/people/ann/run of annlee, /home/bob/x and /data/people/annabel"
    assert without_secrets(text) == "*** in ~/run of user, ~/x and /data/people/annabel"


def test_a_command_is_shown_without_its_secrets_and_they_are_known_for_the_rest() -> None:
    command = LaunchCommand.parse(
        "OMP_NUM_THREADS=1 WANDB=s1 deepspeed --num_gpus 2 'my train.py' --hub_token s2 --keys s3 s4 --lr 1 --key=s5",
        "test",
    )
    assert shown_command(command) == (
        "OMP_NUM_THREADS=*** WANDB=*** deepspeed --num_gpus 2 'my train.py' --hub_token *** --keys *** *** --lr 1 "
        "--key=***"
    )
    assert secrets_of(command) == ["1", "s1", "s2", "s3", "s4", "s5"]


def test_settings_with_a_telling_name_are_hidden_whatever_they_hold() -> None:
    settings = {"comet": {"api_key": ["a", {"b": 1}]}, "steps": [1, {"auth": None}], "tokenizer": "gpt2"}
    assert shown_settings(settings) == {
        "comet": {"api_key": HIDDEN}, "steps": [1, {"auth": HIDDEN}], "tokenizer": "gpt2",
    }  # fmt: skip


def test_of_a_line_that_is_cut_nothing_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"step 1\rkey hf_AbCd1234\rstep 2\nstep 3\n")
    assert tail(log, 100) == "step 1\rkey hf_AbCd1234\rstep 2\nstep 3\n"
    assert tail(log, len("1234\rstep 2\nstep 3\n")) == "step 2\nstep 3\n"
    log.write_text("".join(f"{number:04}" for number in range(5000)))  # of a line without end, what is after a secret
    assert tail(log, 8192) == log.read_text()[-4096:]
    log.write_bytes(log.read_bytes() + b"\r\n")
    assert tail(log, 8192) == log.read_bytes()[-4096:].decode()
