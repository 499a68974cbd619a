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
from dsopt.store.stored import StoredStudy
from dsopt.store.transactions import writing
from dsopt.study.spec import StudySpec, digest_of

_PURPOSE: Final = "dsopt study, version 2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A signature, and the fingerprint of the key that made it."""

    signature: str
    signed_by: str


def sign_stored(connection: sa.Connection, row: Row) -> Signature | None:
    """Signs a stored study with the signing key of this node; None: it has no key."""
    key = signing_key(trusted_keys())
    if key is None:
        return None
    signed = Signature(signature=_hmac(key, row), signed_by=key.fingerprint)
    queries.sign_study(connection, row, **asdict(signed))
    return signed


def renew_if_same(engine: sa.Engine, spec: StudySpec) -> bool:
    """Signs a stored study that is created again: whoever says the same once more vouches for it.

    A price that is given with it replaces the stored one; it changes no result. Returns whether this node did not trust
    the study before.

    Raises:
        DsoptError: it has another price, and this node cannot sign it again.
    """
    with writing(engine) as connection:
        row = queries.find_study(connection, spec.name)
        if row is None:
            return False
        known, was_trusted = unsigned_spec_of(row), distrust_of(row) is None
        if known.digest != spec.digest:
            return False
        if spec.price_per_gpu_hour not in (None, known.price_per_gpu_hour):
            row = _priced(connection, row, known, spec)
        sign_stored(connection, row)
        return not was_trusted


def _priced(connection: sa.Connection, row: Row, known: StudySpec, spec: StudySpec) -> Row:
    """The row of a study, with the price of another spec in it."""
    if row["signature"] is not None and signing_key(trusted_keys()) is None:
        raise DsoptError(
            f"study '{spec.name}': price_per_gpu_hour: the study is signed, and this node has no key to sign it again "
            f"with {spec.price_per_gpu_hour:g} in place of {known.price_per_gpu_hour}. Change the price on a node with "
            "a key that the study's workers trust."
        )
    content = json.loads(row["spec"]) | {"price_per_gpu_hour": spec.price_per_gpu_hour}
    text = json.dumps(content, sort_keys=True)
    queries.change_study(connection, row["id"], decides=False, spec=text, digest=spec.digest)
    priced = queries.find_study(connection, spec.name)
    assert priced is not None, "nobody else can change it in this transaction"
    return priced


def read_to_sign(engine: sa.Engine, name: str) -> StudySpec:
    """The spec of a stored study that somebody is to read before he signs it, whoever has signed it so far.

    Raises:
        DsoptError: there is no such study, another version of dsopt made it, or it was altered.
    """
    with engine.connect() as connection:
        return unsigned_spec_of(_row_of(connection, name))


def sign_again(engine: sa.Engine, name: str, read: StudySpec | None = None) -> tuple[StudySpec, Signature]:
    """Signs a stored study with the signing key of this node.

    Args:
        read: what somebody has read and vouches for, so that no key of this node need have signed it.

    Raises:
        DsoptError: there is no such study, it was altered, not signed with a key of this node, or is not what was read.
    """
    with engine.begin() as connection:
        row = _row_of(connection, name)
        if read is None:
            check_signature(row, trusted_keys())
        spec = unsigned_spec_of(row)
        if read is not None and read != spec:
            raise DsoptError(f"study '{name}' was changed while you read it, and is not signed. Read it again.")
        signed = sign_stored(connection, row)
        assert signed is not None, "the caller has made sure that there is a key"
        return spec, signed


def _row_of(connection: sa.Connection, name: str) -> Row:
    row = queries.find_study(connection, name)
    if row is None:
        raise DsoptError(f"no study '{name}': somebody has just deleted it. See: dsopt study list")
    return row


def distrust_of(row: Row) -> str | None:
    """Why this node does not trust a study; None: it does."""
    try:
        check_signature(row, trusted_keys())
    except DsoptError as error:
        return str(error)
    return None


def check_trust_now(engine: sa.Engine, study: StoredStudy) -> None:
    """Refuses a study that this node no longer trusts: its keys are others than when it read the study.

    Raises:
        DsoptError: says so.
    """
    keys = trusted_keys()
    if not keys or any(key.fingerprint == study.checked_by for key in keys):
        return
    with engine.connect() as connection:
        row = queries.find_study(connection, study.name)
    if row is not None and row["id"] == study.id:
        check_signature(row, keys)


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
    content = json.loads(row["spec"])
    known = [digest_of(content), digest_of(content, with_price=True)]
    if spec.name != name or not any(_is_same(digest, row["digest"]) for digest in known):
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
    if _is_same(_earlier_hmac(key, row), signature):
        raise DsoptError(
            f"study '{name}' was signed by an earlier dsopt, whose signature says nothing about which study it is of. "
            f"Read and sign it again: dsopt key sign {name} --unsigned"
        )
    if not _is_same(_hmac(key, row), signature):
        raise DsoptError(
            f"study '{name}' was altered in the database after it was signed with key {fingerprint}: dsopt does not "
            f"use it. Delete it and create it again: dsopt study delete {name}"
        )


def _is_same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def _earlier_hmac(key: Key, row: Row) -> str:
    """The signature as dsopt made it before revision 0006."""
    message = json.dumps(["dsopt study, version 1", row["name"], row["spec"]]).encode()
    return hmac.new(key.secret, message, hashlib.sha256).hexdigest()


def _hmac(key: Key, row: Row) -> str:
    """The signature of this very study: one that is created anew under its name has another id."""
    message = json.dumps([_PURPOSE, row["id"], row["name"], row["spec"]]).encode()
    return hmac.new(key.secret, message, hashlib.sha256).hexdigest()
