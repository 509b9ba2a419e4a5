"""Scripts of the scripted backend that are wrong or missing."""

from pathlib import Path

import pytest

from gatekeeper.backends.scripted.script import read_script
from gatekeeper.core.errors import InputError


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ('{"tokn": 1}', "tokn: unknown key; did you mean 'token'?"),
        ('{"acceptance": 1.5}', "0 to 1"),
        ('{"faults": [{"fault": "explode"}]}', "faults.0.fault"),
        ('{"canaries": {"tool-": {"speed": 1}}}', "'tool-': speed"),
        ('{"sight": ["everything"]}', "allowed: arrivals, "),
        ('{"token": "fast"}', "cannot read 'fast'"),
        ('{"token": ', "not a valid script"),
        ("[]", "not a JSON object"),
    ],
)
def test_a_wrong_script_is_explained(tmp_path: Path, written: str, complaint: str) -> None:
    """A script that is wrong is an input error naming the file and the place."""
    file = tmp_path / "truth.json"
    file.write_text(written)

    with pytest.raises(InputError, match=r"truth\.json") as caught:
        read_script(file)

    assert complaint in caught.value.message


def test_a_missing_script_is_explained(tmp_path: Path) -> None:
    """A script that is not there is an input error that says against what its path is resolved."""
    with pytest.raises(InputError, match=r"nowhere\.json") as caught:
        read_script(tmp_path / "nowhere.json")

    assert "relative to the SLO file" in caught.value.hint
