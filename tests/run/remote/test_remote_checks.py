"""What a remote host lacks: `doctor --on`, and what is refused before a run begins."""

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gatekeeper import __version__
from gatekeeper.core.errors import HostLacksError
from gatekeeper.core.rules import RULES
from gatekeeper.run.remote.remote_checks import Installed, check_installed
from tests.builders.project_folder import ROOT
from tests.run.remote.conftest import CERTIFY, ON, Make, Pair, install

FAKETIME = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), None)
FDESETUP = "#!/bin/sh\necho FileVault is On.\n"


def slo_of(remote: Pair) -> dict[str, Any]:
    return tomllib.loads((remote.project.path / "slo.toml").read_text())


def items(document: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    return {item["what"]: item for item in document["items"] if item["kind"] == kind}


def test_a_doctor_looks_at_a_remote_host(pair: Make) -> None:
    """What `doctor` finds there, with the SLO's models, and what only matters from afar."""
    remote = pair(remote={"GATEKEEPER_HOST_AS": "macos", "PATH": "/usr/bin:/bin"})
    models = {"backend": "mlx", "target": "some/Little-2B-4bit", "drafts": ["some/Little-0.5B-4bit"]}
    remote.project.write_slo({**slo_of(remote), "subject": models})
    tool = remote.server.home / ".local/bin/fdesetup"
    tool.write_text(FDESETUP)
    tool.chmod(0o755)

    document = remote.project.run("doctor", "slo.toml", *ON, "--json", code=0).document
    text = remote.project.run("doctor", *ON, code=0).out

    assert (__version__, str(RULES)) == (document["versions"]["gatekeeper"], document["versions"]["rules"])
    assert str(remote.server.home) in items(document, "remote")["gatekeeper"]["found"]
    assert items(document, "remote")["rsync"]["found"] or items(document, "remote")["rsync"]["fix"]
    assert "fdesetup disable" in items(document, "remote")["FileVault off"]["fix"]
    missing = items(document, "model")
    assert {"some/Little-2B-4bit", "some/Little-0.5B-4bit"} == set(missing)
    assert all(f"hf download {name}" in item["fix"] for name, item in missing.items())
    assert any("powermetrics" in str(item["fix"]) for item in document["items"])
    assert text.index("the remote host") < text.index("serving systems")
    assert not remote.server.state.joinpath("jobs/doctor").exists()


def test_a_host_without_gatekeeper_is_told_how_to_install_it(pair: Make) -> None:
    """Both doctor and certify end with 3 and the command, and nothing is written there."""
    remote = pair()
    (remote.server.home / ".local/bin/gatekeeper").unlink()

    doctor = remote.project.run("doctor", *ON, code=3)
    certify = remote.project.run(*CERTIFY, code=3)

    assert "uv tool install" in doctor.out
    assert "neither on PATH nor in ~/.local/bin" in certify.err
    assert "uv tool install gatekeeper-slo" in certify.err
    assert not remote.server.state.exists()


@pytest.mark.parametrize("printed", [r"gatekeeper 9.9.9\nrules 99", "gatekeeper 0.1.0", "usage: no"])
def test_other_rules_are_refused_before_anything_starts(pair: Make, printed: str) -> None:
    """A gatekeeper with other rules, or one that does not know its own: both versions and the command, exit 3."""
    remote = pair()
    install(remote.server, f"if [ \"$1\" = --version ]; then printf '{printed}\\n'; else touch ~/called; fi")

    done = remote.project.run(*CERTIFY, code=3)

    if "gatekeeper" in printed:
        assert all(
            text in done.err for text in (printed.split()[1].partition("\\n")[0], f"{__version__} with rules {RULES}")
        )
        assert f"gatekeeper-slo=={__version__}" in done.err
    assert not (remote.server.home / "called").exists()
    assert not remote.server.state.exists()


def test_missing_models_are_named_before_anything_is_measured(pair: Make) -> None:
    """Each model that is not on the host, with its download: exit 3 in seconds, and no run is left there."""
    remote = pair()
    models = {"backend": "mlx", "target": "some/Little-2B-4bit", "drafts": ["some/Little-0.5B-4bit"]}
    objective = [{"metric": "throughput_ratio", "at_least": 1.1, "why": "it must pay"}]
    remote.project.write_slo({**slo_of(remote), "subject": models, "objective": objective})

    done = remote.project.run(*CERTIFY, code=3)

    assert all(f"hf download {name}" in done.err for name in models["drafts"])
    assert "hf download some/Little-2B-4bit" in done.err
    assert not list(remote.server.state.glob("jobs/*"))
    assert not (remote.project.path / "runs").exists()


def test_a_missing_model_is_named_before_another_one_is_uploaded(pair: Make) -> None:
    """The target is named by a path, and is uploaded; the draft by its hub name, and is not there: nothing is sent."""
    remote = pair()
    target = os.path.relpath(ROOT / "models/little-target", remote.project.path)
    models = {"backend": "mlx", "target": target, "drafts": ["some/Little-0.5B-4bit"]}
    objective = [{"metric": "throughput_ratio", "at_least": 1.1, "why": "it must pay"}]
    remote.project.write_slo({**slo_of(remote), "subject": models, "objective": objective})

    done = remote.project.run(*CERTIFY, code=3)

    assert "hf download some/Little-0.5B-4bit" in done.err
    assert "little-target" not in done.err
    assert not list(remote.server.state.glob("models/*"))
    assert not list(remote.server.state.glob("jobs/*"))


@pytest.mark.parametrize(("skew", "noted"), [(0.0, 0), (4.0, 0), (-6.0, 1), (299.0, 1)])
def test_clocks_that_are_apart_are_noted(skew: float, noted: int) -> None:
    """More than five seconds apart is a remark."""
    said: list[tuple[str, str]] = []

    check_installed("mini", installed(skew), lambda *what: said.append(what))

    assert ["clock"] * noted == [about for about, _ in said]


@pytest.mark.parametrize("skew", [-301.0, 86400.0])
def test_clocks_that_are_minutes_apart_prevent_the_run(skew: float) -> None:
    """A policy expires by that clock: more than five minutes apart is exit 3."""
    with pytest.raises(HostLacksError, match="its clock is"):
        check_installed("mini", installed(skew), lambda *_: None)


def installed(skew: float) -> Installed:
    versions = {"gatekeeper": __version__, "rules": str(RULES)}
    return Installed(places={"gatekeeper": "/g"}, versions=versions, skew_s=skew)


@pytest.mark.nightly
def test_a_clock_apart_is_noticed_for_real(pair: Make) -> None:
    """A clock that is a minute ahead is a remark; on a host ten minutes behind no run is started, exit 3."""
    if FAKETIME is None:
        pytest.skip("no libfaketime on this machine (Debian: faketime)")
    off = {"LD_PRELOAD": os.fspath(FAKETIME)}
    ahead = pair(remote={**off, "FAKETIME": "+60s"})
    noted = ahead.project.run(*CERTIFY, code=0)
    behind = pair(remote={**off, "FAKETIME": "-600s"})

    refused = behind.project.run(*CERTIFY, "--out", "other", code=3)

    # As near as a busy machine lets the two be compared.
    (lead,), (lag,) = re.findall(r"is (.*?) ahead", noted.err), re.findall(r"is (.*?) behind", refused.err)
    assert re.fullmatch(r"1 min|[56]\d(\.\d+)? s", lead)
    assert re.fullmatch(r"(9\.\d+|10(\.\d)?) min", lag)
    assert not behind.server.state.exists()
