"""The limit of open files and connections, which a command may raise for itself."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from gatekeeper.cli.main import gatekeeper
from gatekeeper.core.system import own_limits

RAISED = """
import resource
from gatekeeper.core.system.own_limits import raise_descriptor_limit
raise_descriptor_limit()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(("soft", "hard"), [(100, 300), (300, 300)])
def test_the_soft_limit_of_descriptors_is_raised_to_the_hard_one(soft: int, hard: int) -> None:
    """A Mac begins with 256 and allows thousands; where no more are allowed, nothing changes."""
    limited = ["sh", "-c", f'ulimit -S -n {soft}; ulimit -H -n {hard}; exec "$@"', "sh", sys.executable, "-c", RAISED]

    ran = subprocess.run(limited, capture_output=True, text=True, check=True)

    assert f"{hard} {hard}" == ran.stdout.strip()


def test_a_watch_raises_its_limit_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does so before it opens its first file."""
    raised: list[bool] = []
    monkeypatch.setattr(own_limits, "raise_descriptor_limit", lambda: raised.append(True))

    refused = CliRunner().invoke(gatekeeper, ["watch", "nowhere.toml"])

    assert [True] == raised, refused
