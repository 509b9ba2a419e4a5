"""Words of `bisect` that an installer would read as options."""

import pytest
from click.testing import CliRunner

from gatekeeper.cli.main import gatekeeper
from gatekeeper.core.errors import InputError


@pytest.mark.parametrize(
    "words", [("--package=--index-url=x", "--versions=1,2"), ("--package=p", "--versions=1,2", "--with=-rx")]
)
def test_an_option_is_no_package(words: tuple[str, ...]) -> None:
    """
    A package or requirement that begins with a dash is refused before an installer is started.
    """
    symptom = ("--metric", "decode_throughput", "--at-least", "1")

    ran = CliRunner().invoke(gatekeeper, ["bisect", "slo.toml", *symptom, *words])

    assert isinstance(ran.exception, InputError), ran.output
    assert "is an option and not a package" in str(ran.exception)
