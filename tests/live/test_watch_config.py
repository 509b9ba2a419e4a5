"""The configuration of a watch: wrong options, and what follows from the policy."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from gatekeeper.cli.main import gatekeeper
from gatekeeper.core.errors import InputError
from gatekeeper.core.policy import Policy
from tests.builders.deployment import Deployed
from tests.builders.watch import context, guard


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--interval", "soon"), "--interval: cannot read 'soon'"),
        (("--interval", "2h", "--rounds", "1"), "--interval: missing_for is shorter than interval"),
        (("--duty", "2", "--rounds", "1"), "--duty: must be less than or equal to 0.5"),
        (("--on-change", "'", "--rounds", "1"), "--on-change ': No closing quotation"),
        (("--on-change", " ", "--rounds", "1"), "--on-change names no program"),
        (("--run", "nowhere", "--rounds", "1"), "there is no run nowhere"),
        (("--slo", "nowhere.toml", "--rounds", "1"), "SLO file nowhere.toml does not exist"),
        (("--url", "localhost:8080", "--rounds", "1"), "--url localhost:8080 is not an http address"),
        (("--plain-url", "ftp://a", "--rounds", "1"), "--plain-url ftp://a is not an http address"),
        (("--url", "http://a:1", "--plain-url", "http://a:1/v1"), "--url and --plain-url are both http://a:1"),
        (("--host-name", "mini", "--rounds", "1"), "--host-name names this machine at --listen, which is missing"),
    ],
)
def test_wrong_options_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    """A wrong option is exit code 2 with its reason, before any request or file."""
    deployed = Deployed.served(tmp_path, "http://127.0.0.1:9")
    monkeypatch.chdir(deployed.path)
    ran = CliRunner().invoke(gatekeeper, ["watch", "policy.toml", "--run", "run", *words])

    assert isinstance(ran.exception, InputError), ran.output
    assert message in ran.exception.message
    assert not (tmp_path / "policy.live.toml").exists()


def test_a_run_that_promoted_nothing_has_no_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says that the run decided so, and where its reasons are: the path is not mistyped."""
    deployed = Deployed.served(tmp_path, "http://127.0.0.1:9")
    (deployed.path / "run" / "policy.toml").unlink()
    monkeypatch.chdir(deployed.path)
    error = CliRunner().invoke(gatekeeper, ["watch", "run/policy.toml"]).exception

    assert isinstance(error, InputError)
    assert "wrote no policy.toml" in error.message
    assert "gatekeeper report run" in error.hint


def test_an_unproven_run_allows_no_policy(tmp_path: Path) -> None:
    """A policy written by hand is refused, though it names the run's verdict."""
    deployed = Deployed.scripted(tmp_path)
    (deployed.path / "run" / "policy.toml").unlink()

    with pytest.raises(InputError, match="the run is unproven, and certified none"):
        deployed.watch(1)


def policy(interval: float, **more: float) -> Policy:
    certified_policy = context(guard("swap_growth", at_most=1e9, **more)).policy
    watch = certified_policy.watch.model_copy(update={"interval": interval})
    return certified_policy.model_copy(update={"watch": watch})


def test_a_chance_of_false_alarms_that_no_answer_can_reach_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1e-300 would need more answers than can be counted."""
    deployed = Deployed.served(tmp_path, "http://127.0.0.1:9")
    deployed.edited(watch={"false_alarms": 1e-300})
    monkeypatch.chdir(deployed.path)

    error = CliRunner().invoke(gatekeeper, ["watch", "policy.toml", "--run", "run", "--rounds", "1"]).exception

    assert isinstance(error, InputError)
    assert "false_alarms" in error.message
    assert "0.000001" in error.message


@pytest.mark.parametrize(("key", "value"), [("interval", 1e-300), ("interval", 1e-9)])
def test_an_interval_without_length_is_refused(tmp_path: Path, key: str, value: float) -> None:
    """An interval in which nothing can be measured is an error of the policy's file, no overflow."""
    deployed = Deployed.scripted(tmp_path)
    deployed.policy(watch={key: value})

    with pytest.raises(InputError, match="interval"):
        deployed.watch(1)
