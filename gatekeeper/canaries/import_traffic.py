"""From logs of real requests to canary sets, a soak profile with their mix, and a list of what was replaced."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal

import tomli_w

from gatekeeper.canaries.conversation import Conversation, UnusableError, grown
from gatekeeper.canaries.log_formats import UnfilledError, conversations
from gatekeeper.canaries.near_duplicates import TextIndex
from gatekeeper.canaries.personal_data import Replacer
from gatekeeper.canaries.proposed_expectation import format_instruction, propose_expectation, requested_schema
from gatekeeper.canaries.stratified_sample import LengthPair, compare_mixes, draw_sample
from gatekeeper.canaries.traffic_log import records
from gatekeeper.core.canary import parse as parse_canaries
from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.system.files import write_atomically
from gatekeeper.core.text import inert_json

Json = dict[str, Any]
By = Literal["workload", "model", "file", "none"]

TIERS = (("short", 600), ("medium", 4000))
"""Each with the characters of messages and tools that it ends below; longer prompts are `long`."""
ROOM = 1.25
"""The limit of a canary without one of its own is this much over the recorded answer."""
STEP, LEAST_LIMIT = 16, 64
"""Limits are whole multiples of the one, and none is under the other: another model may use more words."""
CONVERSATIONS = "-conversations"
"""Ends the name of the set that holds a workload's conversations."""
REVIEW, REPORT, PROFILE = "review.json", "import.json", "profile.toml"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(slots=True)
class _Group:
    """The requests of one workload: those that differ, and how many were like each."""

    distinct: list[Conversation] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    index: TextIndex = field(default_factory=TextIndex)
    indexed: list[int] = field(default_factory=list)
    """Where in `distinct` each text of the index is."""
    requests: list[Conversation] = field(default_factory=list)
    """All of them, where conversations are wanted."""

    def add(self, conversation: Conversation) -> None:
        if not conversation.is_benchmark:
            if (number := self.index.add(conversation.words)) is not None:
                self.counts[self.indexed[number]] += 1
                return
            self.indexed.append(len(self.distinct))
        self.distinct.append(conversation)
        self.counts.append(1)

    def lengths(self) -> list[LengthPair]:
        return [
            LengthPair(conversation.length, None if conversation.answer is None else conversation.answer.length, count)
            for conversation, count in zip(self.distinct, self.counts, strict=True)
        ]


def import_logs(
    logs: Sequence[Path], out: Path, *, by: By = "workload", most: int = 128, conversations_most: int = 0,
    replace_personal: bool = True, force: bool = False,
) -> Json:  # fmt: skip
    """Write the canaries of *logs* into the folder *out*, and return what was done; *most* canaries a workload.

    Up to *conversations_most* conversations a workload become sets of their own, every turn a canary.
    """
    _refuse_to_overwrite(logs, out, force=force)
    replacer = Replacer() if replace_personal else None
    groups, unusable = _grouped(logs, by, replacer, keep_all=conversations_most > 0)
    if not groups:
        reasons = "; ".join(f"{reason} ({first})" for reason, (_, first) in unusable[:3])
        raise InputError(
            f"no request in {', '.join(map(str, logs))} can become a canary: {reasons or _without_records(logs)}",
            hint="one JSON object a line, such as what `gatekeeper proxy` or a server's log writes: "
            "docs/your-canaries.md lists the formats",
        )
    requests = {name: sum(group.counts) for name, group in groups.items()}
    total = sum(requests.values())
    mix = {name: requests[name] / total for name in sorted(groups)}
    sets, lengths, sampled, workloads = {}, {}, {}, []
    for name, share in mix.items():
        group = groups[name]
        lengths[name] = group.lengths()
        places = draw_sample(lengths[name], most, name)
        sampled[name] = [lengths[name][place] for place in places]
        canaries = [
            _canary(group.distinct[place], f"{name}-{number:03d}", name, replacer)
            for number, place in enumerate(places, start=1)
        ]
        sets[f"{name}.jsonl"] = canaries
        workload = _summary(name, canaries, requests[name], share, len(group.distinct))
        if chains := grown(group.requests)[:conversations_most]:
            turns = [turn for number, chain in enumerate(chains, 1) for turn in _turns(chain, name, number, replacer)]
            file = f"{name}{CONVERSATIONS}.jsonl"
            sets[file] = turns
            workload["conversations"] = {"file": file, "count": len(chains), "turns": len(turns)}
        workloads.append(workload)
    document: Json = {
        "schema": 1,
        "output": str(out),
        "logs": [_clean_name(str(log), replacer) for log in logs],
        "requests": total,
        "unusable": [
            {"why": reason, "count": count, "first": _clean_name(first, replacer)}
            for reason, (count, first) in unusable
        ],
        "repeated": total - sum(len(group.distinct) for group in groups.values()),
        "workloads": workloads,
        "mirror": asdict(compare_mixes(lengths, sampled, mix)),
        "personal_data": None if replacer is None else replacer.counts,
        "profile": str(out / PROFILE),
        "review": None if replacer is None else str(out / REVIEW),
    }
    texts = {file: _lines(canaries) for file, canaries in sets.items()}
    for file, text in texts.items():
        parse_canaries(text, file)
    texts[PROFILE] = _profile(out, document, mix)
    texts[REPORT] = inert_json(json.dumps(document, indent=1, ensure_ascii=False)) + "\n"
    _write(out, texts, None if replacer is None else [asdict(value) for value in replacer.replaced.values()])
    return document


def _refuse_to_overwrite(logs: Sequence[Path], out: Path, *, force: bool) -> None:
    """Raise InputError where the canaries would replace a log, or without *force* canaries of before."""
    if inside := [log for log in logs if log.resolve().parent == out.resolve() and log.suffix == ".jsonl"]:
        hint = "choose another -o: the files *.jsonl of that folder are replaced"
        raise InputError(f"the log {inside[0].name} is in {out}, where canaries are to be written", hint=hint)
    if not force and out.is_dir() and (earlier := sorted(out.glob("*.jsonl"))):
        raise InputError(
            f"{out} holds canaries already: {earlier[0].name}",
            hint="a frozen set must not change under a run: choose another -o, or --force to replace it",
        )


def _grouped(
    logs: Sequence[Path], by: By, replacer: Replacer | None, *, keep_all: bool
) -> tuple[dict[str, _Group], list[tuple[str, tuple[int, str]]]]:
    """Return the requests of the logs by workload, and why records can become no canary: how many, where the first is.

    The commonest reason comes first.
    """
    groups: dict[str, _Group] = defaultdict(_Group)
    unusable: dict[str, tuple[int, str]] = {}
    for record, source in _read(logs):
        if isinstance(record, UnfilledError):
            hint = "run the benchmark's own prepare script and import what it writes: docs/your-canaries.md, Benchmarks"
            raise InputError(f"{source}: {record}", hint=hint)
        if isinstance(record, UnusableError):
            count, first = unusable.get(str(record), (0, source))
            unusable[str(record)] = count + 1, first
            continue
        group = groups[_workload(record, by, source, replacer)]
        group.add(record)
        if keep_all:
            group.requests.append(record)
    return groups, sorted(unusable.items(), key=lambda reason: -reason[1][0])


def _lines(canaries: Sequence[Json]) -> str:
    return "".join(inert_json(json.dumps(canary, ensure_ascii=False)) + "\n" for canary in canaries)


def _without_records(logs: Sequence[Path]) -> str:
    empty = [str(log) for log in logs if log.stat().st_size == 0]
    if len(empty) == len(logs):
        return "the file is empty" if len(empty) == 1 else "the files are empty"
    return f"no line of {next(str(log) for log in logs if str(log) not in empty)} is a JSON object or a logged request"


def _read(logs: Sequence[Path]) -> Iterator[tuple[Conversation | UnusableError, str]]:
    for path in logs:
        for line, record in records(path):
            source = f"{path.name}:{line}"
            if isinstance(record, UnusableError):
                yield record, source
            else:
                yield from ((conversation, source) for conversation in conversations(record))


def _workload(conversation: Conversation, by: By, source: str, replacer: Replacer | None) -> str:
    """Return the name of a request's workload: what the log calls it, or else what kind of request it is.

    It becomes the name of a file, so what is personal in it is replaced, too.
    """
    label: str | None = None
    if by == "workload":
        label = conversation.workload or (
            "tools" if conversation.tools else "json" if requested_schema(conversation) is not None else "chat"
        )
    elif by == "model":
        label = (conversation.model or "unknown").rpartition("/")[2]
    elif by == "file":
        label = source.rpartition(":")[0]
    label = _clean_name(label or "all", replacer)
    if by == "file":
        label = label.partition(".")[0]
    name = _NOT_IN_NAMES.sub("-", label).strip("-._").lower()
    return name[:60] or "all"


def _clean_name(name: str, replacer: Replacer | None) -> str:
    return name if replacer is None else replacer.clean_name(name)


def _canary(conversation: Conversation, name: str, workload: str, replacer: Replacer | None) -> Json:
    messages = [dict(message) for message in conversation.messages]
    if words := format_instruction(conversation):
        last = next(message for message in reversed(messages) if message["role"] == "user")
        last["content"] = f"{last['content'] or ''}{words}"
    size = sum(len(message["content"] or "") for message in messages) + len(
        json.dumps(conversation.tools) if conversation.tools else ""
    )
    fields: Json = {
        "id": name,
        "category": workload,
        "tier": next((tier for tier, end in TIERS if size < end), "long"),
        "messages": messages,
        "max_tokens": _limit(conversation),
        "tools": list(conversation.tools) or None,
        "expect": propose_expectation(conversation),
    }
    fields = {key: value for key, value in fields.items() if value is not None}
    if replacer is not None:
        fields |= replacer.clean({key: fields[key] for key in ("messages", "tools", "expect") if key in fields}, name)
    return fields


def _turns(chain: Sequence[Conversation], workload: str, number: int, replacer: Replacer | None) -> list[Json]:
    """Return the turns of a conversation as canaries; all are cut from the last one, so that each begins the next."""
    name = f"{workload}-conversation-{number:03d}"
    last: Json = {"messages": [dict(message) for message in chain[-1].messages], "tools": list(chain[-1].tools)}
    last = last if replacer is None else replacer.clean(last, name)
    turns = []
    for turn, conversation in enumerate(chain, start=1):
        fields: Json = {
            "id": f"{name}-{turn:02d}",
            "category": workload,
            "conversation": name,
            "turn": turn,
            "messages": last["messages"][: len(conversation.messages)],
            "max_tokens": _limit(conversation),
            "tools": last["tools"] or None,
        }
        turns.append({key: value for key, value in fields.items() if value is not None})
    return turns


def _limit(conversation: Conversation) -> int | None:
    """Return the most tokens of the answer: as requested, or a little over what was answered."""
    answered = None if conversation.answer is None else STEP * -(-int(conversation.answer.length * ROOM) // STEP)
    if conversation.max_tokens is not None and answered is not None:
        return min(conversation.max_tokens, max(answered, LEAST_LIMIT))
    return conversation.max_tokens or (None if answered is None else max(answered, LEAST_LIMIT))


def _summary(name: str, canaries: Sequence[Json], requests: int, share: float, distinct: int) -> Json:
    kinds = Counter(next(iter(canary["expect"])) if "expect" in canary else "speed only" for canary in canaries)
    sizes = [sum(len(message["content"] or "") for message in canary["messages"]) for canary in canaries]
    return {
        "name": name,
        "file": f"{name}.jsonl",
        "requests": requests,
        "share": round(share, 4),
        "distinct": distinct,
        "canaries": len(canaries),
        "expect": dict(kinds.most_common()),
        "tier": next((tier for tier, end in TIERS if median(sizes) < end), "long"),
    }


def _profile(out: Path, document: Json, mix: dict[str, float]) -> str:
    name = _NOT_IN_NAMES.sub("-", out.resolve().name)
    files = ", ".join(Path(log).name for log in document["logs"][:5])
    return tomli_w.dumps(
        {
            "schema": 1,
            "name": name,
            "why": f"The mix of {document['requests']} requests imported from {files}.",
            "mix": {workload: round(100 * share, 2) or 0.01 for workload, share in mix.items()},
            "arrival": "closed",
            "idle": "0 s",
            "background": {"memory": "0 GB", "cpu": 0.0, "disk_read": "0 MB/s"},
        }
    )


def _write(out: Path, texts: dict[str, str], replaced: list[Json] | None) -> None:
    """Write the files; what names people is readable by its owner alone, and git leaves it out."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for old in out.glob("*.jsonl"):
            old.unlink()
        if replaced is not None:
            review = {"note": "holds the original values: delete it after the review", "replaced": replaced}
            write_atomically(
                out / REVIEW, inert_json(json.dumps(review, indent=1, ensure_ascii=False)) + "\n", mode=0o600
            )
            write_atomically(out / ".gitignore", f"{REVIEW}\n")
        for name, text in texts.items():
            write_atomically(out / name, text)
    except OSError as error:
        message = f"cannot write {error.filename or out}: {error.strerror}"
        raise GatekeeperError(message, hint="choose another -o") from error
