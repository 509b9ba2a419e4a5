"""Mistakes that people make: each message names the file, the line and the key, and what to do next."""

import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.builders.project_folder import ROOT, ProjectFolder

GOOD = """\
schema = 1
name = "mine"

[subject]
backend = "scripted"
target = "t"
drafts = ["heavy", "light"]
script = "truth.json"

[sampling]
max_tokens = 160
temperature = 0.0

[[workload]]
name = "easy"
canaries = "easy.jsonl"

[[workload]]
name = "hard"
canaries = "hard.jsonl"
speculation = "optional"

[sweep]
repeats = 1
num_draft_tokens = [2, 4]

[soak]
duration = "150 s"
profile = "steady"

[[objective]]
metric = "throughput_ratio"
at_least = 1.16
why = "it must pay"

[[objective]]
metric = "acceptance_rate"
at_least = 0.5
workloads = ["easy"]
why = "a draft that fits"
# end
"""

BOUND = "at_least = 1.16"
METRIC = '"throughput_ratio"'
FIRST = '[[objective]]\nmetric = "throughput_ratio"'
SECOND = '[[objective]]\nmetric = "acceptance_rate"'
LENGTHS = "num_draft_tokens = [2, 4]"
ONE_BOUND = "throughput_ratio': set exactly one of at_least, at_most: "
WORKLOADS = GOOD[GOOD.index("[[workload]]") : GOOD.index("[sweep]")]

# What is written, what instead, what is said of which key, the next step; the line, where it is not the changed one.
MISTAKES: dict[str, tuple[str, str, str, str] | tuple[str, str, str, str, str]] = {
    "a key": ("max_tokens = 160", "max_tokns = 160", "sampling.max_tokns: unknown key", "'max_tokens'"),
    "a table": ("[sampling]", "[samplng]", "samplng: unknown key", "'sampling'"),
    "a knob": (LENGTHS, "beams = [2]", "sweep.beams: unknown key", "allowed: block_size"),
    "a metric": (METRIC, '"througput_ratio"', "unknown metric", "'throughput_ratio'"),
    "a metric in capitals": (METRIC, '"TTFT"', "unknown metric 'TTFT'", "'ttft'"),
    "speedup": (METRIC, '"speedup"', "unknown metric 'speedup'", "'throughput_ratio'"),
    "no metric at all": (METRIC, '"xyz"', "unknown metric 'xyz'", "gatekeeper explain metrics"),
    "a backend": ('"scripted"', '"mxl"', "subject.backend: unknown backend 'mxl'", "'mlx'"),
    "llama.cpp": ('"scripted"', '"llama.cpp"', "unknown backend 'llama.cpp'", "'llama-server'"),
    "no schema": ("schema = 1\n", "", "line 1: schema: missing", "add schema"),
    "true": (BOUND, "at_least = true", "must be a number or a quantity, not true", "units: %"),
    "a gain in per cent": (BOUND, 'at_least = "20 %"', "0.2 times plain decoding's speed", "write 1.2"),
    "a number in quotes": ("max_tokens = 160", 'max_tokens = "160"', "max_tokens: must be a whole number", ""),
    "one draft": ('["heavy", "light"]', '"heavy"', "subject.drafts: must be a list", ""),
    "one bracket": (WORKLOADS, '[workload]\nname = "x"\n', "workload: must be a list", ""),
    "a tier": (
        'canaries = "easy.jsonl"', 'tier = "shrt"\ncanaries = "easy.jsonl"', 'workload[1].tier: "shrt"', "'short'"
    ),
    "another schema": ("schema = 1", "schema = 2", "schema: 2: must be 1", ""),
    "no bound": (f"{BOUND}\n", "", f"{ONE_BOUND}neither is set", "add at_least", FIRST),
    "per cent": ("at_least = 0.5", 'at_least = "50"', "never above 1", 'write 0.5 or "50 %"', SECOND),
    "a name twice": ('name = "hard"', 'name = "easy"', "[2].name: 'easy' is the name of workload[1]", "of its own"),
    "a workload": ('["easy"]', '["esy"]', "objective[2].workloads: unknown workload 'esy'", "'easy'"),
    "a draft": (LENGTHS, 'draft = ["hevy"]', "sweep.draft: 'hevy' is not one of subject.drafts", "'heavy'"),
    "a unit": ('"150 s"', '"150 sec"', "soak.duration: cannot read '150 sec'", "ms, s, min"),
    "a unit of another kind": (BOUND, 'at_least = "45 ms"', "cannot read '45 ms'", "these units: %"),
    "too long a soak": ('"150 s"', '"400 d"', "soak.duration: ", ""),
    "a profile": ('"steady"', '"stedy"', "soak.profile: unknown soak profile 'stedy'", "'steady'"),
    "a canary set": ('"easy.jsonl"', '"jsn"', "workload[1].canaries: unknown canary set 'jsn'", "'json'"),
    "a canary file": ('"easy.jsonl"', '"esy.jsonl"', "esy.jsonl does not exist", "easy.jsonl"),
    "not a number": (BOUND, "at_least = nan", "must be a finite number", ""),
    "a negative temperature": ("= 0.0", "= -1", "temperature: -1: must be greater than or equal to 0", ""),
    "a key twice": ("temperature = 0.0", "max_tokens = 3", "not TOML", "correct that line"),
    "no quote at the end": ('"150 s"', '"150 s', "not TOML", "correct that line"),
    "curly quotes": ('"150 s"', "\u201c150 s\u201d", "not TOML", 'write straight quotes in that line: "'),
    "no reason": ('why = "it must pay"\n', "", "objective[1].why: missing", "add why", FIRST),
    "an address": ('target = "t"', 'target = "t"\nurl = "localhost:80"', "url is not an http", "http://", "[subject]"),
}  # fmt: skip


@pytest.fixture
def project(scripted: Callable[..., ProjectFolder]) -> ProjectFolder:
    project = scripted()
    (project.path / "slo.toml").write_text(GOOD)
    return project


def test_the_file_without_a_mistake_is_planned(project: ProjectFolder) -> None:
    """Each mistake below is the only one."""
    project.run("plan", "slo.toml", code=0)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_its_line_and_the_next_step(project: ProjectFolder, mistake: str) -> None:
    """Exit code 2; file, line and key of the mistake, and a hint what to write instead."""
    (project.path / "folder").mkdir()
    old, new, says, hint, *elsewhere = MISTAKES[mistake]
    assert GOOD.count(old) == 1
    line = GOOD[: GOOD.index(elsewhere[0] if elsewhere else old)].count("\n") + 1
    (project.path / "slo.toml").write_text(GOOD.replace(old, new))

    refused = project.run("certify", "slo.toml", code=2)

    message, _, advice = refused.err.partition("hint:")
    assert "slo.toml: " in message
    assert f"line {line}" in message
    assert says in message
    assert hint in advice


SET = ("certify", "slo.toml", "--only", "soak", "--set")
# The words of the command line; what is said, and the next step.
COMMANDS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "a port in words": (("certify", "slo.toml", "--serve", "abc"), "'abc' is no port", "certify --help"),
    "a format": (("report", "run", "--format", "htlm"), "'htlm' is not one of", "did you mean 'html'?"),
    "no run yet": (("report", "latest"), "no run in the folder", "gatekeeper certify"),
    "a file that exists": (("init", "-o", "slo.toml"), "already exists", "-o slo-2.toml"),
    "a key of a canary": (("canaries", "check", "key.jsonl"), "unknown key; did you mean 'max_tokens'?", "has id"),
    "no log": (
        ("canaries", "import", "slo.toml", "-o", "x"),
        "a line that is not JSON",
        "one request a line",
    ),
    "an empty log": (("canaries", "import", "empty.jsonl", "-o", "x"), "no line is in it", "explain your-canaries"),
    "a model": (("init", "--target", "nope/x", "--draft", "d", "-o", "x"), "not on this machine", "hf download nope/x"),
    "two SLOs": (("certify", "slo.toml", "slo.toml"), "extra argument (slo.toml)", "certify [OPTIONS] SLO"),
    "no run to sign": (("sign", "folder", "--bundle", "x"), "folder has no manifest.json", "a run directory"),
    "an SLO for a policy": (("watch", "slo.toml", "--url", "http://x"), "has no manifest.json", "not the SLO file"),
    "an option of another command": (("certify", "slo.toml", "--secconds", "3"), "no such option", "see: gatekeeper"),
    "a long option": (("versus", "a", "b", "--secconds", "3"), "no such option '--secconds'", "'--seconds'"),
    "an option in capitals": (("certify", "slo.toml", "--OUT", "x"), "no such option '--OUT'", "'--out'"),
    "a shipped SLO by its path": (("plan", "slos/smoke.toml"), "does not exist", "did you mean 'smoke'?"),
    "an SLO for a run": (("report", "slo.toml"), "slo.toml is no run", "name a run directory"),
    "a slip in a name": (("certify", "slo.tml"), "slo.tml does not exist", "did you mean 'slo.toml'?"),
    "no such file": (("certify", "nope.toml"), "nope.toml does not exist", "gatekeeper init"),
    "no such folder": (("certify", "nowhere/slo.toml"), "does not exist", "there is no folder nowhere"),
    "a folder for a file": (("certify", "."), "is a folder", "name a file in it"),
    "a model for a file": (("certify", "model"), "model is the folder of a model", "gatekeeper init --target model"),
    "an empty SLO": (("certify", "empty.jsonl"), "line 1: the file is empty", "gatekeeper init --force -o empty.jsonl"),
    "a program for canaries": (("canaries", "check", "program"), "is not UTF-8 at byte", "name a text file"),
    "prompts without JSON": (("canaries", "check", "hello.jsonl"), "not JSON", "a line is one JSON object"),
    "no number": ((*SET, "num_draft_tokens=abc"), "--set num_draft_tokens: must be a whole number", "draft_tokens=4"),
    "no such draft": ((*SET, "draft=hevy"), "'hevy' is not one of subject.drafts", "'heavy'"),
    "no knob of a soak": ((*SET, "temperature=0.3"), "not a knob that --set can change", "allowed"),
    "a knob of others": ((*SET, "window=512"), "--set window: backend scripted has no knob window", "its knobs"),
    "no folder of runs": (("history", "runs"), "there is no folder runs", "gatekeeper certify"),
}


@pytest.mark.parametrize("mistake", COMMANDS)
def test_a_mistake_on_the_command_line_has_a_next_step(project: ProjectFolder, mistake: str) -> None:
    """Exit code 2; what is wrong in the words of the person who typed it, and what to type instead."""
    canary = {"id": "a", "messages": [{"role": "user", "content": "x"}], "max_token": 5}
    (project.path / "key.jsonl").write_text(json.dumps(canary))
    (project.path / "hello.jsonl").write_text("Hello\n")
    (project.path / "program").write_bytes(b"\x7fELF\xff\0")
    (project.path / "empty.jsonl").touch()
    (project.path / "folder").mkdir()
    (project.path / "model").mkdir()
    (project.path / "model/config.json").write_text("{}")
    words, says, hint = COMMANDS[mistake]

    refused = project.run(*words, code=2)

    message, _, advice = refused.err.partition("hint:")
    assert says in message
    assert hint in advice
    assert not (project.path / "runs").exists()


BOUNDS = {
    "memory without a unit": ('metric = "memory_headroom"\nat_least = 2', "means 2 B", '"2 GB"'),
    "milliseconds without a unit": ('metric = "ttft"\nat_most = 300', "means 5 min", '"300 ms"'),
    "a change in per cent": ('metric = "ttft_delta"\nat_most = 8', "means +800 %", '"8 %"'),
    "per cent of a speed": ('metric = "answer_throughput_ratio"\nat_least = 120', "means 120 times", "write 1.2"),
    "the good side of a time": ('metric = "ttft"\nat_least = "300 ms"', "lower is better", "write at_most"),
    "the good side of a speed": ('metric = "decode_throughput"\nat_most = 30', "higher is better", "write at_least"),
}


@pytest.mark.parametrize("mistake", BOUNDS)
def test_a_bound_that_anything_meets_is_noted(project: ProjectFolder, mistake: str) -> None:
    """A number in another unit than was meant, or the other bound, is planned, and a note says what it means."""
    bound, means, instead = BOUNDS[mistake]
    (project.path / "slo.toml").write_text(f"{GOOD}[[objective]]\n{bound}\nwhy = 'x'\n")

    complaints = project.run("plan", "slo.toml", "--json", code=0).document["complaints"]

    noted = [complaint for complaint in complaints if complaint["about"].startswith("objective[3] ")]
    assert [(True, True)] == [(means in note["message"], instead in note["hint"]) for note in noted]


IN_A_RUN = {
    "a policy for an SLO": (("certify", "run/policy.toml"), "is no SLO file", "run/inputs/slo.toml"),
    "a page for a run": (("report", "run/report.html"), "is a part of a run", "the run's folder: run"),
    "a folder of a run": (("judge", "run/inputs"), "is a part of a run", "the run's folder: run"),
    "a run for its folder": (("admit", "slo.toml", "--runs", "run"), "run is a run", "--run run"),
    "a policy for its run": (("admit", "slo.toml", "--run", "run/policy.toml"), "is a part of a run", "folder: run"),
    "a run for canaries": (("canaries", "check", "run"), "run is a run", "run/inputs"),
    "certify over a run": (("certify", "slo.toml", "--output", "run"), "run holds a finished run", "report run"),
    "output over a record": (
        ("report", "run", "--format", "csv", "-o", "run/host.jsonl"),
        "is a file of that run",
        "beside the run",
    ),
    "output over the policy": (("report", "run", "-o", "run/policy.toml"), "is a file of that run", "beside the run"),
    "output into a finished run": (("report", "run", "-o", "run/logs/x.md"), "the deploy gate", "beside the run"),
}


def test_what_lies_in_a_run_is_no_input_and_no_output(demo: ProjectFolder) -> None:
    """A part of a run given for something else is exit code 2 with what was meant; nothing in the run is replaced."""
    files = {path: path.read_bytes() for path in (demo.path / "run").rglob("*") if path.is_file()}

    for mistake, (words, says, hint) in IN_A_RUN.items():
        message, _, advice = demo.run(*words, code=2).err.partition("hint:")
        assert (True, True) == (says in message, hint in advice), mistake
    demo.run("report", "run", "-o", "beside.md", code=0)

    assert files == {path: path.read_bytes() for path in (demo.path / "run").rglob("*") if path.is_file()}


def test_an_interrupt_before_the_command_line_is_read_is_no_traceback() -> None:
    """Ctrl-C while modules are imported ends with code 130 and one line."""
    script = "import gatekeeper.__main__ as m\ndef stop(): raise KeyboardInterrupt\nm._run = stop\nm.main()"

    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (130, "gatekeeper: interrupted\n") == (done.returncode, done.stderr)


def test_a_byte_order_mark_is_read_over(project: ProjectFolder) -> None:
    """Files that an editor of Windows saved are read, the SLO as well as the canaries."""
    for name in ("slo.toml", "easy.jsonl"):
        (project.path / name).write_bytes(b"\xef\xbb\xbf" + (project.path / name).read_bytes().replace(b"\n", b"\r\n"))

    project.run("plan", "slo.toml", code=0)


@contextmanager
def without_permissions() -> Iterator[None]:
    """Act as a user who is not root, whom no permission holds back."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.parametrize(
    "words",
    [
        "certify slo.toml",
        "certify slo.toml --only sweep",
        "certify slo.toml --only soak",
        "certify slo.toml --out in/x",
    ],
)
def test_a_folder_without_permission_to_write_is_refused_first(project: ProjectFolder, words: str) -> None:
    """In a folder that may only be read a run is exit code 4 with what to do, before anything starts; no traceback."""
    with TemporaryDirectory() as folder:  # pytest's own folders may not be entered by another user
        shutil.copytree(project.path, folder, dirs_exist_ok=True)
        copy = ProjectFolder(Path(folder), project.environment)
        (copy.path / "in").mkdir()
        copy.path.chmod(0o555)
        (copy.path / "in").chmod(0o555)
        copy.run(*words.replace("slo.toml", "none.toml").split(), code=2)  # imports what the other user may not read

        with without_permissions():
            refused = copy.run(*words.split(), code=4)

        copy.path.chmod(0o755)
        assert {"in", "slo.toml", "truth.json", "easy.jsonl", "hard.jsonl"} == {
            path.name for path in copy.path.iterdir()
        }
    assert "no permission to write" in refused.err
    assert "--out" in refused.err.partition("hint:")[2]
    assert "Traceback" not in refused.err


def test_an_installation_that_lacks_a_package_is_no_bug(tmp_path: Path) -> None:
    """A module that is gone is named with how to install it again; exit code 4."""
    script = "import sys; sys.modules['psutil'] = None\nfrom gatekeeper.cli.main import run\nsys.exit(run(['doctor']))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}

    broken = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )

    assert 4 == broken.returncode
    assert {"psutil", "install"} <= set(broken.stderr.split())
    assert "Traceback" not in broken.stderr


@pytest.mark.parametrize(
    ("words", "code"), [("explain >&-", 4), ("explain <&- >&- 2>&-", 4), ("explain <&- >/dev/null", 0)]
)
def test_a_stream_that_is_closed_is_never_a_verdict(project: ProjectFolder, words: str, code: int) -> None:
    """A job that closes stdout or stderr gets code 4 and no traceback; stdin is not needed."""
    shell = ["sh", "-c", f'"{sys.executable}" -m gatekeeper {words}']

    done = subprocess.run(shell, cwd=project.path, env=project.environment, capture_output=True, check=False)

    assert (code, b"") == (done.returncode, done.stderr)
