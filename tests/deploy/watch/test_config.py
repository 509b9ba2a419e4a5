"""The configuration of a watch: wrong options, and what follows from the policy."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from gatekeeper.cli.deploy import watch
from gatekeeper.core.errors import InputError
from gatekeeper.core.policy import Policy
from gatekeeper.deploy.watch.config import host_interval
from gatekeeper.deploy.watch.guard_samples import MAX_SAMPLES
from tests.builders.deployment import Deployed
from tests.builders.watch import context, guard


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--once", "--rounds", "2"), "exclude each other"),
        (("--interval", "soon"), "--interval: cannot read 'soon'"),
        (("--interval", "2h", "--once"), "--interval: missing_for is shorter than interval"),
        (("--duty", "2", "--once"), "--duty: Input should be less than or equal to 0.5"),
        (("--on-change", "'", "--once"), "--on-change ': No closing quotation"),
        (("--on-change", " ", "--once"), "--on-change names no program"),
        (("--run", "nowhere", "--once"), "nowhere has no manifest.json"),
        (("--slo", "nowhere.toml", "--once"), "SLO file nowhere.toml does not exist"),
        (("--url", "localhost:8080", "--once"), "--url localhost:8080 is no address"),
        (("--plain-url", "ftp://a", "--once"), "--plain-url ftp://a is no address"),
        (("--limit", "0s", "--once"), "--limit 0s: nothing is that short"),
    ],
)
def test_wrong_options_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], says: str
) -> None:
    """
    A wrong option ends in 2 and says what is wrong, before any request or file.
    """
    made = Deployed.served(tmp_path, "http://127.0.0.1:9")
    monkeypatch.chdir(made.path)
    ran = CliRunner().invoke(watch, ["policy.toml", "--run", "run", *words])

    assert isinstance(ran.exception, InputError), ran.output
    assert says in ran.exception.message
    assert not (tmp_path / "policy.live.toml").exists()


def test_a_folder_in_place_of_a_policy_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The run itself in place of its policy, and no run at all: both errors say what to name.
    """
    made = Deployed.served(tmp_path, "http://127.0.0.1:9")
    monkeypatch.chdir(made.path)
    folder, bare = (CliRunner().invoke(watch, words).exception for words in (["run"], ["policy.toml"]))

    assert isinstance(folder, InputError)
    assert isinstance(bare, InputError)
    assert "gatekeeper watch run/policy.toml" in folder.hint
    assert "--run RUN_DIR" in bare.hint


@pytest.mark.parametrize(("interval", "expected"), [(60.0, 5.0), (10.0, 1.0), (600.0, 10.0)])
def test_the_host_is_sampled_as_often_as_the_interval_needs(interval: float, expected: float) -> None:
    """
    Twelve samples a round, but not more than one a second, nor fewer than one in ten.
    """
    assert expected == host_interval(policy(interval))


@pytest.mark.parametrize("interval", [10.0, 60.0, 3600.0])
def test_a_long_stretch_is_kept_whole(interval: float) -> None:
    """
    A guard that looks back for two days finds every sample of them: what was dropped would count as missing.
    """
    over = 2 * 86400.0

    assert over / host_interval(policy(interval, over=over)) <= MAX_SAMPLES / 2


def policy(interval: float, **more: float) -> Policy:
    known = context(guard("swap_growth", at_most=1e9, **more)).policy
    watch = known.watch.model_copy(update={"interval": interval})
    return known.model_copy(update={"watch": watch})
