"""The keys of this node, and the signatures of studies."""

from dataclasses import dataclass
from typing import Any

from dsopt.api.storage import opened
from dsopt.errors import DsoptError
from dsopt.store import keys
from dsopt.store.signatures import sign_again


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
    """A study that was signed: its command, and the fingerprint of the key."""

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


def sign_study(name: str, *, unsigned: bool = False, storage: str | None = None) -> Signed:
    """Signs a study with the signing key of this node.

    Args:
        name: the study's name.
        unsigned: also if no key of this node has signed it. Read what it runs before you do so.
        storage: as for `create_study`.

    Raises:
        DsoptError: there is no key or no such study, the study was altered, or no key of this node has signed it.
    """
    if not keys.trusted_keys():
        raise DsoptError("this node has no key. Create one with: dsopt key create")
    with opened(storage) as store:
        spec, signature = sign_again(store.engine, store.header(name).name, unsigned=unsigned)
    return Signed(study=name, command=spec.command, fingerprint=signature.signed_by)


def _info(key: keys.Key, *, signs: bool) -> KeyInfo:
    known: dict[str, Any] = {"name": key.name, "path": str(key.path), "created_at": key.created_at}
    return KeyInfo(fingerprint=key.fingerprint, signs=signs, **known)
