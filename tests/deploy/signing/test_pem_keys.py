"""Bundles that a key file signs: whatever is changed in one, it never signs anything else."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.deploy.signing.pem_keys import make_bundle, verify_key_bundle
from tests.e2e.test_admit import pem_keys

CONTENT = b'{"_type": "https://in-toto.io/Statement/v1"}'
ODD: tuple[Any, ...] = (
    None,
    0,
    10**400,
    "",
    "é",
    "=",
    "AAAA",
    [],
    {},
    [[]],
    [None],
    [{"sig": None}],
    [{"sig": "AA=="}] * 3,
)


def places(document: Any, *above: Any) -> Iterator[tuple[Any, ...]]:
    """Yield where each value of a document stands."""
    keys = list(document) if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    for key in keys:
        yield (*above, key)
        yield from places(document[key], *above, key)


def test_a_changed_bundle_signs_nothing_else(tmp_path: Path) -> None:
    """With any byte or value changed it is refused, or signs what it signed; another key signed none of it."""
    private, public = pem_keys(tmp_path, "key")
    _, stranger = pem_keys(tmp_path, "stranger")
    bundle = make_bundle(CONTENT, private)
    forged = [bundle[:end] for end in range(len(bundle))]
    forged += [bundle[:at] + bytes([bundle[at] ^ 1]) + bundle[at + 1 :] for at in range(len(bundle))]
    for *above, key in places(json.loads(bundle)):
        for value in ODD:
            document = json.loads(bundle)
            part = document
            for name in above:
                part = part[name]
            part[key] = value
            forged.append(json.dumps(document).encode())

    verified = [verify_key_bundle(content, public) for content in (bundle, *forged)]

    assert verified[0] is not None
    assert {CONTENT} == {result[1] for result in verified if result is not None}
    assert all(verify_key_bundle(content, stranger) is None for content in (bundle, *forged[:100]))


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_what_is_no_bundle_signs_nothing(tmp_path: Path, content: bytes) -> None:
    """Bytes that are no bundle count as unsigned, never as an error of ours."""
    _, public = pem_keys(tmp_path, "key")

    assert verify_key_bundle(content, public) is None
