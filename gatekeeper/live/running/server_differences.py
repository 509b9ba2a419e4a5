"""Check of a running server against the conditions and launch lines of a policy, as far as the server tells.

Each part is `as certified`, `differs`, or `not checked`: what a server does not tell is never taken for certified.
"""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from gatekeeper.backends import facts_of
from gatekeeper.backends.dialect import Dialect, Get, StatedWindow
from gatekeeper.backends.dialects import running_dialect
from gatekeeper.backends.lossy_options import Lossy, find_lossy_setting
from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.core.policy import Conditions, Launch, Policy
from gatekeeper.core.records import Answer
from gatekeeper.core.text import quote

Outcome = Literal["as certified", "differs", "not checked"]
"""The outcome of one part of the conditions, compared with the running server."""
_VERSION = re.compile(r"\d+(?:\.\d+)+\S*|[0-9a-f]{7,40}|\d{3,}")
"""What identifies a version: its numbers, a build, a commit."""
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")


def compare_window(conditions: Conditions, stated: StatedWindow, fetch: Get) -> tuple[Outcome, str]:
    """Return the outcome and the detail of the part `context`."""
    window = stated.read(fetch(stated.path), conditions.target)
    needed = (conditions.longest_prompt or 0) + conditions.max_tokens
    if window is None:
        return "not checked", f"not stated: {stated.path} names no context window; {needed} tokens are needed"
    if window >= needed:
        return "as certified", f"{window} tokens, {needed} are needed"
    advice = f"; raise {stated.option}" if stated.option else ""
    return "differs", f"{window} tokens, certified with prompts and answers of {needed}{advice}"


@dataclass(frozen=True, slots=True)
class Compared:
    """One part of the conditions, compared with the running server."""

    part: str
    outcome: Outcome
    detail: str


def differences(results: Iterable[Compared]) -> str:
    """Return what differs in one line; empty where nothing does."""
    return "; ".join(f"{result.part}: {result.detail}" for result in results if result.outcome == "differs")


def not_checked(results: Iterable[Compared]) -> str:
    """Return what was not checked in one line; empty where everything was."""
    return "; ".join(f"{result.part} ({result.detail})" for result in results if result.outcome == "not checked")


@dataclass(frozen=True, slots=True)
class SeenProcess:
    """The server's process, where this machine shows it."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] | None
    """Its variables that change how it decodes; None: they cannot be read."""
    lossy: Lossy | None = None
    """What it was started with that makes speculation lossy."""


def compare(policy: Policy, process: SeenProcess | None, fetch: Get) -> list[Compared]:
    """Compare what a server tells without a completion: its process and its own documents."""
    dialect = _dialect(policy.conditions)
    return [
        *_lossy(process, dialect, fetch),
        *_process(policy, process, dialect),
        *_documents(policy, policy.conditions, dialect, fetch),
        *_by_request(policy.conditions),
    ]


def _dialect(conditions: Conditions) -> Dialect:
    """Return the dialect of the deployed server; of what was certified in a process of ours, that of its server."""
    return running_dialect(facts_of(conditions.backend).served_as or conditions.backend)


def start_again(policy: Policy, process: SeenProcess | None) -> str | None:
    """Return the command that starts a server as certified, to paste; None where no command of it is known.

    It is the certified one; where the certificate holds none, the running one with the prompt cache as it was.
    """
    on = any(route.speculation for route in policy.route)
    argv = list(process.argv) if process is not None else []
    launch = next((launch for launch in policy.launch if launch.speculation == on), None)
    if launch is None:
        words = [*argv, *(_dialect(policy.conditions).cache_off if policy.conditions.prompt_cache == "off" else ())]
        return shlex.join(words) if argv else None
    port = argv[argv.index("--port") + 1] if "--port" in argv[:-1] else "PORT"
    return shlex.join(word.replace("{port}", port) for word in launch.command)


def _lossy(process: SeenProcess | None, dialect: Dialect, fetch: Get) -> Iterator[Compared]:
    """Yield what makes the speculation of the running server lossy: how it was started, and what it tells itself."""
    lossy = process.lossy if process is not None else None
    if lossy is None:
        path = dialect.settings_path
        lossy = None if path is None else find_lossy_setting(fetch(path), path, dialect.lossy)
    if lossy is not None:
        yield Compared("lossless speculation", "differs", f"{lossy.message}; {lossy.hint}")


def _process(policy: Policy, process: SeenProcess | None, dialect: Dialect) -> Iterator[Compared]:
    """Compare options and variables with the launch lines; with the nearest where several servers were certified."""
    on = any(route.speculation for route in policy.route)
    launches = [launch for launch in policy.launch if launch.speculation == on]
    if process is None:
        yield Compared("launch line", "not checked", "the server's process is not visible from here")
        return
    if not launches:
        yield Compared("launch line", "not checked", "the certificate holds none: no server was started for it")
        return
    knobs = _shared_knobs(policy)
    by_launch = [_launch_differences(launch, process.argv, knobs, dialect) for launch in launches]
    differing = min(by_launch, key=len)
    launch = launches[by_launch.index(differing)]
    yield Compared(
        "launch line", *(("differs", ", ".join(differing)) if differing else ("as certified", "its options"))
    )
    if process.environment is None:
        yield Compared("environment", "not checked", "the variables of the process cannot be read")
        return
    then, now = launch.environment, process.environment
    changed = [
        f"{name} is {quote(now[name]) if name in now else 'unset'}, certified {then.get(name, 'unset')}"
        for name in sorted({*then, *now})
        if then.get(name) != now.get(name)
    ]
    yield Compared("environment", *(("differs", ", ".join(changed)) if changed else ("as certified", "its variables")))


def _shared_knobs(policy: Policy) -> dict[str, list[str]]:
    """Return the knobs that all routes with speculation share, as options: every request had them when certified."""
    chosen = [dict(route.steps[0]) for route in policy.route if route.speculation]
    shared = {*chosen[0].items()}.intersection(*(setting.items() for setting in chosen)) if chosen else set()
    return {f"--{name.replace('_', '-')}": [str(value)] for name, value in shared}


def _launch_differences(
    launch: Launch, argv: Sequence[str], knobs: Mapping[str, list[str]], dialect: Dialect
) -> list[str]:
    """Name the options by which a running command line differs from a certified one; *knobs* may be options, too."""
    certified, running = (options(words, dialect.aliases) for words in (launch.command, argv))
    differing = []
    for name in sorted({*certified, *running}):
        then, now = certified.get(name), running.get(name)
        if now == (knobs.get(name) if then is None else then):
            continue
        if any(fnmatchcase(name, pattern) for pattern in dialect.harmless):
            continue
        if name in dialect.model_options and then is not None and now is not None:
            continue
        if then == ["hidden"] and now is not None:
            continue
        differing.append(_option_difference(name, then, now))
    return differing


def _option_difference(name: str, then: list[str] | None, now: list[str] | None) -> str:
    if now is None:
        return f"certified with {_write_option(name, then)}, running without it"
    if then is None:
        return f"running with {_write_option(name, now)}, certified without it"
    return f"{name} is {' '.join(map(quote, now))}, certified {' '.join(then)}"


def _write_option(name: str, values: list[str] | None) -> str:
    return " ".join([name, *map(quote, values or ())])


def options(words: Sequence[str], aliases: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the options of a command line with their values; the program and its subcommands are left out."""
    values: dict[str, list[str]] = {}
    name = None
    for word in _arguments(words):
        option, equals, value = word.partition("=")
        if _OPTION.fullmatch(option) and not _is_number(word):
            name = aliases.get(option, option)
            values[name] = [_value(value)] if equals else []
        elif name is not None:
            values[name].append(_value(word))
    return values


def _arguments(words: Sequence[str]) -> list[str]:
    """Return the words after the program; for a Python program those after its module or script."""
    rest = list(words[1:])
    if not words or not words[0].rpartition("/")[2].lower().startswith("python"):
        return rest
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        rest.pop(0)
    return rest[2:] if rest[:1] == ["-m"] else rest[1:]


def _value(word: str) -> str:
    """Return a value as it is compared: of a JSON table without its model, which has a digest."""
    try:
        table = json_value(word)
    except ParseError:
        return word
    if not isinstance(table, dict):
        return word
    return json.dumps({name: value for name, value in table.items() if name != "model"}, sort_keys=True)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _documents(policy: Policy, conditions: Conditions, dialect: Dialect, fetch: Get) -> Iterator[Compared]:
    """Compare the context window that a server states, and what it tells of its slots."""
    yield Compared("context", *compare_window(conditions, dialect.window, fetch))
    if dialect.slots is None:
        return
    slots = dialect.slots(fetch)
    at_once = max([conditions.concurrency, *(policy.max_concurrency(route.workload) for route in policy.route)])
    if slots.count is not None and slots.count < at_once:
        yield Compared("concurrency", "differs", f"{slots.count} slots, certified with {at_once} requests at once")
    if not slots.drafting:
        yield Compared("drafting", "not checked", "the server has no /slots")
    elif any(route.speculation for route in policy.route) and not any(slots.drafting):
        yield Compared("drafting", "differs", "the server was started without a draft")
    else:
        drafting = "the slots draft" if any(slots.drafting) else "the slots decode plainly"
        yield Compared("drafting", "as certified", drafting)


def compare_versions(certified: Mapping[str, str], running: Mapping[str, str]) -> Compared:
    """Compare the versions of the server, and of the packages in its environment."""
    pairs = {name: (certified[name], running[name]) for name in sorted({*certified} & {*running})}
    marks = {name: [{*_VERSION.findall(text)} for text in pair] for name, pair in pairs.items()}
    changed = [
        f"{name} is {quote(pairs[name][1])}, certified {pairs[name][0]}"
        for name, (then, now) in marks.items()
        if then and now and not then & now
    ]
    if changed:
        return Compared("versions", "differs", ", ".join(changed))
    equal = [name for name, (then, now) in marks.items() if then & now]
    if not equal:
        return Compared("versions", "not checked", "the server does not tell its version")
    return Compared("versions", "as certified", ", ".join(f"{name} {pairs[name][1]}" for name in equal))


def _by_request(conditions: Conditions) -> Iterator[Compared]:
    """List what every request decides anew, and the server cannot tell."""
    sampled = conditions.sampling.model_dump(exclude_none=True)
    certified = ", ".join(f"{name} {value:g}" for name, value in sampled.items())
    yield Compared("sampling", "not checked", f"each request decides it; certified with {certified}")
    limits = f"{conditions.concurrency} at once, answers of {conditions.max_tokens} tokens"
    limits += f", prompts of {conditions.longest_prompt}" if conditions.longest_prompt else ""
    yield Compared("load", "not checked", f"its clients decide it; certified up to {limits}")
    if conditions.request:
        yield Compared("request fields", "not checked", f"every request must carry {json.dumps(conditions.request)}")


def cache_difference(conditions: Conditions, answer: Answer) -> str | None:
    """Return that an answer came from a prompt cache, though the certificate was made without one."""
    cached = answer.claims.cached_tokens
    if conditions.prompt_cache != "off" or not cached:
        return None
    options_off = _dialect(conditions).cache_off
    advice = f" ({' '.join(options_off)})" if options_off else ""
    out_of = f" of {answer.prompt_tokens}" if answer.prompt_tokens else ""
    return f"the server took {cached}{out_of} prompt tokens from its cache, certified with the prompt cache off{advice}"


class ServerConditions:
    """The conditions of a server that is watched: compared at each of its starts, and with every answer."""

    def __init__(self) -> None:
        self.found: list[Compared] = []
        self._policy: Policy | None = None
        self._process: SeenProcess | None = None
        self._answers: list[Answer] = []

    def add_answer(self, answer: Answer) -> None:
        """Take one more answer of this round."""
        self._answers.append(answer)

    def check(self, policy: Policy, process: SeenProcess | None, fetch: Get) -> None:
        """Compare what the server tells now."""
        self._policy, self._process, self.found = policy, process, compare(policy, process, fetch)

    @property
    def difference(self) -> str | None:
        """Return what differs, and the command that mends it; None if nothing does.

        It is by the last check, or by the answers since this was last read.
        """
        answers, self._answers = self._answers, []
        warm = None
        if self._policy is not None:
            conditions = self._policy.conditions
            warm = next(filter(None, (cache_difference(conditions, answer) for answer in answers)), None)
        parts = [part for part in (differences(self.found), warm) if part]
        if parts and self._policy is not None and (command := start_again(self._policy, self._process)) is not None:
            parts.append(f"start it as certified: {command}")
        return "; ".join(parts) or None

    def describe(self) -> str:
        """Return the result of the last check in one line."""
        equal = ", ".join(result.part for result in self.found if result.outcome == "as certified") or "nothing"
        parts = [f"as certified: {equal}", f"not checked: {not_checked(self.found)}"]
        return "; ".join((*parts, f"differs: {differing}") if (differing := differences(self.found)) else parts)


def compare_answers(conditions: Conditions, answers: Sequence[Answer], *, speculating: bool) -> Iterator[Compared]:
    """Compare what *answers* to one prompt, sent twice, tell: the prompt cache, and whether anything was drafted."""
    faults = [answer.fault for answer in answers if answer.fault is not None]
    if faults:
        yield Compared("answers", "differs", f"no answer: {quote(faults[0])}")
        return
    warm = next(filter(None, (cache_difference(conditions, answer) for answer in answers)), None)
    if conditions.prompt_cache != "off":
        yield Compared("prompt cache", "not checked", f"certified with it {conditions.prompt_cache}")
    elif warm is not None:
        yield Compared("prompt cache", "differs", warm)
    elif all(answer.claims.cached_tokens is None for answer in answers):
        yield Compared("prompt cache", "not checked", "the server does not tell how many prompt tokens were cached")
    else:
        yield Compared("prompt cache", "as certified", "off: one prompt sent twice was computed twice")
    if speculating:
        longer = [answer for answer in answers if (answer.output_tokens or 0) > 1]
        drafted = [answer.rounds.drafted if answer.rounds is not None else answer.claims.drafted for answer in longer]
        if not drafted or None in drafted:
            yield Compared("drafted tokens", "not checked", "the server does not count them")
        elif not any(drafted):
            yield Compared("drafted tokens", "differs", "none: the server decodes plainly")
        else:
            yield Compared("drafted tokens", "as certified", f"{sum(filter(None, drafted))} in {len(drafted)} answers")
