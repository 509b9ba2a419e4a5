"""Exit codes of errors, and the nearest known word."""

from gatekeeper.core.errors import GatekeeperError, HostLacksError, InputError, UnprovableError, did_you_mean
from gatekeeper.core.metrics import BY_NAME


def test_exit_codes_of_errors() -> None:
    """The contract's codes: input 2, unprovable 2, this host 3, ours 4."""
    assert [2, 2, 3, 4] == [kind.exit_code for kind in (InputError, UnprovableError, HostLacksError, GatekeeperError)]


def test_did_you_mean() -> None:
    """The nearest word is asked for; where none is near, all are listed."""
    assert "did you mean 'ttft'?" == did_you_mean("tttf", BY_NAME)
    assert "allowed: a, b" == did_you_mean("zzzzzz", ["b", "a"])
