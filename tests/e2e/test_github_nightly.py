"""The nightly workflow's shell steps, run in order, with a gatekeeper and a gh that record their arguments."""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.builders.github import Runner, document, put_on_path, steps_of
from tests.builders.project_folder import ROOT

WORKFLOW = ROOT / ".github" / "workflows" / "nightly-soak.yml"
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash to run the steps")

GATEKEEPER = """{ printf '<%s>' "$@"; echo; } >> "$CALLS"
case "$1 $2" in
"remote certify")
  echo "ssh: $GATEKEEPER_SSH owner: $GATEKEEPER_OWNER" >> "$CALLS"
  while [ "$1" != --output ]; do shift; done
  if [ "$CODE" = 3 ]; then echo "gatekeeper: @everyone no route to it" >&2; exit 3; fi
  mkdir -p "$2" && echo '{}' > "$2/manifest.json" && touch "$2/SHA256SUMS"
  exit "$CODE"
  ;;
report*)
  case "$4" in
  line) echo "m4-24gb: promoted (exit code $CODE): so" ;;
  *) echo "# a report" ;;
  esac
  ;;
esac
"""
GH = """{ printf 'gh'; printf '<%s>' "$@"; echo; } >> "$CALLS"
if [ "$1 $2" = "issue list" ]; then echo "$TITLE" >> "$CALLS"; printf '%s' "$OPEN"; fi
"""


@dataclass
class Job(Runner):
    """The soak job on a runner."""

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls.txt"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def key(tmp_path: Path) -> str:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")
    key_file = tmp_path / "made"
    command: list[str | Path] = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "a test", "-f", key_file]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return key_file.read_text()


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Job]:
    def lay(code: int = 0, open_issue: str = "", **values: str) -> Job:
        folder = tmp_path / "a runner"
        path = put_on_path(folder / "bin", os.environ["PATH"], gatekeeper=GATEKEEPER, gh=GH)
        (folder / "checkout" / "soak").mkdir(parents=True)
        shutil.copy(ROOT / "soak" / "nightly.sh", folder / "checkout" / "soak")
        names = ("inputs.slo", "inputs.host", "vars.SOAK_SLO", "vars.SOAK_RUNNER", "secrets.SOAK_SSH_KEY")
        expressions = dict.fromkeys((*names, "secrets.SOAK_KNOWN_HOSTS", "steps.night.outputs.exit-code"), "") | {
            "vars.SOAK_HOST": "soak@mini",
            "runner.temp": str(folder / "temp"),
            "github.repository": "some/where",
            "github.token": "tok",
            "github.server_url": "https://github.example",
            "github.run_id": "17",
        }
        expressions |= {name.replace("__", "."): value for name, value in values.items()}
        # The installation is tested with the action.
        steps = [step for step in steps_of(WORKFLOW) if step.get("name") != "Install gatekeeper"]
        environment = {"PATH": path, "CALLS": str(folder / "calls.txt"), "CODE": str(code), "OPEN": open_issue}
        soak_job = Job(steps, folder, folder / "checkout", expressions, environment)
        (job,) = document(WORKFLOW)["jobs"].values()
        soak_job.environment |= {name: soak_job.fill(value) for name, value in job["env"].items()}
        return soak_job

    return lay


def test_a_good_night_opens_nothing(job: Callable[..., Job]) -> None:
    """SLO and host reach gatekeeper, line and report stand on the job's page, the runs are uploaded."""
    soak_job = job()

    done = soak_job.run()

    assert 0 == done.code, done.log
    assert soak_job.calls[0].startswith("<remote><certify><slos/m4-24gb-nightly.toml><--on><soak@mini><--output>")
    assert "ssh:  owner: github.com/some/where" == soak_job.calls[1]
    assert not any(call.startswith("gh") for call in soak_job.calls)
    assert all(word in done.summary for word in ("m4-24gb: promoted", "exit code 0", "on soak@mini; "))
    assert "# a report" in done.summary
    assert "nightly-soak" == done.uploaded
    assert (soak_job.folder / "checkout" / "nightly-soak" / "last.txt").is_file()


def test_an_option_is_no_good_night(job: Callable[..., Job]) -> None:
    """An SLO that is an option, such as --help, measures nothing: the job fails."""
    soak_job = job(inputs__slo="--help")

    done = soak_job.run()

    assert 0 != done.code
    assert "slo is a path" in done.log
    assert not any("<certify>" in call for call in soak_job.calls)


def test_a_bad_night_opens_an_issue(job: Callable[..., Job]) -> None:
    """Line and page are in it, indented, so that a name in it mentions no user; the code ends the job."""
    soak_job = job(code=1, inputs__slo="my slos/a $(touch hacked).toml", inputs__host="mini; touch hacked")

    done = soak_job.run()

    calls, label = "\n".join(soak_job.calls), "<--label><nightly-soak>"
    title = "Nightly soak: a $(touch hacked) on mini; touch hacked"
    assert 1 == done.code
    assert f"gh<issue><list><--state><open>{label}" in calls
    assert f"gh<issue><create><--title><{title}>{label}<--body><    m4-24gb: promoted (exit code 1)" in calls
    assert "https://github.example/some/where/actions/runs/17>" in calls
    assert calls.index("gh<label><create><nightly-soak><--force>") < calls.index("gh<issue><create>")
    assert "comment" not in calls
    assert not list(soak_job.folder.rglob("hacked"))


def test_a_second_bad_night_adds_to_it(job: Callable[..., Job]) -> None:
    """An open issue of the same title gets a comment, and no second one is opened."""
    soak_job = job(code=3, open_issue="42")

    done = soak_job.run()

    calls, line = "\n".join(soak_job.calls), "m4-24gb-nightly: unproven (exit code 3): @everyone no route to it"
    assert (3, True) == (done.code, f"gh<issue><comment><42><--body><    {line}" in calls)
    assert "Nightly soak: m4-24gb-nightly on soak@mini" in soak_job.calls
    assert "create" not in calls


def test_a_night_that_never_began_is_told(job: Callable[..., Job]) -> None:
    """The step before it fails: no success is made of that, an issue says so, and the job ends with 4."""
    soak_job = job()

    done = soak_job.run(without="Soak")

    assert 1 == done.code
    assert "The night did not start" in done.summary
    assert "The night did not start" in "\n".join(soak_job.calls)
    assert 4 == soak_job.run_step(soak_job.steps[-1], CODE="").returncode


def test_the_key_is_read_by_this_job_alone(job: Callable[..., Job], key: str) -> None:
    """The keys lie in files of mode 600, ssh trusts no other host, nothing is printed, and nothing is left."""
    host_key = "mini ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1sVpQmfZ0c5LZ0Zy5p5m1qVJmRr3nq9Wv8m9V0x3yH"
    secrets = {"secrets__SOAK_SSH_KEY": key.replace("\n", "\r\n"), "secrets__SOAK_KNOWN_HOSTS": host_key}
    soak_job = job(**secrets)
    step = next(step for step in soak_job.steps if "key where" in step.get("name", ""))
    ssh_files = soak_job.folder / "temp" / "nightly-soak-ssh"

    put = soak_job.run_step(step)

    assert (0, "") == (put.returncode, put.stdout + put.stderr)
    assert {0o600} == {path.stat().st_mode & 0o777 for path in ssh_files.iterdir()}
    assert 0o700 == ssh_files.stat().st_mode & 0o777
    assert f"ssh -F '{ssh_files}/config'" == soak_job.environment["GATEKEEPER_SSH"]
    public = subprocess.run(["ssh-keygen", "-y", "-f", ssh_files / "key"], capture_output=True, text=True, check=False)
    assert public.stdout.startswith("ssh-ed25519 "), public.stderr
    if shutil.which("ssh") is not None:
        ssh_options = subprocess.run(
            ["ssh", "-F", ssh_files / "config", "-G", "mini"], capture_output=True, text=True, check=False
        ).stdout.splitlines()
        assert f"identityfile {ssh_files}/key" in [line.replace('"', "") for line in ssh_options]
        assert {"stricthostkeychecking true", "identitiesonly yes"} <= set(ssh_options)

    done = soak_job.run()

    assert 0 == done.code, done.log
    assert f"ssh: ssh -F '{ssh_files}/config' owner: github.com/some/where" in soak_job.calls
    assert not ssh_files.exists()
    secret = key.splitlines()[1]
    assert secret not in done.log
    assert not [
        path for path in soak_job.folder.rglob("*") if path.is_file() and secret in path.read_text(errors="replace")
    ]


def test_a_host_key_is_never_taken_on_trust(job: Callable[..., Job]) -> None:
    """A key without known hosts ends the job before the night, with an issue."""
    soak_job = job(secrets__SOAK_SSH_KEY="a key")

    done = soak_job.run()

    assert 1 == done.code
    assert "SOAK_KNOWN_HOSTS" in done.log
    assert not any("certify" in call for call in soak_job.calls)
    assert any(call.startswith("gh<issue><create>") for call in soak_job.calls)


def test_without_a_host_nothing_is_done() -> None:
    """A copy of this repository without a Mac runs no night, at its schedule or by hand."""
    (job,) = document(WORKFLOW)["jobs"].values()

    assert "${{ inputs.host != '' || vars.SOAK_HOST != '' }}" == job["if"]
    assert job["steps"][4]["timeout-minutes"] < job["timeout-minutes"]
