"""Names are cut out of what is published."""

import json
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.run.start.cut_names import COMMON, SHORTEST, cut_names, own_names

NAMES = st.text(string.ascii_letters + string.digits + "-_. äß", min_size=SHORTEST, max_size=12).filter(
    lambda name: name[0].isalnum() and name[-1].isalnum() and name.lower() not in COMMON
)
AROUND = st.text(string.ascii_letters + string.digits + " /\"'\n:=<>.-_*~", max_size=30)
SEPARATORS = st.sampled_from(["/", " ", '"', "'", "\n", ":", "=", "<", "@", "-", ".", "_", "(", ""])


@given(st.lists(NAMES, min_size=1, max_size=4), st.lists(st.tuples(AROUND, SEPARATORS, st.integers(0, 3)), max_size=6))
def test_no_name_is_left(names: list[str], pieces: list[tuple[str, str, int]]) -> None:
    """Whatever stands around it, no name of the user or the host is left as a word, in keys and in values."""
    text = "".join(f"{around}{mark}{names[at % len(names)].swapcase()}{mark}" for around, mark, at in pieces)

    ((key, (value,)),) = cut_names({text: [text]}, names).items()

    assert key == value
    words = [rf"(?i)(?<![^\W_]){re.escape(name)}(?![^\W_])" for name in names]
    assert [] == [word for word in words if re.search(word, value)]
    assert value == cut_names(value, names)


@given(st.text("bcdfg 0123456789\n.,", max_size=60))
def test_what_holds_no_name_stays(text: str) -> None:
    """Figures and other words stay as they are, and so do numbers."""
    assert [text, 7, 1.5, None, True] == cut_names(
        [text, 7, 1.5, None, True], ["anna", "anna-mac.local", "/Users/anna"]
    )


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("/Users/berta/Library/x and /home/otto:/bin", "~/Library/x and ~:/bin"),
        ("/Users/Shared/models", "/Users/Shared/models"),
        ('"IOPlatformSerialNumber" = "C02ABC123XYZ"', '"IOPlatformSerialNumber" = "***"'),
        ("Serial Number (system): F2LXK1ABCD", "Serial Number (system): ***"),
        ("<key>serial</key>\n<string>F2LXK1ABCD</string>", "<key>serial</key>\n<string>***</string>"),
        ("id 0B0C0D0E-1111-2222-3333-444455556666.", "id ***."),
        ("ether a4:83:e7:01:02:0f up", "ether *** up"),
        ("annotate ann ANN-mac ann_1", "annotate *** *** ***_1"),
    ],
)
def test_identities_are_cut(text: str, cut: str) -> None:
    """Home folders of anybody, serial numbers, hardware identities; words that only begin like a name stay."""
    assert cut == cut_names(text, ["ann", "Ann-Mac"])


def test_the_names_of_this_machine_are_known() -> None:
    """The home folder, the user, the host; a document that holds them holds none of them afterwards."""
    names = [name for name in own_names() if len(name) >= SHORTEST and name.lower() not in COMMON]

    text = json.dumps(cut_names({"all": [f"<{name}>" for name in names]}, own_names()))

    assert names
    assert [] == [name for name in names if name in text]
