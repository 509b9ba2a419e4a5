"""The reference page of the record files: each file, each field with its unit, and the rows of a table."""

import ast
import inspect
import textwrap
from collections.abc import Iterable

from gatekeeper.analysis.follow_ups import FOLLOW_UPS
from gatekeeper.core import records as kinds
from gatekeeper.core.records import arrivals
from gatekeeper.core.slo import DRAFT_LENGTHS
from gatekeeper.host.sources import UNITS
from gatekeeper.report.data.run_rows import OF_ANSWER, OF_GENERATION, OF_SETTING, AnswerRow, SampleRow
from tools.reference_tables import attribute_docs, listing

HEAD = """# Record files

A JSON object a line; the last line is `{"end": true, "records": N}`. Fields are added, never renamed. Unknown is null
or empty, never 0; `?` after a type: it may be null. A unit stands in the name, or beside the type. Times in `_ns` are
of one monotonic clock of the machine: subtract them. `gatekeeper report RUN --format csv` writes
[rows](#a-row-an-answer), and [`gatekeeper.load`](../python.md) gives them to Python. Other files:
[fields of the files](files.md).
"""
SHARED = {
    "workload": "As the SLO file names it.",
    "canary": "The id of its prompt.",
    "segment": "Which uninterrupted part of the run.",
    "at": "Wall time when it ended.",
    "fault": "Why nothing is known.",
}
"""What these fields mean in every kind of record, unless its table says otherwise."""
CLEAR = {
    *("sent_ns", "ended_ns", "prompt_tokens", "concurrency", "claims", "answer", "kind"),
    *("age", "detail"),
    *(
        "drafted",
        "accepted",
        "prompt_seconds",
        "decode_seconds",
        "decode_tokens",
        "at",
        "took_ns",
        "late_ns",
        "took_ms",
    ),
    *("late_ms", "ended_at", "answer_ms", "ttft_ms", "file", "run", "claimed_rounds", "claimed_drafted_tokens"),
    *("claimed_accepted_tokens", "drafted_tokens", "accepted_tokens", "memory_active_bytes"),
    *("memory_peak_bytes", "cached_prompt_tokens", "answer_tok_per_s", "decode_tok_per_s", "logprob"),
}
"""Fields that say by their names what they are."""
ABOUT_COLUMNS = "What no piece has is left out; an answer without pieces has an empty list."
COLUMNS = {
    "at_ns": ("int, ns", "when the first piece came"),
    "gaps_ns": ("list, ns", "from each piece to the next"),
    "tokens": ("int or list", "of each piece; one number where all have as many"),
    "drafted": ("str", "a letter a piece: `t` drafted and accepted, `f` the target's own, `?` unknown"),
    "token_ids": ("list", "of each piece, in the target's vocabulary"),
    "characters": ("list", "of the text of each piece, where its tokens are not counted"),
}
"""The columns of an answer's arrivals, as `Arrivals.as_columns` writes them."""
SAMPLE_LINES = """A line of `host.jsonl`, once a second. It is in full once a minute and where more than numbers
changed. Between, a line has no `values` but `like`, the `at_ns` of the last full line, and
`numbers`: in that line's order each value that is a number, then its age where it has one. `report --format csv` writes
all in full."""
CLASSES = (
    ("A request and its answer", kinds.Generation, ""),
    ("An answer", kinds.Answer, ""),
    ("Rounds", kinds.Rounds, ""),
    ("Claims", kinds.Claims, ""),
    ("A host sample", kinds.HostSample, SAMPLE_LINES),
    ("A reading", kinds.Reading, ""),
    ("An event", kinds.Event, "A line of `events.jsonl`."),
    ("A near-tie", kinds.Tie, ""),
    ("A forced pass", kinds.Forced, ""),
    ("A replay", kinds.Replayed, ""),
    ("A parting", kinds.Parting, "A list of these three."),
    ("Numerics", kinds.Numerics, ""),
    ("Log-probabilities", kinds.Scored, ""),
    ("A likely token", kinds.Likely, "A list of these two."),
)
"""Every kind of record and its parts."""
WATCH_ENTRIES = {
    "answering": "`workload` answers again",
    "begun": "a watch begins: `policy_sha256`, `url`, `duty`, each route",
    "change": "a route changes: `workload`, `change`, `from_step`, `to_step`, `setting`, `evidence`",
    "command": "the command of `--on-change` ended: `workload`, `argv`, `code`, `seconds`, `output`, `fault`",
    "conditions": "the running server against its certificate: `parts`",
    "ended": "",
    "fault": "`workload` gives no answer",
    "gap": "evidence is discarded: the host slept, or its clock was set",
    "lacking": "a guard has no evidence: `workload`, `metric`; off after `off_in` seconds",
    "look": "a round: `load`, `seconds`, by route `step` and `guards`: [outcome, center, lo, hi, n]",
    "overlay_back": "",
    "overlay_failed": "",
    "own_limit": "the watch reached a limit of its own",
    "policy": "the policy was replaced: `policy_sha256`, each route",
    "policy_back": "",
    "policy_refused": "it cannot be read, or is another run's",
    "sampler_failed": "",
    "server": "another process answers: `pid`, its models",
    "state": "the first line of a file: where the file before ended",
    "telemetry_failed": "",
    "textfile_failed": "",
    "unreadable": "an earlier log or overlay is damaged",
}
"""Every kind of line in watch.jsonl, and the keys of it besides `because`; empty: as its name says."""
LENGTHS = ("block_size", "window", "draft_n_min")
UNIT_OF_NAME = {
    **dict.fromkeys(("drafted", "accepted", "position", "positions", "altered", "width", "after", *LENGTHS), "tokens"),
    **dict.fromkeys(("memory_active", "memory_peak"), "B"),
    **dict.fromkeys(("gap", "gaps", "other_gaps"), "logits"),
    **dict.fromkeys(("nll", "logprob", "logprobs"), "nats"),
    **dict.fromkeys(("at", "ended_at"), "UTC"),
    "age": "s",
}
JSON_WORDS = {
    "None": "null",
    "tuple[": "list[",
    "Mapping[": "object[",
    "dict[": "object[",
    "Sequence[": "list[",
    "Setting": "list[list]",
    "Role": "str",
    "EventKind": "str",
}
"""How a type of Python is called in JSON."""


OF_ANSWERS = "A line is [a request and its answer](#a-request-and-its-answer), or what stands in brackets."


def records() -> str:
    """Return the page of the record files and their fields."""
    shared = " ".join(f"`{name}`: {text}" for name, text in SHARED.items())
    parts = [
        HEAD,
        f"## Which file holds what\n\n{OF_ANSWERS}\n\n{listing(_files())}",
        f"## Fields of several records\n\n{shared} Prompts are in `inputs/canaries-WORKLOAD.jsonl`.\n",
    ]
    for title, kind, about in CLASSES:
        summary = (inspect.getdoc(kind) or "").partition("\n\n")[0]
        text = " ".join(filter(None, (about, "" if summary.rstrip(".") == title else summary)))
        counted = attribute_docs(kinds.Rounds) if kind is kinds.Claims else {}
        if counted:
            text += f" As in *Rounds*, null where unknown: {_named(kind, counted)}."
        parts.append("\n\n".join(filter(None, (f"## {title}", text, _fields(kind, counted)))))
        if kind is kinds.Answer:
            rows = [(f"`{name}`", *row) for name, row in COLUMNS.items()]
            parts.append(f"## Arrivals\n\n{ABOUT_COLUMNS}\n\n{listing(rows)}")
        if kind is kinds.Reading:
            names = ", ".join(
                f"`{name}`" + (f" ({unit})" if unit not in {"", "1"} else "") for name, unit in UNITS.items()
            )
            parts.append(f"## Names of readings\n\n`gatekeeper doctor --samples 1` says what each is for: {names}.\n")
    roles = attribute_docs(kinds.Role)
    parts.append(f"## Roles\n\n{listing((f'`{role.value}`', '', roles[role.name]) for role in kinds.Role)}")
    texts = attribute_docs(kinds.EventKind)
    events = [(f"`{kind}`", "", texts[kind.name]) for kind in kinds.EventKind if kind not in kinds.RECORDED_ELSEWHERE]
    parts.append(f"## Kinds of events\n\nMany have `because`, the reason in words.\n\n{listing(events)}")
    about = (
        "Each line has `at`, `kind`, and `crc`, the CRC-32 of the rest of it; many have `because`. No line counts them."
    )
    parts.append(f"## Lines of watch.jsonl\n\n{about}\n\n{_kinds(WATCH_ENTRIES)}")
    alike = {*OF_GENERATION, *OF_ANSWER, "role", "pair"}
    as_recorded = _named(AnswerRow, alike)
    knobs = _named(AnswerRow, {*OF_SETTING, *DRAFT_LENGTHS})
    parts.append(
        "## A row an answer\n\n`gatekeeper report RUN --format csv`, and `answers` in Python. Empty is unknown. As in "
        f"[the record](#a-request-and-its-answer): {as_recorded}. [Knobs](slo-keys.md#knobs), empty where the "
        f"sweep names none: {knobs}. Further columns:\n\n{_fields(AnswerRow, alike | {*OF_SETTING, *DRAFT_LENGTHS})}"
    )
    parts.append(
        "## A row a host sample\n\n`gatekeeper report RUN --of host --format csv`, and `samples` in Python.\n\n"
        f"{_fields(SampleRow)}"
    )
    return "\n".join(parts)


def _named(kind: type, names: Iterable[str]) -> str:
    """Return those fields of a class that are among *names*, in its order."""
    return ", ".join(f"`{name}`" for name, _ in _annotations(kind) if name in names)


def _files() -> Iterable[tuple[str, str, str]]:
    """Yield the name of each record file, the kind of its lines where they are no answers, and what it holds."""
    titles: dict[type, str] = {
        kind: f"[{title.lower()}](#{title.lower().replace(' ', '-')})" for title, kind, _ in CLASSES
    }
    titles[kinds.Generation] = ""
    yield "`baseline.jsonl`, `null.jsonl`", "", "plain decoding before the sweep, and once more"
    yield "`sweep-SETTING.jsonl`", "", "the sweep: a file a setting"
    yield "`baseline-again-N.jsonl`", "", "the baseline again, where it had no one speed"
    yield "`soak-N.jsonl`, `soak-N.part-M.jsonl`", "", "a soak and its parts, by fallback step"
    for follow_up in FOLLOW_UPS:
        yield f"`{follow_up.name}-N.jsonl`", titles[follow_up.kind], f"a follow-up of soak N: {follow_up.title}"
    yield "`host.jsonl`", titles[kinds.HostSample], "the machine while it measures"
    yield "`events.jsonl`", titles[kinds.Event], "what happened when"
    watch, proxy = "[an entry of a watch](#lines-of-watchjsonl)", "[a request](proxy.md#records)"
    yield "`watch.jsonl`", watch, "beside a policy: what a watch or a proxy decided"
    yield "`live.jsonl`", proxy, "beside a policy: the requests of a proxy"


def _fields(kind: type, leave_out: Iterable[str] = ()) -> str:
    docs = attribute_docs(kind)
    fields = [
        (f"`{name}`", ", ".join(filter(None, (_type(text), _unit(name)))), "" if name in CLEAR else docs.get(name, ""))
        for name, text in _annotations(kind)
        if name not in leave_out and docs.get(name) != SHARED.get(name, "-")
    ]
    clear = [f"{name} ({kind})" for name, kind, text in fields if not text]
    shown = listing(field for field in fields if field[2])
    return "\n".join(filter(None, (shown, f"Further fields: {', '.join(clear)}.\n" if clear else "")))


def _kinds(texts: dict[str, str]) -> str:
    """Return a list of the kinds of events that need a text, and a line of the others."""
    rows = ((f"`{name}`", "", text) for name, text in texts.items() if text)
    clear = ", ".join(f"`{name}`" for name, text in texts.items() if not text)
    return f"{listing(rows)}\nFurther kinds: {clear}.\n"


def _annotations(kind: type) -> list[tuple[str, str]]:
    """Return each field of a class with its type as it is written."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    fields = [statement for statement in definition.body if isinstance(statement, ast.AnnAssign)]
    return [(ast.unparse(field.target), ast.unparse(field.annotation)) for field in fields]


def _type(annotation: str) -> str:
    if annotation.endswith(f"{arrivals.Arrivals.__name__}]"):
        return "columns"
    for word, json_word in JSON_WORDS.items():
        annotation = annotation.replace(word, json_word)
    return annotation.replace(", ...]", "]").replace("[str, Any]", "").replace(" | null", "?").replace(" | ", " or ")


def _unit(name: str) -> str:
    return UNIT_OF_NAME.get(name, "")
