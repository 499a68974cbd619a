"""The keys of this node, and the signatures of studies."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dsopt.api.storage import opened
from dsopt.errors import DsoptError
from dsopt.protocol.secret_names import is_secret_name
from dsopt.store import keys
from dsopt.store.signatures import read_to_sign, sign_again
from dsopt.study import command_secrets
from dsopt.study.comparison import specs_of_runs
from dsopt.study.spec import StudySpec


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyInfo:
    """A key of this node, without its secret.

    Attributes:
        name: of its file.
        fingerprint: what names the key in messages.
        path: its file.
        created_at: seconds since the epoch.
        signs: whether this node signs new studies with it.
    """

    name: str
    fingerprint: str
    path: str
    created_at: float
    signs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A study that was signed: its command without secrets, and the fingerprint of the key."""

    study: str
    command: str
    fingerprint: str


def create_key(name: str | None = None) -> KeyInfo:
    """Makes a key. From then on, this node signs the studies it creates, and refuses studies that no key of it signed.

    Raises:
        DsoptError: the name is not valid, or taken.
    """
    made = keys.create_key(name)
    return _info(made, signs=made == keys.signing_key(keys.trusted_keys()))


def list_keys() -> list[KeyInfo]:
    """The keys that this node trusts, oldest first.

    Raises:
        DsoptError: one of them cannot be read, or is open to other users.
    """
    known = keys.trusted_keys()
    signing = keys.signing_key(known)
    return [_info(key, signs=key == signing) for key in known]


def sign_study(
    name: str, *, unsigned: bool = False, agree: Callable[[str], None] | None = None, storage: str | None = None
) -> Signed:
    """Signs a study with the signing key of this node.

    Args:
        name: the study's name.
        unsigned: also if no key of this node has signed it.
        agree: is given all of such a study, as JSON in ASCII without secrets, before it is signed, and raises what it
            likes if that is not to be vouched for. What is signed is what it was given.
        storage: as for `create_study`.

    Raises:
        DsoptError: there is no key or no such study, the study was altered, no key of this node has signed it, it was
            changed while somebody read it, or it cannot be shown as a whole.
    """
    if not keys.trusted_keys():
        raise DsoptError("this node has no key. Create one with: dsopt key create")
    with opened(storage) as store:
        name = store.header(name).name
        read = read_to_sign(store.engine, name) if unsigned else None
        if agree is not None and read is not None:
            agree(_whole(read))
        spec, signature = sign_again(store.engine, name, read)
    return Signed(study=name, command=command_secrets.shown(spec.launch), fingerprint=signature.signed_by)


def _whole(spec: StudySpec) -> str:
    """All of a study that is vouched for, without secrets.

    Raises:
        DsoptError: something in it would be hidden that may be run.
    """
    shown = command_secrets.shown_spec(spec.to_json())
    in_command = any(command_secrets.may_hide_what_runs(run.launch) for run in specs_of_runs(spec))
    hidden = ["command"] if in_command else [*_hidden_keys(json.loads(spec.to_json()), shown)]
    if hidden:
        raise DsoptError(
            f"study '{spec.name}': {hidden[0]}: has a word that looks like a secret, which dsopt does not show, and "
            "that may be what runs: nobody could vouch for it. Create the study again from its file: that signs it."
        )
    return json.dumps(shown, indent=2)


def _hidden_keys(content: Any, shown: Any, key: str = "") -> Iterator[str]:  # noqa: ANN401 - any JSON value
    """The keys under which something is hidden though they are no names of secrets; commands are left out."""
    if key == "command" or is_secret_name(key):
        return
    if isinstance(content, dict):
        for name, value in content.items():
            yield from _hidden_keys(value, shown[name], name)
    elif isinstance(content, list):
        for value, other in zip(content, shown, strict=True):
            yield from _hidden_keys(value, other, key)
    elif content != shown:
        yield key


def _info(key: keys.Key, *, signs: bool) -> KeyInfo:
    known: dict[str, Any] = {"name": key.name, "path": str(key.path), "created_at": key.created_at}
    return KeyInfo(fingerprint=key.fingerprint, signs=signs, **known)
