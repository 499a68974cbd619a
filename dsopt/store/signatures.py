"""Signed studies: what is signed, and what is checked of a stored spec before anything is done with it."""

import hashlib
import hmac
import json
from dataclasses import asdict, dataclass
from typing import Final

import sqlalchemy as sa
from pydantic import ValidationError

from dsopt.errors import DsoptError
from dsopt.store import queries
from dsopt.store.keys import Key, signing_key, trusted_keys
from dsopt.store.queries import Row
from dsopt.study.spec import StudySpec, digest_of

_PURPOSE: Final = "dsopt study, version 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A signature, and the fingerprint of the key that made it."""

    signature: str
    signed_by: str


def sign(name: str, spec: str) -> Signature | None:
    """Signs a study with the signing key of this node; None: it has no key."""
    key = signing_key(trusted_keys())
    return None if key is None else Signature(signature=_hmac(key, name, spec), signed_by=key.fingerprint)


def sign_stored(connection: sa.Connection, name: str, spec: str) -> Signature | None:
    """Writes the signature of a stored study, if this node has a key; `spec` is its text there."""
    signed = sign(name, spec)
    if signed is not None:
        queries.sign_study(connection, name=name, spec=spec, **asdict(signed))
    return signed


def sign_if_same(engine: sa.Engine, spec: StudySpec) -> None:
    """Signs a stored study that is created again: whoever says the same once more vouches for it."""
    with engine.begin() as connection:
        row = queries.find_study(connection, spec.name)
        if row is not None and unsigned_spec_of(row).digest == spec.digest:
            sign_stored(connection, spec.name, row["spec"])


def sign_again(engine: sa.Engine, name: str, *, unsigned: bool) -> tuple[StudySpec, Signature]:
    """Signs a stored study with the signing key of this node.

    Args:
        unsigned: also one that no key of this node has signed.

    Raises:
        DsoptError: it was altered, or not signed with a key of this node.
    """
    with engine.begin() as connection:
        row = queries.find_study(connection, name)
        assert row is not None
        if not unsigned:
            check_signature(row, trusted_keys())
        spec, signed = unsigned_spec_of(row), sign_stored(connection, name, row["spec"])
        assert signed is not None, "the caller has made sure that there is a key"
        return spec, signed


def spec_of(row: Row) -> StudySpec:
    """The spec of a study's row, once it is known to be the one that was stored, and signed if this node has keys.

    Raises:
        DsoptError: another version of dsopt made it, it was altered, or no trusted key has signed it.
    """
    check_signature(row, trusted_keys())
    return unsigned_spec_of(row)


def unsigned_spec_of(row: Row) -> StudySpec:
    """The spec of a study's row, whoever has signed it.

    Raises:
        DsoptError: another version of dsopt made it, or it was altered.
    """
    name = row["name"]
    try:
        spec = StudySpec.model_validate_json(row["spec"])
    except ValidationError as error:
        raise DsoptError(
            f"study '{name}' was made by another version of dsopt and cannot be read: {error.errors()[0]['msg']}"
        ) from None
    if spec.name != name or not _is_same(digest_of(json.loads(row["spec"])), row["digest"]):
        raise DsoptError(
            f"study '{name}' was altered in the database: its spec is not the one that was created. dsopt does not use "
            f"it. Delete it and create it again: dsopt study delete {name}"
        )
    return spec


def check_signature(row: Row, keys: list[Key]) -> None:
    """Refuses a study that no key of this node has signed; without keys, everything is accepted.

    Raises:
        DsoptError: it is unsigned, signed with another key, or was altered.
    """
    if not keys:
        return
    name, signature, fingerprint = row["name"], row["signature"], row["signed_by"]
    trusted = ", ".join(f"{key.fingerprint} ('{key.name}')" for key in keys)
    if signature is None or fingerprint is None:
        raise DsoptError(
            f"study '{name}' is not signed, and this node trusts only studies signed with {trusted}. Create it again "
            f"from its file on a node with that key, or read and sign it there: dsopt key sign {name} --unsigned"
        )
    key = next((key for key in keys if _is_same(key.fingerprint, fingerprint)), None)
    if key is None:
        raise DsoptError(
            f"study '{name}' is signed with key {fingerprint}, which this node does not trust; it trusts {trusted}. "
            "Copy that key to this node, or sign the study with a key that both have: "
            f"dsopt key sign {name}"
        )
    if not _is_same(_hmac(key, name, row["spec"]), signature):
        raise DsoptError(
            f"study '{name}' was altered in the database after it was signed with key {fingerprint}: dsopt does not "
            f"use it. Delete it and create it again: dsopt study delete {name}"
        )


def _is_same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def _hmac(key: Key, name: str, spec: str) -> str:
    message = json.dumps([_PURPOSE, name, spec]).encode()
    return hmac.new(key.secret, message, hashlib.sha256).hexdigest()
