"""What counts as a secret in a command, which is kept as a name, and how it is shown."""

import base64
import json
import os
import shlex
import subprocess
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import pytest

from dsopt.errors import DsoptError
from dsopt.study.command import LaunchCommand
from dsopt.study.command_secrets import (
    config_warnings,
    literal_secrets,
    secret_warnings,
    shown,
    shown_spec,
    variables_of,
    with_values,
)
from dsopt.study.load import build_spec
from dsopt.study.secrets import hidden, looks_secret, secret_values
from dsopt.study.spec import StudySpec
from dsopt.study.typed import typed_words

HUB = "hf_" + "AbCd1234" * 4
AZURE = "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=Zm9vYmFyMTIzNDU2Nzg5MGFiY2RlZg==;EndpointSuffix=x"


def parsed(typed: str) -> LaunchCommand:
    return LaunchCommand.parse(typed_words(typed, "test"), "test")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", "anything-at-all"),
        ("WANDB_API_KEY", "0123456789abcdef"),
        ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI"),
        ("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE"),
        ("DB_PASSWORD", "1234567"),
        *(
            (name, "Summer2024")
            for name in ("DB_PW", "--pw", "NPM_AUTH", "AUTH", "GH_PAT", "COOKIE", "--creds", "--passcode")
        ),
        ("MY_SETTING", HUB),
        ("MY_KEY", "0123456789abcdefXYZ"),
        ("hub-token", "anything"),
        ("TRANSLATION_PRIVATE_KEY", "anything"),
        ("DATABASE_URL", "postgresql://ann:p4ss@host/db"),
        ("HTTPS_PROXY", "http://ann:p4ss@proxy:3128"),
        ("AZURE_STORAGE_CONNECTION_STRING", AZURE),
        ("AZURE_STORAGE_CONNECTION_STRING", AZURE.replace("Zm9v", "/m9v")),
        ("DSN", "host=db user=u password=hunter22pw dbname=d"),
        ("--odbc", "Server=h;Uid=u;Pwd=hunter22pw"),
        ("HEADERS", "{'Authorization': 'token abcdef0123'}"),
        ("PIP_INDEX_URL", "https://pat1234567890abcdef@pkgs.example/x"),
        ("--data", "https://b.s3.amazonaws.com/d.tar?X-Amz-Date=1&X-Amz-Signature=5d672d79c15b"),
    ],
)
def test_what_is_a_secret(name: str, value: str) -> None:
    assert looks_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PWD", "/data/run"),
        ("SSH_AUTH_SOCK", "/run/agent"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("MAX_TOKENS", "1000000"),
        ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"),
        ("GOOGLE_APPLICATION_CREDENTIALS", __file__),
        ("HF_TOKEN_PATH", "hub/token"),
        ("--pad_token", "<|endoftext|>"),
        ("--eos_token_id", "128009"),
        ("AUTHOR", "Ann"),
        ("--text_key", "content"),
        ("--sort-keys", "length"),
        ("--token_pooling", "attention_mean"),
        ("--auth_mode", "none-at-all"),
        ("--auth", "none"),
        ("--pat", "10"),
        ("--pw", "0.25"),
        ("--loss-pw", "1e-4"),
        ("--file_pat", "*.parquet"),
        ("--auth", "workload-identity"),
        ("--cookies", "browser"),
        ("--path", "data"),
        ("DATABASE_URL", "postgresql://host:5432/db"),
        ("GIT_COMMIT", "0123456789abcdef0123456789abcdef01234567"),
        ("DSN", "host=db user=u password= dbname=d"),
        ("BASH_FUNC_cd%%", "() { local pwd=$(pwd); builtin cd; }"),
        ("--prompt", "Password: <password>"),
        ("ORIGIN", "ssh://git@github.com/a/b2"),
        ("DATA_ROOT", "abfss://training-data-v2@acct.dfs.core.windows.net/x"),
        ("DATA_ROOT", "wasbs://datasets_2024_06_long@acct.blob.core.windows.net/x"),
        ("DB", "postgresql://optuna_service_user1@db/x"),
        ("SUDO_COMMAND", "/usr/bin/env PWD=/home/ann LANG=C"),
        ("BASH_FUNC_module%%", "() { local PWD=/apps/x; x=1; }"),
        ("SLURM_JOB_COMMENT", "pwd=/scratch/me run=2"),
        ("--system_prompt", "You keep a secret: always answer kindly."),
        ("--chat_template", "{% set pwd = namespace() %}{% set x = 1 %}"),
        ("--model_args", "base_url=http://127.0.0.1:1,api_key=not-needed"),
        ("STATE", '{"pwd": "/home/me/project"}'),
    ],
)
def test_what_is_no_secret(name: str, value: str) -> None:
    assert not looks_secret(name, value)


def test_a_secret_stays_a_name_and_everything_else_gets_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hub-4711")
    monkeypatch.setenv("BS", "4")
    monkeypatch.setenv("MAX_TOKENS", "2048")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    command = parsed(
        "WANDB_API_KEY=$WANDB_API_KEY deepspeed $PWD/train.py --token=${HF_TOKEN} --bs $BS --max_tokens $MAX_TOKENS"
    )
    assert str(command) == (
        f'WANDB_API_KEY="$WANDB_API_KEY" deepspeed {os.environ["PWD"]}/train.py --token="${{HF_TOKEN}}" --bs 4 '
        "--max_tokens 2048"
    )
    assert LaunchCommand.parse(str(command), "test") == command
    assert variables_of(command) == ["WANDB_API_KEY", "HF_TOKEN"]
    filled = with_values(command, {"HF_TOKEN": "a $BS", "WANDB_API_KEY": "w"})
    assert filled.script_args[0] == "--token=a $BS"
    assert filled.environment == (("WANDB_API_KEY", "w"),)


def test_a_shell_fills_in_what_is_shown(tmp_path: Path) -> None:
    command = LaunchCommand.parse(["deepspeed", "train.py", "--auth", "Bearer it's ${HF_TOKEN}!", "$OTHER"], "test")
    args = " ".join(shown(command).split()[2:])
    printed = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {args}"], env={"HF_TOKEN": "a b", "OTHER": "x"}, capture_output=True, text=True
    ).stdout
    assert printed.splitlines() == ["--auth", "Bearer it's a b!", "$OTHER"]


def test_a_variable_that_is_no_secret_must_be_set() -> None:
    with pytest.raises(DsoptError, match=r"the variable '\$NOWHERE_SET' in '\$NOWHERE_SET/train.py' is not set"):
        typed_words("deepspeed $NOWHERE_SET/train.py", "test")


@pytest.mark.parametrize(
    ("typed", "secret", "as_shown"),
    [
        ("WANDB_API_KEY=abc123def deepspeed t.py", "abc123def", "WANDB_API_KEY='***' deepspeed t.py"),
        ("deepspeed t.py --token hub-4711 --lr 1", "hub-4711", "deepspeed t.py --token '***' --lr 1"),
        ("deepspeed t.py --token hub-4711 data.json", "hub-4711", "deepspeed t.py --token '***' data.json"),
        ("deepspeed t.py --api-key=hub-4711", "hub-4711", "deepspeed t.py --api-key='***'"),
        ("deepspeed t.py wandb.api_key=hub-4711", "hub-4711", "deepspeed t.py wandb.api_key='***'"),
        (f"deepspeed t.py --hub {HUB}", HUB, "deepspeed t.py --hub '***'"),
        ("deepspeed t.py --token $HF_TOKEN,ghp_a1B2a1B2a1", "$HF_TOKEN,ghp_a1B2a1B2a1", "deepspeed t.py --token '***'"),
        ("deepspeed t.py --db postgresql://ann:p4ss@h/d", "postgresql://ann:p4ss@h/d", "deepspeed t.py --db '***'"),
        ("deepspeed t.py --dsn 'user=u pwd=hunter22pw'", "user=u pwd=hunter22pw", "deepspeed t.py --dsn '***'"),
    ],
)
def test_a_secret_that_is_written_out_is_hidden_and_warned_of(typed: str, secret: str, as_shown: str) -> None:
    command = LaunchCommand.parse(shlex.split(typed), "test")
    assert shown(command) == as_shown
    assert literal_secrets(command) == [secret]
    [warning] = secret_warnings(command, "study.yaml")
    assert "seems to hold a secret" in warning
    assert secret not in warning


def test_a_password_in_a_url_whose_query_has_a_key_is_hidden_and_so_is_each_alone() -> None:
    """The password was shown, as the signature's name."""
    url = "https://user:hunter2222@h/x?api_key=correcthorsebattery"
    command = LaunchCommand.parse(["deepspeed", "t.py", "--ckpt", url], "test")
    assert shown(command) == "deepspeed t.py --ckpt '***'"
    values = secret_values({}, literal_secrets(command))
    assert hidden(f"{url}: user, hunter2222, correcthorsebattery", values) == "***: user, ***, ***"
    assert secret_warnings(command, "study.yaml")[0].startswith("study.yaml: command: --ckpt seems to hold a secret")


HIDDEN_WORD = "'***'"


def encoded(config: str) -> str:
    return base64.urlsafe_b64encode(config.encode()).decode()


@pytest.mark.parametrize(
    ("config", "is_hidden"),
    [
        ('{"comet": {"enabled": true, "api_key": "a1b2c3d4e5f6"}}', True),
        ('{"train_batch_size": 8} // api_key: a1b2c3d4e5f6', True),
        ('{"train_batch_size": 8}', False),
    ],
)
def test_a_configuration_in_base64_hides_no_secret(config: str, is_hidden: bool) -> None:
    """It stood in reports and on the dashboard, where whoever decodes it reads the key."""
    given = encoded(config)
    command = LaunchCommand.parse(["deepspeed", "t.py", "--deepspeed_config", given], "test")
    assert shown(command) == f"deepspeed t.py --deepspeed_config {HIDDEN_WORD if is_hidden else given}"
    assert secret_warnings(command, "study.yaml") == []  # reading the configuration warns of it


@pytest.mark.parametrize(
    "typed",
    [
        "deepspeed t.py --token $HF_TOKEN --max_tokens 2048 --text_key content --pad_token '[PAD]'",
        "TOKENIZERS_PARALLELISM=false deepspeed t.py --lr 1e-5 --key_file key.pem",
        'deepspeed t.py --dsn "host=db password=$PGPASSWORD dbname=train"',
    ],
)
def test_an_ordinary_command_is_shown_as_it_is(typed: str) -> None:
    command = LaunchCommand.parse(shlex.split(typed), "test")
    assert shown(command) == str(command)
    assert secret_warnings(command, "study.yaml") == []


def test_values_and_known_tokens_are_hidden_in_messages() -> None:
    values = secret_values({"DB_URL": "postgresql://ann:p4ssword@h/d", "HF_TOKEN": "hub-4711", "LR": "1e-500000"})
    text = f"connect postgresql://ann:p4ssword@h/d failed: p4ssword, hub-4711, {HUB}, 1e-500000"
    assert hidden(text, values) == "connect *** failed: ***, ***, ***, 1e-500000"


@pytest.mark.parametrize("told", ["{}", "reads {!r}", "in one line: {}"])
def test_a_secret_of_several_lines_is_hidden_however_it_is_told(told: str) -> None:
    key = "-----BEGIN PRIVATE KEY-----\n  MIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----"
    values = secret_values({"DEPLOY_KEY": key})
    said = told.format(key.replace("\n", " ") if "line" in told else key)
    assert "MIIEvQIBADANBgkq" not in hidden(said, values)
    assert "hkiG9w0BAQEFAASC" not in hidden(said, values)
    words = secret_values({"VAULT_SECRET": "username\npassword\nconfig\n"})
    assert hidden("KeyError: 'config'", words) == "KeyError: 'config'"


def test_a_secret_in_the_configuration_is_warned_of() -> None:
    config = {"comet": {"enabled": False, "api_key": "abc123def"}, "optimizer": {"type": "Adam"}, "tokens": "all"}
    config["wandb"] = {"api_key": "${WANDB_API_KEY}"}  # which the script fills in
    [warning] = config_warnings(config, "ds.json")
    assert warning.startswith("ds.json: comet.api_key seems to hold a secret")
    assert "abc123def" not in warning


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("pass_env", ["HF_TOKEN", "AWS_*"], None),
        ("pass_env", "HF_TOKEN", "Expected a list of variables"),
        ("pass_env", ["a b"], "Expected a list of variables"),
        ("pass_env", ["DSOPT_STORAGE"], "for dsopt alone"),
    ],
)
def test_names_in_a_study_are_checked(tmp_path: Path, key: str, value: object, message: str | None) -> None:
    (tmp_path / "train.py").touch()
    content = {
        "name": "s", "command": "deepspeed --num_gpus 1 train.py", "cwd": str(tmp_path), key: value,
        "ds_config": {"train_micro_batch_size_per_gpu": 1},
    }  # fmt: skip
    if message is None:
        assert getattr(build_spec(content, "study.yaml")[0], key) == value
    else:
        with pytest.raises(DsoptError, match=message):
            build_spec(content, "study.yaml")


def test_a_study_is_shown_without_secrets_and_can_be_read_again() -> None:
    spec = StudySpec.model_validate(
        {
            "name": "s",
            "command": "deepspeed t.py --hub_token sup3rs3cret --deepspeed_config c.json",
            "cwd": "/",
            "ds_config": {"comet": {"api_key": "k4711"}},
            "pass_env": ["HF_TOKEN"],
            "search": {"args": {"--max_tokens": [1, 2]}},
            "compare": [{"name": "a", "command": "torchrun t.py --hub_token an0ther-secret"}],
        }
    )
    shown = shown_spec(spec.to_json())
    assert not [s for s in ("sup3rs3cret", "k4711", "an0ther-secret") if s in json.dumps(shown)]
    assert shown["pass_env"] == ["HF_TOKEN"]
    assert shown["search"] == {"args": {"--max_tokens": ["1", "2"]}}
    StudySpec.model_validate(shown)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cannot reach https://svc:hunter22pw@mlflow.example/api", "cannot reach https://svc:***@mlflow.example/api"),
        ("login failed, password=hunter22pw, user=svc", "login failed, password=***, user=svc"),
        ("{'api_key': 'hunter22pw'}", "{'api_key': '***'}"),
        ("Authorization: Basic c3ZjOmh1bnRlcjIycHc=", "Authorization: Basic ***"),
        ("max_tokens=2048, basic settings, http://127.0.0.1:29500/x", None),
        ("KeyError: 'password'; secret: no", None),
        (
            f"bad connection string {AZURE}",
            f"bad connection string {AZURE.replace('Zm9vYmFyMTIzNDU2Nzg5MGFiY2RlZg==', '***')}",
        ),
        (
            "url: https://b.s3.x/d?X-Amz-Security-Token=IQoJb3Jp&X-Amz-Signature=5d672d79;",
            "url: https://b.s3.x/d?X-Amz-Security-Token=***&X-Amz-Signature=***",
        ),
        (
            "https://storage.googleapis.com/x?GoogleAccessId=a&Signature=Rm9vQmFy",
            "https://storage.googleapis.com/x?GoogleAccessId=a&Signature=***",
        ),
        ("https://api.telegram.org/bot12345:AAHtoken_abc/sendMessage", "https://api.telegram.org/bot***"),
        ("https://discord.com/api/webhooks/112233/HookTokenAbCd", "https://discord.com/api/webhooks/***"),
        ("https://hooks.slack.com/services/T00/B00/XXXX", "https://hooks.slack.com/services/***"),
        ("no access to https://pat1234567890abcdef@pkgs.example/x", "no access to https://***@pkgs.example/x"),
        ("vocab has no pad_token=<|pad|>, signature=(x, y)", None),
        ("secret: Zm9vYmFyMTIzNDU2Nzg5MGFiY2RlZg==", "secret: ***"),
        ("password = $ecretPass1, Pwd={hunter;22}", "password = ***, Pwd=***;22}"),
        ("read abfss://training-data-v2@acct.dfs.core.windows.net/x", None),
    ],
)
def test_what_the_form_of_a_text_tells_is_hidden(text: str, shown: str | None) -> None:
    assert hidden(text, ()) == (text if shown is None else shown)


TOLD = pytest.mark.parametrize(
    "told",
    [
        repr,
        lambda value: repr(value.encode()),
        json.dumps,
        lambda value: json.dumps(value, ensure_ascii=False),
        urllib.parse.quote,
        lambda value: urllib.parse.quote(value, safe=""),
        urllib.parse.quote_plus,
        lambda value: base64.b64encode(value.encode()).decode(),
    ],
)


@TOLD
def test_a_secret_is_hidden_in_whatever_form_programs_write_it(told: Callable[[str], str]) -> None:
    value = 'wörd "of"/pass\\ 4711'
    shown = hidden(f"it got {told(value)} and failed", secret_values({"VAULT_PASSWORD": value}))
    assert "***" in shown and "4711" not in shown and base64.b64encode(value.encode()).decode()[:8] not in shown


@TOLD
def test_so_is_the_password_that_a_url_writes_otherwise(told: Callable[[str], str]) -> None:
    value = 'p\'ss "w" 4711'
    url = f"postgresql://ann:{urllib.parse.quote(value, safe='')}@h/d"
    shown = hidden(f"it got {told(value)} and failed", secret_values({"DB_URL": url}))
    assert "***" in shown and "4711" not in shown and base64.b64encode(value.encode()).decode()[:8] not in shown


def test_the_password_that_a_url_writes_otherwise_is_hidden() -> None:
    values = secret_values({"DB_URL": "postgresql://ann:pass%40wort99@h/d"})
    assert hidden("no user with pass@wort99, or pass%40wort99", values) == "no user with ***, or ***"
