"""The nightly workflow's shell steps, run in order, with a gatekeeper and a gh that write down what they were asked."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.builders.place import ROOT
from tests.e2e.test_github import document, steps_of

WORKFLOW = ROOT / ".github" / "workflows" / "nightly-soak.yml"
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash to run the steps")

GATEKEEPER = """#!/bin/sh
{ printf '<%s>' "$@"; echo; } >> "$CALLS"
case "$1 $2" in
"remote prune") ;;
"remote certify")
  echo "ssh: $GATEKEEPER_SSH owner: $GATEKEEPER_OWNER" >> "$CALLS"
  while [ "$1" != --out ]; do shift; done
  if [ "$CODE" = 3 ]; then echo "gatekeeper: @everyone no route to it" >&2; exit 3; fi
  mkdir -p "$2" && echo '{}' > "$2/manifest.json" && touch "$2/SHA256SUMS"
  exit "$CODE"
  ;;
report*)
  case "$4" in
  line) echo "m4-24gb: told (exit code $CODE): so" ;;
  *) echo "# a report" ;;
  esac
  ;;
esac
"""
GH = """#!/bin/sh
{ printf 'gh'; printf '<%s>' "$@"; echo; } >> "$CALLS"
if [ "$1 $2" = "issue list" ]; then echo "$TITLE" >> "$CALLS"; printf '%s' "$OPEN"; fi
"""


@dataclass
class Job:
    """The soak job on a runner: each step's shell with the environment that the runner would give it."""

    folder: Path
    values: dict[str, str]
    code: int = 0
    open_issue: str = ""
    exported: dict[str, str] = field(default_factory=dict)
    said: str = ""
    uploaded: str | None = None

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls.txt"
        return path.read_text().splitlines() if path.exists() else []

    def value(self, expression: str) -> str:
        """Return the first of `a || b || 'c'` that is not empty."""
        for part in expression.split("||"):
            word = part.strip()
            found = word[1:-1] if word.startswith("'") else self.values[word]
            if found:
                return found
        return ""

    def filled(self, text: Any) -> str:
        return re.sub(r"\$\{\{ (.+?) \}\}", lambda found: self.value(found[1]), str(text))

    def holds(self, condition: str, *, failed: bool) -> bool:
        """Tell whether a step is run: `always()`, or nothing failed, and the night's exit code is as it says."""
        wanted = condition.removeprefix("${{ ").removesuffix(" }}")
        if failed and "always()" not in wanted:
            return False
        if "exit-code != '0'" in wanted:
            return self.values["steps.night.outputs.exit-code"] != "0"
        assert wanted in {"", "always()"}, wanted
        return True

    def run(self, *, without: str = "") -> int:
        """Run the job's steps, but the one named *without*, which fails; return the job's exit code."""
        (job,) = document(WORKFLOW)["jobs"].values()
        shared = {name: self.filled(value) for name, value in job["env"].items()}
        status = 0
        for step in steps_of(WORKFLOW):
            if not self.holds(step.get("if", ""), failed=bool(status)):
                continue
            if "uses" in step:
                if step["uses"].startswith("actions/upload-artifact"):
                    self.uploaded = step["with"]["path"]
                continue
            if step["name"] == "Install gatekeeper":
                continue  # the action's own installation is tested beside it
            if step["name"] == without:
                status = 1
                continue
            own = {name: self.filled(value) for name, value in step.get("env", {}).items()}
            ran = self.bash(step["run"], shared | own)
            self.said += ran.stdout + ran.stderr
            status = status or ran.returncode
            self.read_back()
        return status

    def bash(self, script: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        (self.folder / "step.sh").write_text(script)
        files = {"GITHUB_OUTPUT": "outputs.txt", "GITHUB_STEP_SUMMARY": "summary.md", "GITHUB_ENV": "env.txt"}
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "../step.sh"],
            cwd=self.folder / "checkout",
            env={
                "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
                "CALLS": str(self.folder / "calls.txt"),
                "CODE": str(self.code),
                "OPEN": self.open_issue,
                **{name: str(self.folder / file) for name, file in files.items()},
                **self.exported,
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def read_back(self) -> None:
        """Take over what a step wrote for those after it."""
        for file, names in (("outputs.txt", "steps.night.outputs."), ("env.txt", "")):
            path = self.folder / file
            for name, _, value in (line.partition("=") for line in path.read_text().splitlines() if path.exists()):
                (self.values if names else self.exported)[f"{names}{name}"] = value

    @property
    def summary(self) -> str:
        return (self.folder / "summary.md").read_text()


@pytest.fixture
def key(tmp_path: Path) -> str:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")
    made = tmp_path / "made"
    command: list[str | Path] = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "a test", "-f", made]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return made.read_text()


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Job]:
    def lay(code: int = 0, open_issue: str = "", **values: str) -> Job:
        folder = tmp_path / "a runner"
        (folder / "bin").mkdir(parents=True)
        for name, text in (("gatekeeper", GATEKEEPER), ("gh", GH)):
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)
        (folder / "checkout" / "soak").mkdir(parents=True)
        shutil.copy(ROOT / "soak" / "nightly.sh", folder / "checkout" / "soak")
        for file in ("outputs.txt", "env.txt"):
            (folder / file).touch()
        known = {
            "inputs.slo": "",
            "inputs.host": "",
            "vars.SOAK_SLO": "",
            "vars.SOAK_HOST": "soak@mini",
            "vars.SOAK_RUNNER": "",
            "secrets.SOAK_SSH_KEY": "",
            "secrets.SOAK_KNOWN_HOSTS": "",
            "runner.temp": str(folder / "temp"),
            "github.repository": "some/where",
            "github.token": "tok",
            "github.server_url": "https://github.example",
            "github.run_id": "17",
            "steps.night.outputs.exit-code": "",
        }
        return Job(folder, known | {name.replace("__", "."): value for name, value in values.items()}, code, open_issue)

    return lay


def test_a_good_night_opens_nothing(job: Callable[..., Job]) -> None:
    """
    The SLO and the host reach gatekeeper, line and report stand on the job's page, the runs are uploaded, exit code 0.
    """
    made = job()

    status = made.run()

    assert 0 == status, made.said
    assert made.calls[0].startswith("<remote><certify><slos/m4-24gb.toml><--on><soak@mini><--out>")
    assert "ssh:  owner: github.com/some/where" == made.calls[1]
    assert not any(call.startswith("gh") for call in made.calls)
    assert "m4-24gb: told (exit code 0): so; on soak@mini; " in made.summary
    assert "# a report" in made.summary
    assert "nightly-soak" == made.uploaded
    assert (made.folder / "checkout" / "nightly-soak" / "last.txt").is_file()


def test_a_bad_night_opens_an_issue(job: Callable[..., Job]) -> None:
    """
    The line and the job's page are in it, indented, so that nobody is called by a name in it; the code ends the job.
    """
    made = job(code=1, inputs__slo="my slos/a $(touch hacked).toml", inputs__host="mini; touch hacked")

    status = made.run()

    assert 1 == status
    calls = "\n".join(made.calls)
    title = "Nightly soak: a $(touch hacked) on mini; touch hacked"
    assert "gh<issue><list><--state><open><--label><nightly-soak>" in calls
    assert (
        f"gh<issue><create><--title><{title}><--label><nightly-soak><--body><    m4-24gb: told (exit code 1)" in calls
    )
    assert "https://github.example/some/where/actions/runs/17>" in calls
    assert calls.index("gh<label><create><nightly-soak><--force>") < calls.index("gh<issue><create>")
    assert "comment" not in calls
    assert not list(made.folder.rglob("hacked"))


def test_a_second_bad_night_adds_to_it(job: Callable[..., Job]) -> None:
    """
    Where an issue of the same title is open it gets a comment, and no second one is opened; the title is what the
    list is searched for.
    """
    made = job(code=3, open_issue="42")

    status = made.run()

    assert 3 == status
    calls = "\n".join(made.calls)
    assert "gh<issue><comment><42><--body><    m4-24gb: unproven (exit code 3): @everyone no route to it" in calls
    assert "Nightly soak: m4-24gb on soak@mini" in made.calls
    assert "create" not in calls


def test_a_night_that_never_began_is_told(job: Callable[..., Job]) -> None:
    """
    The step before it fails: no success is made of that, an issue says so, and the job ends with 4.
    """
    made = job()

    status = made.run(without="Soak")

    assert 1 == status
    assert "The night did not begin" in made.summary
    assert "The night did not begin" in "\n".join(made.calls)
    verdict = steps_of(WORKFLOW)[-1]
    assert 4 == made.bash(verdict["run"], {"CODE": ""}).returncode


def test_the_key_is_read_by_this_job_alone(job: Callable[..., Job], key: str) -> None:
    """
    Key and host key lie in files of mode 600, ssh can read both and trusts no other host, nothing is printed, and
    nothing is left when the job has ended.
    """
    known = "mini ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1sVpQmfZ0c5LZ0Zy5p5m1qVJmRr3nq9Wv8m9V0x3yH"
    secrets = {"secrets__SOAK_SSH_KEY": key.replace("\n", "\r\n"), "secrets__SOAK_KNOWN_HOSTS": known}
    made = job(**secrets)
    step = next(one for one in steps_of(WORKFLOW) if "key where" in one.get("name", ""))
    place = made.folder / "temp" / "nightly-soak-ssh"

    put = made.bash(step["run"], {name: made.filled(value) for name, value in step["env"].items()})
    made.read_back()

    assert (0, "") == (put.returncode, put.stdout + put.stderr)
    assert {0o600} == {path.stat().st_mode & 0o777 for path in place.iterdir()}
    assert 0o700 == place.stat().st_mode & 0o777
    assert f"ssh -F '{place}/config'" == made.exported["GATEKEEPER_SSH"]
    public = subprocess.run(["ssh-keygen", "-y", "-f", place / "key"], capture_output=True, text=True, check=False)
    assert public.stdout.startswith("ssh-ed25519 "), public.stderr
    if shutil.which("ssh") is not None:
        shown = subprocess.run(
            ["ssh", "-F", place / "config", "-G", "mini"], capture_output=True, text=True, check=False
        ).stdout.splitlines()
        assert f"identityfile {place}/key" in [line.replace('"', "") for line in shown]
        assert {"stricthostkeychecking true", "identitiesonly yes"} <= set(shown)

    status = made.run()

    assert 0 == status, made.said
    assert f"ssh: ssh -F '{place}/config' owner: github.com/some/where" in made.calls
    assert not place.exists()
    secret = key.splitlines()[1]
    assert secret not in made.said
    assert not [
        path for path in made.folder.rglob("*") if path.is_file() and secret in path.read_text(errors="replace")
    ]


def test_a_host_key_is_never_taken_on_trust(job: Callable[..., Job]) -> None:
    """
    A key without known hosts ends the job before the night, with an issue.
    """
    made = job(secrets__SOAK_SSH_KEY="a key")

    status = made.run()

    assert 1 == status
    assert "SOAK_KNOWN_HOSTS is missing" in made.said
    assert not any("certify" in call for call in made.calls)
    assert any(call.startswith("gh<issue><create>") for call in made.calls)


def test_without_a_host_nothing_is_done() -> None:
    """
    A copy of this repository without a Mac runs no night, at its schedule or by hand.
    """
    (job,) = document(WORKFLOW)["jobs"].values()

    assert "${{ inputs.host != '' || vars.SOAK_HOST != '' }}" == job["if"]
    assert job["steps"][4]["timeout-minutes"] < job["timeout-minutes"]
