"""What is wrong with a canary set: repeats, answers in the prompts, sizes, and too few for the objectives."""

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from gatekeeper.analysis.plan.complaints.unprovable_objectives import BackendTraits, complaints
from gatekeeper.analysis.stats.intervals import samples_needed
from gatekeeper.core.canary import Canary
from gatekeeper.core.canary import parse as parse_canaries
from gatekeeper.core.canary.filler import CHARACTERS
from gatekeeper.core.errors import InputError
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.parse import json_value
from gatekeeper.core.records import Answer
from gatekeeper.core.slo import CHOSEN, CONDITIONS, CONFIDENCE, Slo
from gatekeeper.core.slo import parse as parse_slo
from gatekeeper.core.system.inputs import find_canaries, read_text, shipped_folder
from gatekeeper.core.system.run_directory import INPUTS, is_run

Json = dict[str, Any]

LEAST_TOKENS = 16
"""A shorter answer has too few bursts for a decode speed."""
SAME_BEGIN = 100
"""Characters. Prompts that begin with the same ones are read from the prompt cache of the one before."""
LEAST_EQUAL = 8
"""Characters; a shorter expected answer stands in many a prompt by chance."""
_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class SetProblem:
    """One problem: `error` makes figures wrong or unprovable, `note` is good to know."""

    weight: Literal["error", "note"]
    kind: str
    where: str
    message: str


def check(paths: Sequence[Path], *, limit: int, slo: Path | None = None, tokenizer: Path | None = None) -> Json:
    """Return every problem of the canary files in *paths*, which may be folders; *limit* is the context in tokens.

    Prompts are counted with the *tokenizer* of a model's folder; without one as four characters a token.
    """
    count = _about if tokenizer is None else _tokenizer_counter(tokenizer)
    files = [file for path in paths for file in _files(path)]
    sets = {file: parse_canaries(read_text(file, "canary file"), str(file)) for file in files}
    problems = [problem for file, canaries in sets.items() for problem in _problems(file, canaries, limit, count)]
    problems += _overlap(sets)
    if slo is not None:
        problems += _too_few(slo, sets)
    return {
        "schema": 1,
        "sets": [
            {
                "file": str(file),
                "canaries": len(canaries),
                "expect": sum(canary.expect is not None for canary in canaries),
                "quantiles": [
                    name for name, rank in _QUANTILES.items() if samples_needed(rank, CONFIDENCE) <= len(canaries)
                ],
            }
            for file, canaries in sets.items()
        ],
        "problems": [asdict(problem) for problem in sorted(problems, key=attrgetter("weight", "where"))],
        "errors": sum(problem.weight == "error" for problem in problems),
    }


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [find_canaries(str(path), Path()) if not path.exists() and not path.suffix else path]
    if is_run(path):
        raise InputError(f"{path} is a run", hint=f"its canaries are in {path / INPUTS}")
    files = sorted(path.glob("*.jsonl"))
    if not files:
        raise InputError(f"{path} holds no canary file", hint="name a .jsonl file, or a folder of them")
    return files


def _problems(
    file: Path, canaries: Sequence[Canary], limit: int, count: Callable[[Canary], int]
) -> Iterator[SetProblem]:
    yield from _repeats(file, canaries)
    for canary in canaries:
        where = f"{file.name} {canary.id}"
        if (reason := _find_given_answer(canary)) is not None:
            yield SetProblem("error", "contaminated", where, reason)
        tokens, about = count(canary) + (canary.max_tokens or 0), "about " if count is _about else ""
        if tokens > limit:
            message = f"prompt and answer take {about}{tokens} tokens, and the limit is {limit}"
            yield SetProblem("error", "too long", where, message)
        if canary.max_tokens is not None and canary.max_tokens < LEAST_TOKENS:
            message = f"max_tokens = {canary.max_tokens}: an answer under {LEAST_TOKENS} tokens shows no decode speed"
            yield SetProblem("note", "too short", where, message)
    if len(canaries) < samples_needed(0.5, CONFIDENCE):
        need = samples_needed(0.5, CONFIDENCE)
        message = f"{len(canaries)} canaries: a bound on a median needs {need}"
        yield SetProblem("error", "too few", file.name, message)


def _repeats(file: Path, canaries: Sequence[Canary]) -> Iterator[SetProblem]:
    first_by_prompt: dict[str, str] = {}
    begins: dict[str, list[str]] = defaultdict(list)
    last_turns = {canary.conversation: canary for canary in canaries}
    for canary in (canary for canary in canaries if not canary.turn or last_turns[canary.conversation] is canary):
        words = _words(canary.messages)
        # The same question with other tools or options is another prompt.
        prompt = json.dumps([canary.messages, canary.tools, canary.options, canary.thinking], sort_keys=True)
        first = first_by_prompt.setdefault(prompt, canary.id)
        if first != canary.id:
            message = f"the same prompt as {first}: both count as one, so the set is smaller than it looks"
            yield SetProblem("error", "repeats", f"{file.name} {canary.id}", message)
        if len(words) >= SAME_BEGIN:
            begins[words[:SAME_BEGIN]].append(canary.id)
    for names in begins.values():
        if len(names) > 1:
            message = (
                f"begins like {len(names) - 1} more (such as {names[1]}): with a prompt cache the first characters "
                "are read once"
            )
            yield SetProblem("note", "same begin", f"{file.name} {names[0]}", message)


def _find_given_answer(canary: Canary) -> str | None:
    """Return where the prompt itself shows an answer that passes; None where it does not."""
    if canary.expect is None:
        return None
    expected = (canary.expect.equals or "").strip()
    if len(expected) >= LEAST_EQUAL and any(expected in (_content(message)) for message in canary.messages):
        return "the expected answer stands in the prompt: copying it passes"
    for message in canary.messages:
        if message["role"] == "assistant":
            earlier_answer = Answer(0, 0, text=_content(message), tool_calls=tuple(message.get("tool_calls") or ()))
            if canary.grade(earlier_answer):
                return "an earlier answer in the prompt passes already: repeating it is enough"
    return None


def _overlap(sets: dict[Path, tuple[Canary, ...]]) -> Iterator[SetProblem]:
    """Yield prompts that stand in a shipped set as well: what was tuned on those looks better here, too."""
    shipped = shipped_folder("canaries").resolve()
    own_sets = {file: canaries for file, canaries in sets.items() if shipped not in file.resolve().parents[:2]}
    if not own_sets:
        return
    shipped_prompts = _shipped_prompts(shipped)
    for file, canaries in own_sets.items():
        for canary in canaries:
            if (name := shipped_prompts.get(_words(canary.messages))) is not None:
                message = f"the prompt is {name} of the shipped sets"
                yield SetProblem("error", "contaminated", f"{file.name} {canary.id}", message)


@cache
def _shipped_prompts(folder: Path) -> dict[str, str]:
    """Return the name of each canary of the shipped sets by its prompt."""
    name_by_prompt: dict[str, str] = {}
    for file in sorted([*folder.glob("*.jsonl"), *(folder / "little").glob("*.jsonl")]):
        if file.stem == "mixed":
            continue  # its canaries are those of the other sets
        for line in read_text(file, "canary file").strip().split("\n"):
            record = json_value(line)  # its schemas are not checked here: that takes longer than all the rest
            name_by_prompt.setdefault(_words(record["messages"]), f"{file.stem} {record['id']}")
    return name_by_prompt


def _too_few(path: Path, sets: dict[Path, tuple[Canary, ...]]) -> Iterator[SetProblem]:
    """Yield what the objectives of an SLO cannot prove with these sets."""
    slo: Slo = parse_slo(read_text(path, "SLO file"), str(path))
    used = {workload.name: find_canaries(workload.canaries, path.parent) for workload in slo.workload}
    files = {file.resolve(): canaries for file, canaries in sets.items()}
    checked = [workload for workload in slo.workload if used[workload.name].resolve() in files]
    if not checked:
        raise InputError(
            f"no workload of {path} uses {', '.join(map(str, sets))}",
            hint=f"it uses {', '.join(dict.fromkeys(map(str, used.values())))}",
        )
    canaries = {workload.name: files[used[workload.name].resolve()][: workload.first] for workload in checked}
    able_to_all = BackendTraits(slo.subject.backend, ~Sight(0), 64, frozenset((*CHOSEN, *CONDITIONS)), caches=True)
    with_these_sets = slo.model_copy(update={"workload": tuple(checked)})
    for complaint in complaints(with_these_sets, canaries, able_to_all, {}):
        if complaint.weight == "never" and ", workload " in complaint.about:
            where = f"{path.name} {complaint.about}"
            yield SetProblem("error", "too few", where, f"{complaint.message}; {complaint.hint}")


def _content(message: Json) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else "" if content is None else json.dumps(content)


def _words(messages: Sequence[Json]) -> str:
    return "\n".join(_content(message) for message in messages if message["role"] != "system")


def _about(canary: Canary) -> int:
    """Return about how many tokens a prompt has."""
    size = sum(len(_content(message)) for message in canary.messages) + len(
        json.dumps(canary.tools) if canary.tools else ""
    )
    return -(-size // CHARACTERS)


def _tokenizer_counter(folder: Path) -> Callable[[Canary], int]:
    """Return a function that counts a canary's prompt as the model in *folder* reads it; nothing is downloaded."""
    if not (folder / "tokenizer_config.json").is_file():
        raise InputError(
            f"{folder} has no tokenizer_config.json", hint="name the folder of a model: --tokenizer FOLDER"
        )
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # it would advise to install PyTorch
    try:
        from jinja2 import TemplateError  # noqa: PLC0415 (both come with mlx-lm)
        from transformers import AutoTokenizer  # noqa: PLC0415
    except ImportError as error:
        raise InputError(
            f"--tokenizer needs the package transformers: {error}", hint="pip install 'gatekeeper-slo[mlx]'"
        ) from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{folder}: its tokenizer cannot be loaded: {error}", hint="check the folder") from error

    def count(canary: Canary) -> int:
        if tokenizer.chat_template is None:
            return len(tokenizer.encode("\n".join(str(message.get("content") or "") for message in canary.messages)))
        messages = [_as_template_reads(message) for message in canary.messages]
        tools = list(canary.tools) or None
        try:
            text = tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True, tokenize=False)
        except TemplateError as error:
            raise InputError(f"canary {canary.id}: the chat template refuses it: {error}", hint="remove it") from error
        return len(tokenizer.encode(text, add_special_tokens=False))

    return count


def _as_template_reads(message: dict[str, object]) -> dict[str, object]:
    """Return a message whose calls have their arguments as objects, as chat templates expect them."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    template_calls = []
    for call in calls:
        function = dict(call["function"])
        if isinstance(arguments := function.get("arguments"), str):
            function["arguments"] = json.loads(arguments)
        template_calls.append({**call, "function": function})
    return {**message, "tool_calls": template_calls}
