"""Words of `bisect` that an installer would read as options."""

import pytest
from click.testing import CliRunner

from gatekeeper.cli.main import gatekeeper
from gatekeeper.core.errors import InputError
from tests.builders.golden_words import says


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--index-url=x", ("--package=--index-url=x", "--versions=1,2")),
        ("-rx", ("--package=p", "--versions=1,2", "--with=-rx")),
    ],
)
def test_an_option_is_no_package(option: str, words: tuple[str, ...]) -> None:
    """
    A package or requirement that begins with a dash is refused before an installer is started.
    """
    symptom = ("--metric", "decode_throughput", "--at-least", "1")

    ran = CliRunner().invoke(gatekeeper, ["bisect", "slo.toml", *symptom, *words])

    assert isinstance(ran.exception, InputError), ran.output
    says("regression", "an option is no package", ran.exception.message, option=option)
