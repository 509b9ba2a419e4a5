"""How results become documents, and documents results."""

from dataclasses import dataclass
from typing import Annotated

import pytest
from pydantic import Field

from gatekeeper.core.document import IF_ANY, UNWRITTEN, document_of, read_document
from gatekeeper.core.errors import InputError
from gatekeeper.core.judgement import Check, Outcome


@dataclass(frozen=True, slots=True)
class Part:
    """A result with a key of each kind."""

    source: Annotated[str, Field(alias="from")]
    count: Annotated[int | None, IF_ANY] = None
    names: Annotated[tuple[str, ...], IF_ANY] = ()
    hint: Annotated[str, UNWRITTEN] = ""


@dataclass(frozen=True, slots=True)
class Whole:
    """A result with parts."""

    parts: tuple[Part, ...]


@pytest.mark.parametrize(
    ("part", "document"),
    [
        (Part("here"), {"from": "here"}),
        (Part("here", 0, ("a",)), {"from": "here", "count": 0, "names": ("a",)}),
        (Part("here", hint="look"), {"from": "here"}),
    ],
)
def test_a_key_is_absent_where_there_is_nothing(part: Part, document: dict[str, object]) -> None:
    """None and an empty list have no key, 0 has one; what is unwritten stays with the program."""
    written = document_of(part)

    assert document == written
    assert part.source == read_document(Part, written, "part.json", hint="").source


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"parts": [{"from": "a"}, {"from": 1}]}, "parts.1.from: Input should be a valid string"),
        ({"parts": [{}]}, "parts.0.from: Field required"),
        ([], "Input should be a dictionary or an instance of Whole"),
    ],
)
def test_a_damaged_document_names_its_file_and_key(document: object, message: str) -> None:
    """The message says which file and which key of it cannot be read; the hint says what to do."""
    with pytest.raises(InputError, match=r"^whole\.json: damaged: ") as raised:
        read_document(Whole, document, "whole.json", hint="restore it")

    assert (f"whole.json: damaged: {message}", "restore it") == (raised.value.message, raised.value.hint)


@pytest.mark.parametrize("word", ["passed", "PASS", 0, None])
def test_no_other_word_is_an_outcome(word: object) -> None:
    """A check is read as passed where it says exactly so."""
    check = Check("ttft", "at_most", 1.0, Outcome.PASS, unit="s", because="in time", why="people wait")

    with pytest.raises(InputError, match=r"outcome: .* must be pass, unproven or fail"):
        read_document(Check, document_of(check) | {"outcome": word}, "verdict.json", hint="")
