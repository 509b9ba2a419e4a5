"""The reference pages of the docs, written from the program itself: commands, SLO keys, metrics, records and others.

`python tools/write_reference.py` writes `docs/reference/`; a test compares the pages with the program.
"""

import argparse
import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import click

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # run as a script, Python looks in tools/ alone


from gatekeeper.analysis.follow_ups import FOLLOW_UPS  # noqa: E402
from gatekeeper.analysis.verdict import run_verdict  # noqa: E402
from gatekeeper.cli.common_options import GLOBAL_OPTIONS, GlobalOption  # noqa: E402
from gatekeeper.cli.main import gatekeeper  # noqa: E402
from gatekeeper.core import judgement, records  # noqa: E402
from gatekeeper.core.backend_registry import backend_names  # noqa: E402
from gatekeeper.core.document import document_of  # noqa: E402
from gatekeeper.core.exit_codes import ExitCode  # noqa: E402
from gatekeeper.core.judgement import FindingKind  # noqa: E402
from gatekeeper.core.manifest import Manifest  # noqa: E402
from gatekeeper.core.metrics import ALL  # noqa: E402
from gatekeeper.core.policy import Policy  # noqa: E402
from gatekeeper.core.reasons import Reason  # noqa: E402
from gatekeeper.core.records.arrivals import Arrivals  # noqa: E402
from gatekeeper.core.system import environment_variables  # noqa: E402
from gatekeeper.host.sources import UNITS  # noqa: E402
from gatekeeper.report.data.run_rows import AnswerRow, SampleRow  # noqa: E402

FOLDER = ROOT / "docs" / "reference"
HEAD = "<!-- Written by tools/write_reference.py -->\n\n"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    cells = [[" ".join(str(text).split()).replace("|", "\\|") for text in row] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, ["---"] * len(head), *cells])


def listing(rows: Iterable[tuple[object, object, object]]) -> str:
    """Return a list in Markdown of names, each with its type, if any, and its meaning."""
    lines = (f"- {name}{f' ({kind})' if kind else ''}: {' '.join(str(text).split())}\n" for name, kind, text in rows)
    return "".join(lines)


def quote(names: Iterable[str]) -> str:
    """Return the names in backquotes, with commas."""
    return ", ".join(f"`{name}`" for name in names)


def attribute_docs(of: type | ModuleType) -> dict[str, str]:
    """Return the string below each attribute of a class or a module, which Python itself does not keep."""
    docs = {}
    tree = ast.parse(textwrap.dedent(inspect.getsource(of)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else tree.body
    for above, below in pairwise(body):
        target = getattr(above, "target", None) or next(iter(getattr(above, "targets", ())), None)
        text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else None
        if isinstance(target, ast.Name) and isinstance(text, str):
            docs[target.id] = text
    return docs


def commands() -> str:
    """Return the page of every command with the names of its options."""
    context = click.Context(gatekeeper, info_name="gatekeeper", help_option_names=[])
    rows = []
    for path, command, above in _walk(gatekeeper, context, ()):
        shown = click.Context(command, info_name=path[-1], parent=above, help_option_names=[])
        arguments = [text for text in command.collect_usage_pieces(shown) if not text.startswith("[OPTIONS]")]
        usage = path if isinstance(command, click.Group) else (*path, *arguments)
        options = [option for option in command.params if isinstance(option, click.Option)]
        own = [option.opts[0] for option in options if option.help and not isinstance(option, GlobalOption)]
        summary = " ".join(inspect.cleandoc(command.help or "").partition("\n\n")[0].split())
        rows.append((f"`{' '.join(usage)}`", "", f"{summary} {quote(own)}"))
    return (
        "# Commands\n\n`--help` of a command says what each option takes, and which exit codes mean more. Each "
        f"has those that fit of {quote(GLOBAL_OPTIONS)}.\n\n{listing(rows)}"
    )


def _walk(
    group: click.Group, context: click.Context, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command, click.Context]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        yield (*path, name), command, context
        loaded = getattr(command, "command", None)
        inner = loaded() if callable(loaded) and not isinstance(command, click.Group) else command
        if isinstance(inner, click.Group):
            yield from _walk(inner, click.Context(inner, info_name=name, parent=context), (*path, name))


def slo_keys() -> str:
    """Return the page of every key of an SLO file, from its JSON Schema."""
    schema = json.loads((ROOT / "slos" / "slo.schema.json").read_text("utf-8"))
    head = (
        'From `slos/slo.schema.json`, which editors read too. A quantity is a number, or a text such as `"600 s"`. '
        "How to write a file: [SLO files](../../slos/README.md)."
    )
    tables = {name for name, inner in schema["properties"].items() if "](#" in _type(inner)}
    top = schema | {"properties": {name: inner for name, inner in schema["properties"].items() if name not in tables}}
    further = "The other keys are the tables below, of which `subject`, `workload` and `objective` are required.\n"
    parts = [f"# Keys of an SLO file\n\n{head}\n", f"## Top level\n\n{_keys(top)}\n{further}"]
    knobs = schema["$defs"]["Knobs"]["properties"]
    swept = schema["$defs"]["Sweep"]
    swept["properties"] = {name: inner for name, inner in swept["properties"].items() if name not in knobs}
    swept["description"] += " Each of the [knobs](#knobs) is a key too, with one value or a list of them."
    parts += [
        f"## {name}\n\n{inner.get('description', '')}\n\n{_keys(inner)}"
        for name, inner in sorted(schema["$defs"].items())
    ]
    return "\n".join(parts)


PLAIN_TYPES = {"string", "strings", "integer", "number", "boolean", "quantity", "object"}
"""Types that the meaning of a key shows; an editor says them from the schema."""


def _keys(schema: dict[str, Any]) -> str:
    """Return a list of the keys that have a meaning of their own, and a line of the others."""
    rows, plain = [], []
    for name, inner in schema.get("properties", {}).items():
        kind = _type(inner)
        needed = "required" if name in schema.get("required", ()) else _default(inner)
        kind = ", ".join(filter(None, ("" if kind in PLAIN_TYPES else kind, needed)))
        if inner.get("description"):
            rows.append((f"`{name}`", kind, inner["description"]))
        else:
            plain.append(f"`{name}` ({kind})" if "](#" in kind else f"`{name}`")
    further = f"{'Further keys' if rows else 'Keys'}: {', '.join(plain)}.\n" if plain else ""
    return "\n".join(filter(None, (listing(rows), further)))


def _default(schema: dict[str, Any]) -> str:
    default = schema.get("default")
    empty = default is None or default in ("", []) or isinstance(default, dict) or "const" in schema
    return "" if empty else f"default `{json.dumps(default)}`"


def _type(schema: dict[str, Any]) -> str:
    choices = [choice for choice in schema.get("anyOf", schema.get("oneOf")) or () if choice.get("type") != "null"]
    if schema.get("enum") and set(backend_names()) <= {*schema["enum"]}:
        return "[a backend](../servers.md)"
    if choices:
        if [choice.get("type") for choice in choices] == ["number", "string"]:
            return "quantity"
        named = any("const" in choice for choice in choices)
        return "one of the names" if named else " or ".join(dict.fromkeys(map(_type, choices)))
    values = schema.get("additionalProperties")
    kind = f"table of {_type(values)}" if isinstance(values, dict) else str(schema.get("type", "any"))
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        kind = f"[{name}](#{name.lower()})"
    elif "enum" in schema:
        kind = ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    elif "const" in schema:
        kind = f"`{json.dumps(schema['const'])}`"
    elif "items" in schema:
        item = _type(schema["items"])
        kind = f"{item}s" if item in {"string", "integer", "number"} else f"list of {item}"
    return kind


ABOUT_METRICS = """# Metrics

What an objective may name. In brackets: the unit, and which way is better. `gatekeeper explain NAME` has the formula,
what a server must show for it, and what to do where one fails.
"""


def metrics() -> str:
    """Return the page of every metric that an objective may name."""
    parts = [ABOUT_METRICS]
    for title, of_host in (("Metrics of a workload", False), ("Metrics of the host", True)):
        names: dict[tuple[str, str], list[str]] = {}
        for metric in (metric for metric in ALL if metric.host is of_host):
            unit = f"{metric.unit}, ".removeprefix("1, ") + ("higher" if metric.higher_is_better else "lower")
            meaning = metric.description.replace("; informational unless named", "")
            if metric.name.startswith("itl_"):
                meaning = meaning.replace(f"{metric.name[-2:]} % quantile", "quantile").replace("median", "quantile")
            names.setdefault((unit, meaning), []).append(metric.name)
        parts.append(f"## {title}\n\n{listing((quote(alike), *cells) for cells, alike in names.items())}")
    return "\n".join(parts)


def exit_codes() -> str:
    """Return the page of exit codes, and of the words that say why."""
    codes = [(code.value, code.words, code.means, code.remedy) for code in ExitCode]
    return (
        "# Exit codes and words\n\nA command whose codes mean more says so in its help; `gatekeeper explain WORD` says "
        "what each word means, and what to do.\n\n"
        + table(("code", "in short", "means", "what to do"), codes)
        + f"\n## Findings\n\nOf a verdict: {quote(FindingKind)}.\n\n## Reasons\n\nOf `gatekeeper admit --json`, and of "
        f"a remote run without a verdict: {quote(Reason)}.\n"
    )


def environment() -> str:
    """Return the page of every environment variable that is read."""
    docs = {name: text for name, text in attribute_docs(environment_variables).items() if name != "FAMILIES"}
    ours = [(f"`{name}`", "", text) for name, text in docs.items() if name.startswith("GATEKEEPER_")]
    others = quote(name for name in docs if not name.startswith("GATEKEEPER_"))
    families = ((names, "", text) for names, text in environment_variables.FAMILIES.items())
    return (
        "# Environment variables\n\nEvery environment variable that gatekeeper reads.\n\n"
        f"{listing(ours)}\nAs their owners define them: {others}.\n\n{listing(families)}"
    )


FAILED = run_verdict.WorkloadOutcome.FAILED
CHECK = judgement.Check(
    "", "", 0.0, judgement.Outcome.PASS, unit="", because="", why="",
    scope="-", population=judgement.Bounds(0.0, 0.0), passed_with="-",
)  # fmt: skip
VERDICT: tuple[tuple[str, Any, dict[str, str]], ...] = (
    ("verdict.json", run_verdict.Verdict("", "", "", (), incomplete="-", routing=judgement.Missing("")), {}),
    ("A workload", run_verdict.WorkloadVerdict("", FAILED, {}, True, "", ()), {"speculation": "required"}),
    ("A check", CHECK, {}),
    ("An abandoned step", run_verdict.AbandonedStep("", {}, FAILED, "", ()), {}),
    ("A transition", run_verdict.Transition("", "", {}, {}, ""), {}),
    ("A finding", judgement.Finding("", "", ""), {}),
)
"""The objects of verdict.json, each with one that has every key, and the attributes that other keys show."""
FURTHER = {
    "schema": "version of this format; a reader refuses a newer one",
    "outcome": "promoted | graded_back | failed | unproven",
    "host_checks": "checks of the objectives on the machine",
    "steps": "settings that were soaked and given up: see *An abandoned step*",
}
"""What has no line of its own in the code."""
CLEAR = {"slo", "exit_code", "workloads", "n", "why", "because", "findings", "files", "name", "seed", "profile", "host"}
"""Keys that say by their names what they are."""
OF_THE_PROXY = {"Proxy", "ProxyRule"}
"""Tables that docs/proxy.md shows whole."""


def files() -> str:
    """Return the page of the fields in a run's files."""
    head = (
        "# Fields of the files\n\nWhat a script may read of a run. *Further keys* say by their names what they are; "
        "`because` is the reason in words, which may change between versions ([the contract](../contract.md)).\n"
    )
    parts = [head]
    for title, example, renamed in VERDICT:
        docs = FURTHER | attribute_docs(type(example))
        meanings = {key: docs.get(renamed.get(key, key), "") for key in document_of(example)}
        parts.append(f"## {title}\n\n{_meanings(meanings)}")
    keys = quote(field.alias or name for name, field in Manifest.model_fields.items())
    parts.append(f"## manifest.json\n\nKeys: {keys}.\n")
    return "\n".join((*parts, *_policy_tables(Policy.model_json_schema(by_alias=True))))


def _meanings(meanings: Mapping[str, str]) -> str:
    """Return a list of the keys that have a meaning of their own, and a line of the others."""
    clear = quote(key for key, text in meanings.items() if not text or key in CLEAR)
    rows = [(f"`{key}`", "", text) for key, text in meanings.items() if text and key not in CLEAR]
    further = f"{'Further keys' if rows else 'Keys'}: {clear}.\n" if clear else ""
    return "\n".join(filter(None, (listing(rows), further)))


def _policy_tables(schema: dict[str, Any]) -> Iterator[str]:
    """Yield each table of a policy; one whose keys need no text is a list of them where it is named first."""
    tables = {name: inner for name, inner in schema["$defs"].items() if "properties" in inner}
    plain = {
        name: quote(inner["properties"])
        for name, inner in tables.items()
        if not any(key.get("description") for key in inner["properties"].values())
    }
    plain["MeasuredRoute"] += f", each with {plain['MeasuredValue']}"
    texts = {"policy.toml": _keys(schema)}
    texts |= {name: _keys(inner) for name, inner in sorted(tables.items()) if name not in {*plain, *OF_THE_PROXY}}
    for title, text in texts.items():
        shown = text.replace("[Proxy](#proxy)", "[its keys](../proxy.md#which-workload)")
        for name, keys in plain.items():
            shown = shown.replace(f"[{name}](#{name.lower()})", f"table of {keys}")
        yield f"## {title}\n\n{shown}"


ABOUT_RECORDS = """# Record files

A JSON object a line; the last line is `{"end": true, "records": N}`. Unknown is null or empty, never 0; `?` after a
type: it may be null. Times in `_ns` are of one monotonic clock of the machine: subtract them.
`gatekeeper report RUN --format csv` and [`gatekeeper.load`](../python.md) give [rows](#a-row-an-answer).

A line is [a request and its answer](#a-request-and-its-answer), but of the follow-ups in brackets. The fields of those,
and of rounds and claims, are in `gatekeeper/core/records/`.
"""
COLUMNS = """Columns, left out where no piece has one: `at_ns` of the first piece, `gaps_ns` from each to the next,
`tokens` of each (one number where all have as many), `drafted` (a letter a piece: `t` drafted and accepted, `f` the
target's own, `?` unknown), `token_ids`, `characters`.
"""
"""What `Arrivals.as_columns` writes."""
RECORDS = (
    ("A request and its answer", records.Generation, ""),
    ("An answer", records.Answer, ""),
    ("A row an answer", AnswerRow, "`gatekeeper report RUN --format csv`, and `answers` in Python."),
    ("A row a host sample", SampleRow, "`gatekeeper report RUN --of host --format csv`, and `samples` in Python."),
)
"""The kinds of record that a program outside reads, their parts, and the rows of a table."""
WORDS_MORE = 6
"""How many words more than its name a text needs to say more."""
JSON_WORDS = {
    "None": "null",
    "tuple[": "list[",
    "Mapping[": "object[",
    "dict[": "object[",
    "Sequence[": "list[",
    "Setting": "list[list]",
    "Role": "str",
}
"""How a type of Python is called in JSON."""


def record_files() -> str:
    """Return the page of the record files, their fields, and the rows of a table."""
    parts = [ABOUT_RECORDS, listing(_files())]
    described: dict[str, str] = {}
    for title, kind, about in RECORDS:
        text = about or inspect.getdoc(kind)
        parts.append(f"## {title}\n\n{text}\n\n{_fields(kind, described)}")
        described |= attribute_docs(kind)
    roles, events = attribute_docs(records.Role), sorted({*records.EventKind} - records.RECORDED_ELSEWHERE)
    parts += [
        f"## Arrivals\n\n{COLUMNS}",
        f"## Roles\n\n{listing((f'`{role.value}`', '', roles[role.name]) for role in records.Role)}",
        f"## Names of readings\n\n{quote(UNITS)}.\n",
        f"## An event\n\nA line of `events.jsonl`: `at`, `detail`, and `kind`: {quote(events)}.\n",
    ]
    return "\n".join(parts)


def _files() -> Iterator[tuple[str, str, str]]:
    """Yield the name of each record file, the kind of its lines where they are no answers, and what it holds."""
    yield "`baseline.jsonl`, `null.jsonl`", "", "plain decoding before the sweep, and once more"
    yield "`sweep-SETTING.jsonl`", "", "the sweep: a file a setting"
    yield "`baseline-again-N.jsonl`", "", "the baseline again, where it had no one speed"
    yield "`soak-N.jsonl`, `soak-N.part-M.jsonl`", "", "a soak and its parts, by fallback step"
    for follow_up in FOLLOW_UPS:
        kind = "" if follow_up.kind is records.Generation else f"`{follow_up.kind.__name__}`"
        yield f"`{follow_up.name}-N.jsonl`", kind, f"after soak N: {follow_up.title}"
    yield "`host.jsonl`", "", "the machine, once a second, by what changed: read [its rows](#a-row-a-host-sample)"
    yield "`events.jsonl`", "", "[what happened](#an-event) when"
    yield (
        "`watch.jsonl`, [`live.jsonl`](proxy.md#records)",
        "",
        "beside a policy: rounds of a watch, requests of a proxy",
    )


def _fields(kind: type, described: Container[str]) -> str:
    """Return a list of the fields whose texts say more than their names, and a line of the others.

    A field that is *described* above under the same name means the same.
    """
    docs = attribute_docs(kind)
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    rows, clear = [], []
    for statement in definition.body:
        if isinstance(statement, ast.AnnAssign):
            name = ast.unparse(statement.target)
            if name in described or len(docs[name].split()) < len(name.split("_")) + WORDS_MORE:
                clear.append(name)
            else:
                rows.append((f"`{name}`", _json_type(ast.unparse(statement.annotation)), docs[name]))
    further = f"Further fields: {quote(clear)}.\n" if clear else ""
    return "\n".join(filter(None, (listing(rows), further)))


def _json_type(annotation: str) -> str:
    if annotation.endswith(f"{Arrivals.__name__}]"):
        return "columns"
    for word, json_word in JSON_WORDS.items():
        annotation = annotation.replace(word, json_word)
    return annotation.replace(", ...]", "]").replace("[str, Any]", "").replace(" | null", "?").replace(" | ", " or ")


PAGES = {
    "commands.md": commands,
    "slo-keys.md": slo_keys,
    "metrics.md": metrics,
    "exit-codes.md": exit_codes,
    "environment-variables.md": environment,
    "files.md": files,
    "records.md": record_files,
}


def main() -> None:
    """Write every page."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(HEAD + page(), "utf-8")


if __name__ == "__main__":
    main()
