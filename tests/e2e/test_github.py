"""The action and the workflows: valid by GitHub's own schema, least privilege, and their shell steps run."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.backends.test_real_servers import SYSTEMS
from tests.builders.github import Finished, Runner, document, put_on_path, steps_of
from tests.builders.golden_words import lines_with, says
from tests.builders.night import GATEKEEPER
from tests.builders.project_folder import ROOT, ProjectFolder

ACTION = ROOT / "action.yml"
REAL_SERVERS = ROOT / ".github" / "workflows" / "real-servers.yml"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash to run the steps")


@pytest.mark.parametrize(("schema", "files"), [("actions", [ACTION]), ("workflows", WORKFLOWS)])
def test_files_are_valid_by_the_published_schema(schema: str, files: list[Path]) -> None:
    """GitHub reads them: keys, types and expressions in their places."""
    pytest.importorskip("check_jsonschema", reason="the test extra is not installed")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.github-{schema}"]

    ran = subprocess.run([*command, *files], capture_output=True, text=True, timeout=120, check=False)

    assert 0 == ran.returncode, ran.stdout + ran.stderr


MORE = {
    "nightly-soak": {"soak": {"contents": "read", "issues": "write"}},
    "release": {
        "build": {"contents": "read", "id-token": "write", "attestations": "write"},
        "publish": {"contents": "write", "id-token": "write"},
    },
}
"""Jobs that need more than to read: an issue about a bad night, the provenance of a build, a release."""


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_take_no_more_than_they_need(path: Path) -> None:
    """Rights are read-only but for the jobs above, no token stays, and every job ends by itself."""
    read = document(path)

    assert {"contents": "read"} == read["permissions"]
    more = {name: job["permissions"] for name, job in read["jobs"].items() if "permissions" in job}
    assert MORE.get(path.stem, {}) == more
    assert "group" in read["concurrency"]
    assert [] == [name for name, job in read["jobs"].items() if "timeout-minutes" not in job]
    checkouts = [step for step in steps_of(path) if str(step.get("uses", "")).startswith("actions/checkout")]
    assert checkouts
    assert all(False is step["with"]["persist-credentials"] for step in checkouts)


@pytest.mark.parametrize("path", [ACTION, *WORKFLOWS], ids=lambda path: path.stem)
def test_scripts_are_given_values_by_their_environment(path: Path) -> None:
    """No expression is pasted into a script, where a value could become a command; bash can read every script."""
    for step in steps_of(path):
        script = step.get("run", "")
        assert "${{" not in script
        ran = subprocess.run(["bash", "-n", "-c", script], capture_output=True, text=True, timeout=30, check=False)
        assert (0, "") == (ran.returncode, ran.stderr), script


def test_self_hosted_machines_run_nothing_for_strangers() -> None:
    """A workflow on our own Macs is started by hand, a schedule or a caller, never by a pull request."""
    for path in WORKFLOWS:
        read = document(path)
        if any("self-hosted" in job["runs-on"] for job in read["jobs"].values()):
            assert {"workflow_dispatch", "workflow_call", "schedule"} >= read["on"].keys(), path


RUN = """echo "LLAMA_SERVER=$LLAMA_SERVER VLLM_MLX=$VLLM_MLX MAY_SKIP=${GATEKEEPER_TESTS_MAY_SKIP-any} $*" >> calls.txt
exit "$STATUS"
"""


@pytest.mark.parametrize("job", ["llama-server", "mlx-servers"])
@pytest.mark.parametrize("code", [0, 1])
def test_the_real_servers_are_tested_and_never_skipped(tmp_path: Path, job: str, code: int) -> None:
    """Each job builds or installs its servers, names them to their tests, and fails where those fail; none of them may
    be skipped but on a system where its server does not start.
    """
    steps = document(REAL_SERVERS)["jobs"][job]["steps"]
    path = put_on_path(tmp_path / "bin", os.environ["PATH"], python="exit 0")
    put_on_path(tmp_path / "tools", "", build_llama_server="", install_servers='echo export VLLM_MLX="$1/vllm"')
    put_on_path(tmp_path, "", run=RUN)
    environment = {"PATH": path, "STATUS": str(code)}
    values = {"steps.cache.outputs.cache-hit": "", "runner.temp": "/temp"}

    done = Runner(steps, tmp_path, tmp_path, values, environment).run()

    (call,) = (tmp_path / "calls.txt").read_text().splitlines()
    part, *tests = call.split(" tests ")[0], *call.split(" tests ")[1].split()
    expected = {
        "llama-server": rf"LLAMA_SERVER={tmp_path.resolve()}/build/\S*llama-server VLLM_MLX= MAY_SKIP=",
        "mlx-servers": re.escape(f"LLAMA_SERVER= VLLM_MLX=/temp/servers/vllm MAY_SKIP={may_skip()}"),
    }
    assert (True, code) == (bool(re.fullmatch(expected[job], part)), done.code), done.log
    assert tests
    assert [] == [test for test in tests if not (ROOT / test).is_file()]


def may_skip() -> str:
    """Return the reasons for which the weekly tests of servers of MLX may be skipped."""
    (step,) = (step for step in document(REAL_SERVERS)["jobs"]["mlx-servers"]["steps"] if step.get("name") == "Test")
    reasons: str = step["env"]["GATEKEEPER_TESTS_MAY_SKIP"]
    return reasons


def test_every_backend_that_linux_runs_is_in_the_weekly_tests() -> None:
    """The servers whose tests may be skipped in the weekly job are those that do not start on Linux."""
    (text,) = re.findall(r"set \((.*)\)", may_skip())

    assert {system.variable for system in SYSTEMS.values() if not system.starts} == set(text.split("|"))


def test_the_deploy_waits_for_the_certificate() -> None:
    """The deploy job needs the certify job and checks admission before its own step."""
    jobs = document(ROOT / ".github" / "workflows" / "certify.yml")["jobs"]

    assert ("certify", ["self-hosted", "macOS", "ARM64"]) == (jobs["deploy"]["needs"], jobs["certify"]["runs-on"])
    modes = [step.get("with", {}).get("mode") for step in jobs["deploy"]["steps"]]
    assert modes.index("admit") < len(modes) - 1
    inputs = document(ACTION)["inputs"]
    used = [step["with"] for job in jobs.values() for step in job["steps"] if step.get("uses") == "$/"]
    assert all(inputs.keys() >= step_inputs.keys() for step_inputs in used)


def runner_in(project: ProjectFolder, program: str | None = None, inputs: Mapping[str, str] | None = None) -> Runner:
    """Return a runner in a checkout with an SLO, where `gatekeeper` is on PATH."""
    path = put_on_path(project.path / "bin", project.environment["PATH"], gatekeeper=program or GATEKEEPER)
    (project.path / "runner").mkdir(exist_ok=True)
    input_values = {
        name: input_document.get("default", "") for name, input_document in document(ACTION)["inputs"].items()
    }
    input_values |= {"slo": "slo.toml", "install": "false", "grade": "demo", **(inputs or {})}
    values = {f"inputs.{name}": value for name, value in input_values.items()}
    values |= {f"steps.gate.outputs.{name}": "" for name in ("run", "exit-code", "outcome", "policy")}
    values |= {"runner.temp": str(project.path / "runner"), "github.action_path": str(ROOT)}
    values |= {
        "inputs.deploy": "cat",
        "github.token": "t",
        "github.repository": "o/r",
        "github.event.pull_request.number": "7",
    }
    return Runner(steps_of(ACTION), project.path, project.path, values, {**project.environment, "PATH": path})


@pytest.fixture
def runner(scripted: Callable[..., ProjectFolder]) -> Callable[..., Runner]:
    """Return a runner for a scripted subject."""

    def write(program: str | None = None, inputs: Mapping[str, str] | None = None, **changes: Any) -> Runner:
        return runner_in(scripted(**changes), program, inputs)

    return write


def test_a_failed_objective_ends_the_job(runner: Callable[..., Runner]) -> None:
    """The job fails with the verdict's code after summary and upload, and annotates each failed check once."""
    objective = [{"metric": "throughput_ratio", "at_least": 9.0, "why": "more than any draft gives"}]
    action = runner(objective=objective)

    done = action.run()

    assert (1, "1", "graded_back") == (done.code, done.outputs["exit-code"], done.outputs["outcome"])
    annotations = [line for line in done.log.splitlines() if line.startswith("::error")]
    assert annotations
    assert len(annotations) == len({*annotations})
    assert "graded back" in done.summary
    assert "gatekeeper-run" == done.uploaded


GH = """echo "$*" >> calls.txt
case "$*" in *--jq*) echo "$FOUND" ;; esac
exit "$STATUS"
"""


def commented(action: Runner, comment_id: str, status: int) -> tuple[Finished, list[str], str]:
    """Run the action with a `gh` that finds *comment_id*; return how it ended, the calls and the comment."""
    path = put_on_path(action.cwd / "tools", action.environment["PATH"], gh=GH)
    action.environment |= {"PATH": path, "FOUND": comment_id, "STATUS": str(status)}

    done = action.run()

    files = (action.cwd / "calls.txt", action.cwd / "runner" / "gatekeeper-comment.md")
    calls, comment = (file.read_text() if file.exists() else "" for file in files)
    return done, calls.splitlines(), comment


UPDATE, CREATE = "--method PATCH repos/o/r/issues/comments/42", "--method POST repos/o/r/issues/7/comments"


def test_a_promotion_goes_through(runner: Callable[..., Runner]) -> None:
    """Exit code 0, outcome and policy, the summary on the job's page and in the one comment, and the run uploaded."""
    action = runner(inputs={"run": "a run", "comment": "true"})

    done, calls, comment = commented(action, "42\n43", 0)
    shutil.copytree(action.cwd / "a run", action.cwd / "gatekeeper-run")  # as the step before the deploy does
    deployed = action.run_step(steps_of(ROOT / ".github" / "workflows" / "certify.yml")[-1])

    assert 0 == done.code, done.log
    expected = {"exit-code": "0", "outcome": "promoted", "policy": "a run/policy.toml", "run": "a run"}
    assert (expected, "a run") == (done.outputs, done.uploaded)
    assert "scripted" in done.summary.splitlines()[0]
    assert (action.cwd / "a run" / "SHA256SUMS").is_file()
    assert UPDATE in calls[1]  # it is found by its first line
    assert ("<!-- gatekeeper certify slo.toml -->", done.summary) == (
        comment.splitlines()[0], comment.partition("\n\n")[2]
    )  # fmt: skip
    assert (0, True) == (deployed.returncode, "[[route]]" in deployed.stdout)


COMMENTED: dict[str, tuple[dict[str, str], str, int, str, str]] = {
    "the first push": ({"comment": "true"}, "7", 0, CREATE, ""),
    "without the permission": ({"comment": "true"}, "7", 1, "", "pull-requests: write"),
    "no comment is wanted": ({}, "7", 0, "", ""),
    "no pull request": ({"comment": "true"}, "", 0, "", "not a pull request"),
    "no attestation was made": ({"attest": "true"}, "7", 0, "", "::warning::"),
}
"""The inputs, the pull request, how `gh` ends, a call of it, and words of the log."""


@pytest.mark.nightly  # each run of the action takes seconds; the others stay
@pytest.mark.parametrize("name", COMMENTED)
def test_a_comment_or_attestation_changes_no_verdict(runner: Callable[..., Runner], name: str) -> None:
    """One is made where it is wanted and can be, and where it fails the job warns and ends as the verdict says."""
    inputs, pull_request, status, call, words = COMMENTED[name]
    action = runner(inputs=inputs)
    action.values |= {
        "github.event.pull_request.number": pull_request,
        "steps.attest.outputs.bundle-path": "nowhere.json",
    }

    done, calls, comment = commented(action, "", status)

    assert (0, True) == (done.code, words in done.log), done.log
    assert call in "".join(calls[1:2])
    assert bool(calls) == (inputs.get("comment") == "true" and pull_request != "")
    assert not call or comment.partition("\n\n")[2] == done.summary


def test_a_long_summary_is_cut_between_characters(tmp_path: Path) -> None:
    """What drops the half of a character at the cut ends with an error all the same, which is none of the job's."""
    (line,) = [line for step in steps_of(ACTION) for line in step.get("run", "").splitlines() if "iconv" in line]
    (tmp_path / "summary").write_text("é" * 40_000)
    files = {"MARKER": "m" * 7, "TEXT": str(tmp_path / "summary"), "BODY": str(tmp_path / "body")}
    line = line.replace("60000", "59999")

    subprocess.run(["bash", "-e", "-o", "pipefail", "-c", line], env=os.environ | files, check=True)

    assert "m" * 7 + "\n\n" + "é" * 29_999 == (tmp_path / "body").read_text()


@pytest.mark.nightly
def test_a_demo_is_no_certificate(runner: Callable[..., Runner]) -> None:
    """By default a soak under 600 s ends the job with code 3, although it was promoted; the soak's line says why."""
    assert "certification" == document(ACTION)["inputs"]["grade"]["default"]

    done = runner(inputs={"grade": "certification"}).run()

    assert (3, "3", "promoted") == (done.code, done.outputs["exit-code"], done.outputs["outcome"])
    annotation = lines_with("a demo::", done.log).rpartition("::")[2]
    says("reports", "a demo is no certificate", annotation)
    assert "Demo: drafting gained" in done.summary


def test_a_wrong_file_is_said(runner: Callable[..., Runner]) -> None:
    """An SLO that cannot be read ends with code 2 and a summary that points to the log."""
    done = runner(inputs={"slo": "slos/$(touch hacked).toml"}).run()

    assert (2, "2") == (done.code, done.outputs["exit-code"])
    assert "does not exist" in done.log
    assert "before the first token" in done.summary


def test_a_value_never_becomes_a_command(runner: Callable[..., Runner]) -> None:
    """Inputs that look like shell are names of files and nothing else."""
    hostile = '"; touch hacked; $(touch hacked) `touch hacked`'
    action = runner(
        inputs=dict.fromkeys(("slo", "run", "runs", "max-age", "grade", "signed-by", "issuer", "mode"), hostile)
    )

    done = action.run()

    assert 2 == done.code
    assert not list(action.cwd.rglob("hacked"))


def test_a_dead_gate_is_no_pass(runner: Callable[..., Runner]) -> None:
    """Where gatekeeper itself is killed, its exit code is passed on; without a code at all the job ends with 4."""
    killed = runner(program="kill -9 $$").run()
    silent = runner().run_step(steps_of(ACTION)[-1], CODE="")

    assert (137, 4) == (killed.code, silent.returncode)
    assert "outcome" not in killed.outputs


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, ["--run", "gatekeeper-run", "--grade", "demo"]),
        ({"run": "a run", "max-age": "7d"}, ["--run", "a run", "--max-age", "7d", "--grade", "demo"]),
        ({"runs": "all runs", "grade": ""}, ["--runs", "all runs", "--grade", "certification"]),
        ({"signed-by": "who may"}, ["--run", "gatekeeper-run", "--grade", "demo", "--signed-by", "who may"]),
        (
            {"signed-by": "an identity", "issuer": "https://ci"},
            ["--run", "gatekeeper-run", "--grade", "demo", "--signed-by", "an identity", "--issuer", "https://ci"],
        ),
    ],
)
@pytest.mark.parametrize("code", [0, 1, 3])
def test_admission_runs_as_it_is_documented(
    runner: Callable[..., Runner], inputs: dict[str, str], words: list[str], code: int
) -> None:
    """The words reach the command one by one, its output is in the summary, and its exit code ends the job."""
    done = runner(program=f'printf "<%s>" "$@"; exit {code}', inputs={"mode": "admit", **inputs}).run()

    assert code == done.code
    assert {"exit-code": str(code)} == done.outputs
    assert "".join(f"<{word}>" for word in ("admit", "slo.toml", *words)) in done.summary
    assert done.uploaded is None


@pytest.mark.nightly
def test_what_was_certified_is_admitted(runner: Callable[..., Runner]) -> None:
    """The run of the first job is the proof of the second, a demo only where it is allowed; none is made over it."""
    action = runner(promote={"valid_for": "3650 d"})  # the simulated clock stands in the past

    def again(**inputs: str) -> Finished:
        for name in ("outputs.txt", "summary.md"):
            (action.cwd / name).unlink(missing_ok=True)
        action.values |= {f"inputs.{name.replace('_', '-')}": value for name, value in inputs.items()}
        return action.run()

    first, over = again(), again()
    compared = again(run="after", compare_with="gatekeeper-run")
    admitted, refused = (again(run="gatekeeper-run", mode="admit", grade=grade) for grade in ("demo", ""))

    assert [0, 2, 0, 0, 3] == [done.code for done in (first, over, compared, admitted, refused)], over.log
    assert ({"exit-code": "2"}, None) == (over.outputs, over.uploaded)
    assert ("exists" in over.log, "promoted" in over.summary) == (True, False)
    assert "no difference shown" in compared.summary
    assert ({"exit-code": "0"}, {"exit-code": "3"}) == (admitted.outputs, refused.outputs)
    assert admitted.summary.startswith("```\n")


@pytest.mark.nightly  # installs everything once more
def test_the_install_step_puts_the_command_on_path(runner: Callable[..., Runner]) -> None:
    """A fresh environment from this checkout, found by the steps that follow, and whole without the checkout."""
    action = runner(inputs={"install": "true", "python": sys.executable})

    ran = action.run_step(steps_of(ACTION)[0])

    assert 0 == ran.returncode, ran.stderr
    folder = Path((action.cwd / "path.txt").read_text().strip())
    alone = {"PATH": action.environment["PATH"], "HOME": str(action.cwd), "OLLAMA_MODELS": str(action.cwd)}
    for words, code in ((["init"], 3), (["plan", "slos/this-host.toml"], 2)):  # the canaries are inside the wheel
        command: list[str | Path] = [folder / "gatekeeper", *words]
        ended = subprocess.run(
            command, cwd=action.cwd, env=alone, capture_output=True, text=True, timeout=120, check=False
        )
        assert code == ended.returncode, ended.stderr
    assert "is not on this machine" in ended.stderr or "is not installed here" in ended.stderr


LINE_ENDS = "\v\f\u0085\u2028\u2029"


@pytest.mark.parametrize("mode", ["admit", "certify"])
@pytest.mark.parametrize("name", ["SLO", "RUN", "RUNS", "BEFORE"])
@pytest.mark.parametrize(
    "value",
    ["--help", "-h", "x\nexit-code=0\ny<<exit-code=3", "x\rexit-code=0", *(f"x{end}exit-code=0" for end in LINE_ENDS)],
)
def test_an_input_of_the_action_is_no_option_and_no_output(tmp_path: Path, mode: str, name: str, value: str) -> None:
    """A path that is an option of `admit`, or that writes outputs of its own, blocks the deploy with code 2."""
    yaml = pytest.importorskip("ruamel.yaml", reason="the test extra is not installed").YAML(typ="safe")
    (step,) = [step for step in yaml.load(ACTION)["runs"]["steps"] if step.get("id") == "gate"]
    outputs = tmp_path / "outputs"
    environment = {
        **os.environ, "MODE": mode, "SLO": "slo.toml", "RUN": "run", "RUNS": "", "MAX_AGE": "", "GRADE": "",
        "SIGNED_BY": "", "ISSUER": "", "BEFORE": "", "ANSWER": str(tmp_path / "answer"),
        "GITHUB_OUTPUT": str(outputs), name: value,
    }  # fmt: skip

    subprocess.run(["bash", "-e", "-c", step["run"]], cwd=tmp_path, env=environment, timeout=60, check=True)

    assert "exit-code=2\n" == outputs.read_text()


def install(tmp_path: Path, extras: str, python: str) -> subprocess.CompletedProcess[str]:
    """Run the step of the action that installs gatekeeper."""
    values = {"EXTRAS": extras, "PYTHON": python, "SOURCE": str(ROOT), "PLACE": str(tmp_path / "place")}
    command = ["bash", "-e", "-c", steps_of(ACTION)[0]["run"]]
    return subprocess.run(
        command, env={**os.environ, **values}, timeout=60, check=False, capture_output=True, text=True
    )


def test_an_old_python_is_named_before_anything_is_installed(tmp_path: Path) -> None:
    """The python3 of a stock Mac is 3.9: the error says which one is needed, and where to name it."""
    put_on_path(tmp_path / "bin", "", python3="exit 1")

    ran = install(tmp_path, "", str(tmp_path / "bin" / "python3"))

    assert 2 == ran.returncode
    assert all(words in ran.stderr for words in ("needs Python 3.11 or newer", "input python"))
    assert not (tmp_path / "place").exists()


@pytest.mark.parametrize("value", ["x\n::stop-commands::y", "x] @ https://elsewhere", "--index-url=x", "x y"])
def test_the_extras_of_the_action_are_names(tmp_path: Path, value: str) -> None:
    """Extras that write a line of their own into the log, or that are another requirement, install nothing."""
    ran = install(tmp_path, value, "false")

    assert (2, "") == (ran.returncode, ran.stdout)
    says("shipped", "the extras of the action are names", ran.stderr.removesuffix("\n"))
