"""Make the golden runs and what judging them gives: scripted SLOs, certified on a made-up host.

    python -m tests.golden.make            # all of them
    python -m tests.golden.make NAME ...   # these

writes runs/NAME (the records) and expected/NAME (what every command shows of them) beside this file. The clock is
virtual and the host is made up, so the same versions of gatekeeper, Python and numpy write the same bytes. A change of
a verdict or of a text that is meant is one commit: the change, and what this writes after it, read as a diff.
"""

import json
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gatekeeper import host
from gatekeeper.analysis.conclude import Conclusion, conclude
from gatekeeper.analysis.verdict.case import Case
from gatekeeper.cli.main import run as run_command
from gatekeeper.core.records import HostSample
from gatekeeper.core.system.environment_variables import XDG_STATE_HOME
from gatekeeper.host.sampling.sampler import Sampler
from gatekeeper.host.sources import DirectSource, Status, Values
from tests.builders.host_samples import replace_samples, stored_samples

GOLDEN = Path(__file__).parent
FACTS = dict.fromkeys(host.facts()) | {
    "platform": "linux",
    "chip": "made-up chip",
    "cores": 8,
    "memory_bytes": 24 * 10**9,
    "os": "made-up OS 1.0",
    "virtual": False,
    "power_source": "ac",
}
"""The facts of the made-up host: the stored files say nothing of the machine they were made on."""
WORDS = ("amber", "birch", "cedar", "delta", "ember", "frost", "grove", "haven", "inlet", "jetty", "knoll", "larch")


@dataclass(frozen=True)
class Golden:
    """One run to make: its SLO, its canaries, what is true of the scripted subject, and how it ends."""

    slo: str
    canaries: Mapping[str, Sequence[Mapping[str, Any]]]
    """By the name of the file."""
    script: Mapping[str, Any]
    exit_code: int
    readings: Mapping[str, tuple[float, float] | Status] = field(default_factory=dict)
    """What the host shows: each value at first and its growth per second, or why it is missing."""
    damaged: bool = False
    """The records are damaged once the run has ended, which turns its exit code into 3."""
    against: bool = False
    """It is compared with a certified run of the same SLO, which is made first and not kept."""
    extended: str | None = None
    """By how much its soak is extended; until then the run is unproven."""


class MadeHost(DirectSource):
    """A source of host values that reads the same on every machine."""

    name = "made"

    def __init__(self, readings: Mapping[str, tuple[float, float] | Status]) -> None:
        self.provides = tuple(readings)
        self._readings = readings

    def read(self) -> Values:
        """Return the values at the start of the clock; `made_sampler` lets them grow."""
        return {
            name: reading if isinstance(reading, Status) else reading[0] for name, reading in self._readings.items()
        }


def made_sampler(readings: Mapping[str, tuple[float, float] | Status], platform: str | None, **ports: Any) -> Sampler:
    """Return a sampler of a made-up host whose values follow the virtual clock, however slowly this machine reads."""
    record = ports.pop("record")
    growth = {name: reading[1] for name, reading in readings.items() if not isinstance(reading, Status)}

    def record_as_due(sample: HostSample) -> None:
        values = {name: replace(value, age=0.0) for name, value in sample.values.items() if value.source != "none"}
        for name, by in growth.items():
            value = values[name].value
            assert isinstance(value, float)
            values[name] = replace(values[name], value=value + by * sample.at_ns / 1e9)
        record(replace(sample, values=values, took_ns=0))

    return Sampler(platform, **ports, record=record_as_due, sources=(MadeHost(readings),))


def _canary(name: str, ask: str, expect: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": name, "messages": [{"role": "user", "content": ask}], "max_tokens": 48, "expect": dict(expect)}


def _lines(prefix: str, count: int, words: int = 5) -> list[dict[str, Any]]:
    """Return canaries whose answer is a line of words, some a little longer than others."""
    texts = (" ".join(WORDS[(at + step) % len(WORDS)] for step in range(words + at % 3)) for at in range(count))
    return [_canary(f"{prefix}-{at:03}", f"Say line {at}.", {"equals": text}) for at, text in enumerate(texts)]


def _objects(prefix: str, count: int) -> list[dict[str, Any]]:
    """Return canaries whose answer is a JSON object."""
    properties = ({"word": {"const": WORDS[at]}, "size": {"enum": [at, at + 1]}} for at in range(count))
    schemas = ({"type": "object", "properties": fields, "required": ["word", "size"]} for fields in properties)
    return [
        _canary(f"{prefix}-{at:03}", f"Describe {at}.", {"json_schema": schema}) for at, schema in enumerate(schemas)
    ]


def _calls(prefix: str, count: int) -> list[dict[str, Any]]:
    """Return canaries whose answer is a tool call."""
    calls = ({"name": "look_up", "arguments": {"word": [WORDS[at]]}} for at in range(count))
    return [_canary(f"{prefix}-{at:03}", f"Look {at} up.", {"tool_call": call}) for at, call in enumerate(calls)]


PROMOTED = Golden(
    exit_code=0,
    # No speed of `tools` is an objective, so the policy guards it at what the soak showed.
    slo="""\
schema = 1
name = "golden-promoted"
why = "A certificate: quality, speed, latency and the host, on three workloads; the last one may decode plainly."

[subject]
backend = "scripted"
target = "t"
drafts = ["heavy"]
script = "script.json"
prompt_cache = "as-deployed"

[[workload]]
name = "json"
canaries = "json.jsonl"

[[workload]]
name = "tools"
canaries = "tools.jsonl"

[[workload]]
name = "random"
canaries = "random.jsonl"
speculation = "optional"

[sweep]
repeats = 1
num_draft_tokens = [2, 4]
default = { num_draft_tokens = 4 }

[soak]
duration = "600 s"
baseline_share = 0.5

[[objective]]
metric = "throughput_ratio"
at_least = 1.1
workloads = ["json"]
why = "drafting must pay"

[[objective]]
metric = "ttft_delta"
at_most = 0.5
why = "a draft reads the prompt too"

[[objective]]
metric = "acceptance_rate"
at_least = 0.4
workloads = ["json"]
why = "a draft that guesses wrong is the wrong draft"

[[objective]]
metric = "acceptance_window_min"
at_least = 0.3
workloads = ["json"]
why = "nor for a while"

[[objective]]
metric = "token_agreement"
at_least = 1
why = "lossless"

[[objective]]
metric = "json_pass_delta"
at_least = 0
workloads = ["json"]
why = "parsers read it"

[[objective]]
metric = "tool_call_pass_delta"
at_least = 0
workloads = ["tools"]
why = "programs are called by it"

[[objective]]
metric = "error_rate"
at_most = 0.6
scope = "population"
why = "of all such prompts, as far as six canaries can show"

[[objective]]
metric = "memory_headroom"
at_least = "2 GB"
why = "a browser is open"

[[objective]]
metric = "footprint_growth"
at_most = "100 kB/s"
why = "no leak"
""",
    canaries={
        "json.jsonl": _objects("json", 6),
        "tools.jsonl": _calls("tools", 6),
        "random.jsonl": _lines("random", 6),
    },
    script={
        "seed": 3,
        "caches": True,
        "prefill": "3 s",
        "draft_prefill": "300 ms",
        "token": "1.5 s",
        "verify": "1.6 s",
        "draft_token": "100 ms",
        "acceptance": 0.9,
        "noise": {"answer": 0.01},
        "canaries": {"random-": {"acceptance": 0.05}},
    },
    readings={"memory_headroom": (6e9, -1e5), "subject_footprint": (9e9, 2e4)},
)

GRADED_BACK = Golden(
    exit_code=1,
    slo="""\
schema = 1
name = "golden-graded-back"
why = "The ladder: one workload ends with the lighter draft, the other goes all the way down to plain decoding."
visible_harm = 1.0

[subject]
backend = "scripted"
target = "t"
drafts = ["heavy", "light"]
script = "script.json"

[[workload]]
name = "chat"
canaries = "chat.jsonl"

[[workload]]
name = "code"
canaries = "code.jsonl"

[sweep]
repeats = 1
num_draft_tokens = [2, 4]
default = { num_draft_tokens = 4 }

[soak]
duration = "60 s"
baseline_share = 0.5

[[objective]]
metric = "throughput_ratio"
at_least = 1.05
why = "drafting must pay"

[[objective]]
metric = "acceptance_rate"
at_least = 0.8
workloads = ["chat"]
why = "a draft that guesses wrong is the wrong draft"

[[objective]]
metric = "token_agreement"
at_least = 1
why = "lossless"

[[objective]]
metric = "task_pass_delta"
at_least = -0.5
why = "no worse than plain decoding"

[[objective]]
metric = "swap_growth"
at_most = "1 GB"
why = "nothing is pushed out"

[promote]
valid_for = "7 d"
""",
    canaries={"chat.jsonl": _lines("chat", 6, words=8), "code.jsonl": _lines("code", 6)},
    script={
        "seed": 5,
        "token": "700 ms",
        "acceptance": {"heavy": 0.5, "light": 1.0},
        "ratio": {"2": 1.4, "4": 1.7},
        "noise": {"answer": 0.02},
        # Both part from plain decoding: chat where the logits nearly tie, code where they do not.
        "agreement": 0.6,
        "canaries": {"chat-": {"gap": 0.05}, "code-": {"acceptance": 0.9, "agreement": 0.3}},
        "faults": [{"canary": "code-002", "arm": "candidate", "fault": "truncate"}],
    },
    readings={"swap_used": (1e9, 0)},
)

FAILED = Golden(
    exit_code=1,
    slo="""\
schema = 1
name = "golden-failed"
why = "Plain decoding breaks a promise as well, and so does the host. The confidence is low: p99 takes 80 canaries."
confidence = 0.55

[subject]
backend = "scripted"
target = "t"
drafts = ["heavy"]
script = "script.json"

[[workload]]
name = "chat"
canaries = "chat.jsonl"

[sweep]
repeats = 1
budget = 10
num_draft_tokens = [4]

[soak]
duration = "90 s"
baseline_share = 0.1

[fallback]
ladder = ["autoregressive"]

[[objective]]
metric = "itl_p95"
at_most = "1 s"
why = "reading is not held up"

[[objective]]
metric = "itl_p99"
at_most = "2.5 s"
why = "hardly ever"

[[objective]]
metric = "decode_throughput"
at_least = 2
why = "a slow reader"

[[objective]]
metric = "memory_pressure_critical"
at_most = "10 s"
why = "the machine answers"

[[objective]]
metric = "swap_growth"
at_most = "1 MB"
why = "nothing is pushed out"
""",
    canaries={"chat.jsonl": _lines("chat", 80, words=2)},
    script={
        "seed": 7,
        "token": "90 ms",
        "verify": "95 ms",
        "draft_token": "5 ms",
        "acceptance": 0.9,
        "noise": {"answer": 0.02, "stall": "4 s", "stall_share": 0.12},
    },
    readings={"memory_pressure_level": (1.0, 0.0), "swap_used": (0.0, 1e6)},
)

UNPROVEN = Golden(
    exit_code=3,
    slo="""\
schema = 1
name = "golden-unproven"
why = "Nothing decides it: a gain on both sides of its bound, a sensor that is missing, counters that do not add up."
visible_harm = 1.0

[subject]
backend = "scripted"
target = "t"
drafts = ["heavy"]
script = "script.json"

[sampling]
temperature = 0.7
max_tokens = 12

[[workload]]
name = "chat"
canaries = "chat.jsonl"

[sweep]
repeats = 1
num_draft_tokens = [4]

[soak]
duration = "120 s"
concurrency = 2

[[objective]]
metric = "system_throughput_ratio"
at_least = 1.55
why = "two people share it"

[[objective]]
metric = "acceptance_rate"
at_least = 0.5
why = "a draft that guesses wrong is the wrong draft"

[[objective]]
metric = "power_mean"
at_most = "20 W"
why = "no fan"
""",
    canaries={"chat.jsonl": [{**line, "expect": None} for line in _lines("chat", 6)]},
    script={
        "seed": 11,
        "shares_process": False,
        "tokens": 10,
        "token": "1.5 s",
        "ratio": 1.5,
        "acceptance": 0.7,
        "noise": {"answer": 0.1},
        "claims": {"accepted": 1.4},
    },
    readings={"memory_headroom": (6e9, 0), "package_power": Status.DENIED},
)

DAMAGED = Golden(
    exit_code=0,
    damaged=True,
    slo="""\
schema = 1
name = "golden-damaged"
why = "Promoted, until its records were damaged."

[subject]
backend = "scripted"
target = "t"
drafts = ["heavy"]
script = "script.json"

[[workload]]
name = "chat"
canaries = "chat.jsonl"

[sweep]
repeats = 1
num_draft_tokens = [4]

[soak]
duration = "120 s"

[[objective]]
metric = "throughput_ratio"
at_least = 1.1
why = "drafting must pay"

[[objective]]
metric = "token_agreement"
at_least = 1
why = "lossless"
""",
    canaries={"chat.jsonl": _lines("chat", 6)},
    script={
        "seed": 13,
        "token": "1 s",
        "verify": "1.1 s",
        "draft_token": "50 ms",
        "acceptance": 0.9,
        "noise": {"answer": 0.02},
    },
    readings={"memory_headroom": (6e9, 0)},
)

STEP_DOWN = Golden(
    exit_code=0,
    slo="""\
schema = 1
name = "golden-step-down"
why = "The chosen draft length has too many tokens refused; a shorter one keeps every objective."

[subject]
backend = "scripted"
target = "t"
drafts = ["heavy"]
script = "script.json"

[[workload]]
name = "chat"
canaries = "chat.jsonl"

[sweep]
repeats = 1
num_draft_tokens = [2, 4]
default = { num_draft_tokens = 4 }

[soak]
duration = "120 s"

[fallback]
ladder = ["shrink-draft", "autoregressive"]

[[objective]]
metric = "throughput_ratio"
at_least = 1.05
why = "drafting must pay"

[[objective]]
metric = "acceptance_rate"
at_least = 0.75
why = "a draft that guesses wrong is the wrong draft"
""",
    canaries={"chat.jsonl": _lines("chat", 12)},
    script={
        "seed": 19,
        "token": "1 s",
        "ratio": {"2": 1.4, "4": 1.9},
        "acceptance": 0.95,
        "acceptance_falloff": 0.85,
        "noise": {"answer": 0.02},
    },
    readings={"memory_headroom": (6e9, 0)},
)

SAMPLED = Golden(
    exit_code=0,
    slo="""\
schema = 1
name = "golden-sampled"
why = "Temperature above 0: answers differ from each other, so speed, lengths and pass rates decide."
visible_harm = 0.6

[subject]
backend = "scripted"
target = "t"
drafts = ["heavy"]
script = "script.json"

[sampling]
temperature = 0.7
seed = 7

[[workload]]
name = "chat"
canaries = "chat.jsonl"

[sweep]
repeats = 1
num_draft_tokens = [4]

[soak]
duration = "300 s"
baseline_share = 0.5

[[objective]]
metric = "throughput_ratio"
at_least = 1.1
why = "drafting must pay"

[[objective]]
metric = "answer_throughput_ratio"
at_least = 1.05
why = "whole answers, too"

[[objective]]
metric = "task_pass_delta"
at_least = -0.5
why = "no worse than plain decoding"
""",
    canaries={"chat.jsonl": _lines("chat", 24)},
    script={
        "seed": 23,
        "token": "500 ms",
        "verify": "550 ms",
        "draft_token": "20 ms",
        "acceptance": 0.9,
        "noise": {"answer": 0.02},
    },
    readings={"memory_headroom": (6e9, 0)},
)

HTTP = Golden(
    exit_code=0,
    slo="""\
schema = 1
name = "golden-http"
why = "What a server over HTTP shows: its own claims of drafted tokens, texts, and log-probabilities."

[subject]
backend = "scripted"
target = "t"
drafts = ["heavy"]
script = "script.json"

[[workload]]
name = "chat"
canaries = "chat.jsonl"

[sweep]
repeats = 1
num_draft_tokens = [2, 4]

[soak]
duration = "200 s"

[[objective]]
metric = "throughput_ratio"
at_least = 1.1
why = "drafting must pay"

[[objective]]
metric = "acceptance_rate"
from = "claims"
at_least = 0.5
why = "a draft that guesses wrong is the wrong draft"

[[objective]]
metric = "token_agreement"
at_least = 1
why = "lossless"
""",
    canaries={"chat.jsonl": _lines("chat", 12, words=12)},
    script={
        "seed": 29,
        "sight": [
            "arrivals", "token_count", "text", "claimed_rounds", "memory", "plain", "prompt_time", "logprobs",
            "verified",
        ],
        "arrivals": "round",
        "shares_process": False,
        "token": "300 ms",
        "verify": "330 ms",
        "draft_token": "10 ms",
        "acceptance": 0.9,
        "flips": 0.01,
        "noise": {"answer": 0.02},
    },
    readings={"memory_headroom": (6e9, 0)},
)  # fmt: skip

AGAINST_CERTIFIED = Golden(
    exit_code=0,
    against=True,
    slo="""\
schema = 1
name = "golden-against-certified"
why = "No worse than the last certified run."

[subject]
backend = "scripted"
target = "t"
drafts = ["heavy"]
script = "script.json"

[[workload]]
name = "chat"
canaries = "chat.jsonl"

[sweep]
repeats = 1
num_draft_tokens = [4]

[soak]
duration = "600 s"
until = "duration"

[[objective]]
metric = "throughput_ratio"
at_least = 1.1
why = "drafting must pay"

[[objective]]
metric = "throughput_ratio"
at_least = 0.9
against = "certified"
why = "no slower than certified"

[[objective]]
metric = "acceptance_rate"
at_least = 0.9
against = "certified"
why = "the draft fits as well"

[[objective]]
metric = "ttft_delta"
at_most = 0.2
against = "certified"
why = "the first token comes as early"
""",
    canaries={"chat.jsonl": _lines("chat", 12)},
    script={
        "seed": 31,
        "token": "1 s",
        "verify": "1.1 s",
        "draft_token": "50 ms",
        "acceptance": 0.9,
        "noise": {"answer": 0.02},
    },
    readings={"memory_headroom": (6e9, 0)},
)

CONTINUED = Golden(
    exit_code=0,
    extended="20m",
    slo="""\
schema = 1
name = "golden-continued"
why = "The first soak leaves the gain open, and so does its continuation; an extension proves it."
confidence = 0.99

[subject]
backend = "scripted"
target = "t"
drafts = ["heavy"]
script = "script.json"

[[workload]]
name = "chat"
canaries = "chat.jsonl"

[sweep]
repeats = 1
num_draft_tokens = [4]

[soak]
duration = "100 s"
max_duration = "200 s"
until = "decided"

[fallback]
ladder = ["autoregressive"]

[[objective]]
metric = "throughput_ratio"
at_least = 1.3
why = "drafting must pay"
""",
    canaries={"chat.jsonl": _lines("chat", 12)},
    script={
        "seed": 37,
        "token": "300 ms",
        "ratio": 1.36,
        "acceptance": 0.9,
        "noise": {"answer": 0.05},
    },
    readings={"memory_headroom": (6e9, 0)},
)

KEPT_PLAIN = Golden(
    exit_code=0,
    slo="""\
schema = 1
name = "golden-kept-plain"
why = "Drafting is slower, and the workload may decode plainly."

[subject]
backend = "scripted"
target = "t"
drafts = ["heavy"]
script = "script.json"

[[workload]]
name = "random"
canaries = "random.jsonl"
speculation = "optional"

[sweep]
repeats = 1
num_draft_tokens = [2, 4]

[soak]
duration = "60 s"

[[objective]]
metric = "throughput_ratio"
at_least = 1.1
why = "drafting must pay"

[[objective]]
metric = "decode_throughput"
at_least = 0.5
why = "a slow reader"
""",
    canaries={"random.jsonl": _lines("random", 6)},
    script={
        "seed": 41,
        "token": "1 s",
        "verify": "1.1 s",
        "draft_token": "150 ms",
        "acceptance": 0.1,
        "noise": {"answer": 0.02},
    },
    readings={"memory_headroom": (6e9, 0)},
)

RUNS = {
    "promoted": PROMOTED,
    "graded_back": GRADED_BACK,
    "step_down": STEP_DOWN,
    "kept_plain": KEPT_PLAIN,
    "failed": FAILED,
    "unproven": UNPROVEN,
    "damaged": DAMAGED,
    "sampled": SAMPLED,
    "http": HTTP,
    "against_certified": AGAINST_CERTIFIED,
    "continued": CONTINUED,
}
SHOWN = {
    "verdict.json": ("judge", "{run}", "--json"),
    "verdict.txt": ("judge", "{run}"),
    "junit.xml": ("report", "{run}", "--format", "junit"),
    "summary.md": ("report", "{run}", "--format", "markdown"),
    "history.json": ("history", "{folder}", "--json"),
    "compare.json": ("compare", "{run}", "{run}", "--json"),
}
"""What is kept of each run, and the command that prints it; besides them its policy and the text of its page."""


def make(name: str) -> None:
    """Write one golden run and what every command shows of it."""
    golden = RUNS[name]
    run, expected = GOLDEN / "runs" / name, GOLDEN / "expected" / name
    for folder in (run, expected):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as place, chdir(place), patch.dict("os.environ", XDG_STATE_HOME=place):
        _write_inputs(golden)
        sampler = partial(made_sampler, golden.readings)
        # Runs tell how often the same was tried on this host: here never before, however often they are made.
        tried = patch.dict(os.environ, {XDG_STATE_HOME: str(Path("state").absolute())})
        with patch.multiple(host, facts=lambda: dict(FACTS), Sampler=sampler), tried:
            _certify(golden)
        _slim(Path("run"))
        judged = run_gatekeeper("judge", "run", "--json", code=golden.exit_code)
        if judged != Path("run/verdict.json").read_text():
            raise SystemExit(f"{name}: a slimmed run is judged differently")
        if golden.damaged:
            _damage(Path("run"))
        shutil.copytree("run", run, dirs_exist_ok=True, ignore=shutil.ignore_patterns("logs"))
    for file, text in what_is_shown(name).items():
        (expected / file).write_text(text)


def what_is_shown(name: str) -> dict[str, str]:
    """Return what the commands print of a stored run today, by the name of the file that keeps it.

    A run is read in a copy, in a folder of its own: the stored one is never written to.
    """
    golden, shown = RUNS[name], {}
    conclusions: list[Conclusion] = []

    def conclude_once(case: Case) -> Conclusion:
        # Every command reads the run anew, and would judge the same records: the eighth time shows what the first did.
        if not conclusions:
            conclusions.append(conclude(case))
        return conclusions[0]

    judging_once = patch("gatekeeper.run.stored.judge.conclude", conclude_once)
    with tempfile.TemporaryDirectory() as place, chdir(place), judging_once:
        run = Path("runs", name)
        shutil.copytree(GOLDEN / "runs" / name, run)
        for file, words in SHOWN.items():
            command = [word.format(run=run, folder=run.parent) for word in words]
            # A damaged run is judged, and compared, with the code of evidence that does not suffice.
            code = 3 if golden.damaged else golden.exit_code
            codes = {"judge": code, "compare": 3 if golden.damaged else 0}
            shown[file] = run_gatekeeper(*command, code=codes.get(command[0], 0))
        shown["page.txt"] = page_text(run_gatekeeper("report", str(run), "--format", "html", code=0))
        if not golden.damaged and (run / "policy.toml").exists():
            shown["policy.toml"] = issue_policy_again(run)
    return shown


def _write_inputs(golden: Golden) -> None:
    Path("slo.toml").write_text(golden.slo)
    Path("script.json").write_text(json.dumps(golden.script))
    for file, canaries in golden.canaries.items():
        lines = ({key: value for key, value in canary.items() if value is not None} for canary in canaries)
        Path(file).write_text("".join(json.dumps(line) + "\n" for line in lines))


def _certify(golden: Golden) -> None:
    """Certify into `run`, a relative path, which the run stores."""
    certify = ["certify", "slo.toml", "--out", "run"]
    if golden.against:
        run_gatekeeper("certify", "slo.toml", "--out", "before", "--baseline", "none", code=0)
        certify += ["--baseline", "before"]
    run_gatekeeper(*certify, code=golden.exit_code if golden.extended is None else 3)
    if golden.extended is not None:
        run_gatekeeper(*certify, "--extend", golden.extended, code=golden.exit_code)


def issue_policy_again(run: Path) -> str:
    """Return the policy that the records of *run* give, issued when its own was."""
    from gatekeeper.analysis.verdict.policy.certified_policy import issue_policy  # noqa: PLC0415
    from gatekeeper.core.parse import moment  # noqa: PLC0415
    from gatekeeper.core.slo import parse  # noqa: PLC0415
    from gatekeeper.core.system.inputs import load_manifest  # noqa: PLC0415
    from gatekeeper.core.system.record_files import EVENTS, read_records  # noqa: PLC0415
    from gatekeeper.report.policy_toml import render  # noqa: PLC0415
    from gatekeeper.run.stored.judge import judge  # noqa: PLC0415  these move; nothing else here knows where they are

    policy = issue_policy(
        parse((run / "inputs" / "slo.toml").read_text(), "slo.toml"),
        judge(run),
        load_manifest((run / "manifest.json").read_bytes()),
        read_records(run / "events.jsonl", EVENTS).records,
        verdict_sha256=sha256((run / "verdict.json").read_bytes()).hexdigest(),
        issued=moment(tomllib.loads((run / "policy.toml").read_text())["issued"]),
    )
    return render(policy)


class _VisibleText(HTMLParser):
    """Gathers the text of a page as a reader sees it, a line each piece, and what its charts say to a screen reader."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in {"script", "style"}
        self.lines += [value for name, value in attrs if name == "aria-label" and value]

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in {"script", "style"}

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.lines += [" ".join(line.split()) for line in data.splitlines() if line.strip()]


def page_text(page: str) -> str:
    """Return the visible text of an HTML page, a line each piece."""
    parser = _VisibleText()
    parser.feed(page)
    return "\n".join(parser.lines) + "\n"


def run_gatekeeper(*words: str, code: int) -> str:
    """Run a command and return what it prints; another exit code than *code* ends everything."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        ended = run_command(words)
    if ended != code:
        raise SystemExit(
            f"gatekeeper {' '.join(words)} ended in {ended}, not in {code}\n{out.getvalue()}{err.getvalue()}"
        )
    return out.getvalue()


def _slim(run: Path) -> None:
    """Leave out what no verdict rests on: the page, statements on what is slimmed, readings that no source gives."""
    for file in ("report.html", "certificate.intoto.json", "chain.intoto.json"):
        (run / file).unlink(missing_ok=True)
    replace_samples(run, [sample for sample in stored_samples(run) if sample["phase"]])
    files = sorted(
        str(path.relative_to(run)) for path in run.rglob("*") if path.is_file() and path.name != "SHA256SUMS"
    )
    sums = (f"{sha256((run / file).read_bytes()).hexdigest()}  {file}\n" for file in files)
    (run / "SHA256SUMS").write_text("".join(sums))


def _damage(run: Path) -> None:
    """Cut the soak off inside a record, and take one record out of the sweep, whose closing line then miscounts."""
    soak = (run / "soak-1.jsonl").read_bytes()
    (run / "soak-1.jsonl").write_bytes(soak[: len(soak) * 2 // 3])
    lines = (run / "baseline.jsonl").read_text().splitlines(keepends=True)
    (run / "baseline.jsonl").write_text("".join(line for number, line in enumerate(lines) if number != 2))


if __name__ == "__main__":
    for name in sys.argv[1:] or RUNS:
        make(name)
