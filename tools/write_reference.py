"""The reference pages of the docs, written from the program itself: commands, SLO keys, metrics, exit codes and others.

`python tools/write_reference.py` writes `docs/reference/`; a test compares the pages with the program.
"""

import argparse
import ast
import importlib
import inspect
import json
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # run as a script, Python looks in tools/ alone

import click  # noqa: E402

from gatekeeper.analysis.verdict import run_verdict  # noqa: E402
from gatekeeper.backends.dialect import Dialect  # noqa: E402
from gatekeeper.cli.main import gatekeeper  # noqa: E402
from gatekeeper.core import manifest, verdict  # noqa: E402
from gatekeeper.core.backend_registry import SERVERS, backend_names  # noqa: E402
from gatekeeper.core.errors import ExitCode  # noqa: E402
from gatekeeper.core.metrics import ALL  # noqa: E402
from gatekeeper.core.metrics.metric import Metric, Sight  # noqa: E402
from gatekeeper.core.policy import Policy  # noqa: E402
from gatekeeper.core.reasons import Reason  # noqa: E402
from gatekeeper.core.system import environment_variables  # noqa: E402
from gatekeeper.report.data import glossary  # noqa: E402

FOLDER = ROOT / "docs" / "reference"
PROGRAMS = {
    "mlx": "mlx-lm in a worker process of ours; part of gatekeeper on a Mac, the extra `mlx` on Linux",
    "redrafter": "Apple's Python package in a worker process of ours",
    "scripted": "simulated: the script that `subject.script` names, on a virtual clock",
    "worker": "any program that speaks the [worker protocol](../worker-protocol.md): `subject.command`",
    "zlab-dflash": "z-lab's Python package `dflash` in a worker process of ours",
}
"""The backends that are programs of ours or of the user, not servers."""
HEAD = "<!-- Written by tools/write_reference.py from the program: change it there. -->\n\n"


def cell(text: object) -> str:
    """Return *text* on one line, for a cell of a table."""
    return " ".join(str(text).split()).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell(one) for one in row)} |\n" for row in lines)


def commands() -> str:
    """Return the page of every command with its options, as `--help` prints them."""
    parts = ["# Commands\n\nEvery command with its options, as `--help` prints them.\n"]
    context = click.Context(gatekeeper, info_name="gatekeeper", help_option_names=["-h", "--help"])
    for path, command, above in _walk(gatekeeper, context, ()):
        of_command = click.Context(command, info_name=path[-1], parent=above, max_content_width=100)
        of_command.terminal_width = 100
        parts.append(
            f"{'##' if len(path) == 1 else '###'} {' '.join(path)}\n\n```text\n{command.get_help(of_command)}\n```\n"
        )
    return "\n".join(parts)


def _walk(
    group: click.Group, context: click.Context, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command, click.Context]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        yield (*path, name), command, context
        if not isinstance(command, click.Group):
            loaded = getattr(command, "command", None)
            command = loaded() if callable(loaded) else command
        if isinstance(command, click.Group):
            yield from _walk(command, click.Context(command, info_name=name, parent=context), (*path, name))


def slo_keys() -> str:
    """Return the page of every key of an SLO file, from its JSON Schema."""
    schema = json.loads((ROOT / "slos" / "slo.schema.json").read_text("utf-8"))
    head = (
        "From `slos/slo.schema.json`, which editors read too. How to write a file: [SLO files](../../slos/README.md)."
    )
    parts = [f"# Keys of an SLO file\n\n{head}\n", f"## Top level\n\n{_keys(schema)}"]
    tables = sorted(schema["$defs"].items())
    parts += [f"## {name}\n\n{inner.get('description', '')}\n\n{_keys(inner)}" for name, inner in tables]
    return "\n".join(parts)


def _keys(schema: dict[str, Any]) -> str:
    required = schema.get("required", ())
    rows = [
        (
            f"`{name}`",
            _type(inner),
            "required" if name in required else _default(inner),
            inner.get("description", ""),
        )
        for name, inner in schema.get("properties", {}).items()
    ]
    return table(("key", "type", "default", "meaning"), rows)


def _default(schema: dict[str, Any]) -> str:
    return f"`{json.dumps(schema['default'])}`" if schema.get("default") not in (None, {}, []) else ""


def _type(schema: dict[str, Any]) -> str:
    choices = schema.get("anyOf", schema.get("oneOf"))
    if choices:
        named = any("const" in one for one in choices)
        return "one of the names" if named else " or ".join(dict.fromkeys(_type(one) for one in choices))
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    found = [
        (name, f"[{name}](#{name.lower()})"),
        ("enum" in schema, ", ".join(f"`{json.dumps(one)}`" for one in schema.get("enum", ()))),
        ("const" in schema, f"`{json.dumps(schema.get('const'))}`"),
        ("items" in schema, f"list of {_type(schema.get('items', {}))}" if "items" in schema else ""),
    ]
    values = schema.get("additionalProperties")
    kind = f"table of {_type(values)}" if isinstance(values, dict) else str(schema.get("type", "any"))
    return next((text for holds, text in found if holds), kind)


def metrics() -> str:
    """Return the page of every metric that an objective may name."""
    parts = ["# Metrics\n\nWhat an objective may name: `gatekeeper metrics` lists the same.\n"]
    for title, of_host in (("Metrics of a workload", False), ("Metrics of the host", True)):
        rows = [
            (
                f"`{one.name}`",
                one.unit,
                "higher" if one.higher_is_better else "lower",
                one.per.value,
                _seen(one),
                one.description,
            )
            for one in ALL
            if one.host is of_host
        ]
        head = ("metric", "unit", "better", "one sample is", "needs", "what it is")
        parts.append(f"## {title}\n\n{table(head, rows)}")
    return "\n".join(parts)


def _seen(metric: Metric) -> str:
    if metric.host:
        return ", ".join(f"`{name}`" for name in metric.samples)
    return sight(metric.needs)


def sight(seen: Sight) -> str:
    """Return the names of what is measured of a backend, in words."""
    return ", ".join(str(one.name).lower().replace("_", " ") for one in Sight if one in seen and one.name != "NOTHING")


def backends() -> str:
    """Return the page of every backend: how plain decoding is reached, and what can be measured of it."""
    rows = []
    for name in backend_names():
        if name not in SERVERS:
            rows.append((f"`{name}`", "per request", "as it declares", PROGRAMS[name]))
            continue
        dialect: Dialect = importlib.import_module(SERVERS[name]).DIALECT
        per_request = dialect.switches or "num_draft_tokens" in dialect.by_request
        plain = "per request" if per_request else "a server of its own"
        rows.append((f"`{name}`", plain, sight(dialect.sight), dialect.install))
    return (
        "# Backends\n\nEvery name that `subject.backend` may have. What was tried, and where: "
        "[Servers](../servers.md#what-can-be-certified-today).\n\n"
        + table(("backend", "plain decoding", "what is seen", "how to install or start it"), rows)
    )


def exit_codes() -> str:
    """Return the page of exit codes and of the reason words of `admit`."""
    meanings = _attribute_docs(ExitCode)
    codes = [(one.value, f"`{one.name.lower()}`", meanings.get(one.name, "")) for one in ExitCode]
    reasons = _attribute_docs(Reason)
    words = [(f"`{one.value}`", reasons.get(one.name, "")) for one in Reason]
    return (
        "# Exit codes and reason words\n\n## Exit codes\n\n"
        + table(("code", "name", "means"), codes)
        + "\n## Reason words\n\nOf `gatekeeper admit --json`, and of a run that proves nothing.\n\n"
        + table(("reason", "means"), words)
    )


def environment() -> str:
    """Return the page of every environment variable that is read."""
    docs = _attribute_docs(environment_variables)
    rows = {name: (f"`{name}`", text) for name, text in docs.items() if name != "FAMILIES"}
    of_gatekeeper = [row for name, row in rows.items() if name.startswith("GATEKEEPER_")]
    of_others = [row for name, row in rows.items() if not name.startswith("GATEKEEPER_")]
    head = ("variable", "what it is for")
    return (
        "# Environment variables\n\nEvery environment variable that gatekeeper reads.\n\n"
        f"## Of gatekeeper\n\n{table(head, of_gatekeeper)}\n## Of other programs\n\n{table(head, of_others)}\n"
        f"## Families\n\n{table(('variables', 'what they are for'), environment_variables.FAMILIES.items())}"
    )


def _attribute_docs(of: type | ModuleType) -> dict[str, str]:
    """Return the string below each attribute of a class or a module, which Python itself does not keep."""
    found = {}
    tree = ast.parse(textwrap.dedent(inspect.getsource(of)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else tree.body
    for above, below in pairwise(body):
        target = (
            above.target
            if isinstance(above, ast.AnnAssign)
            else above.targets[0]
            if isinstance(above, ast.Assign)
            else None
        )
        documented = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(target, ast.Name) and documented:
            found[target.id] = str(below.value.value)  # type: ignore[attr-defined]
    return found


FAILED = run_verdict.WorkloadOutcome.FAILED
CHECK = verdict.Check(
    "", "", 0.0, verdict.Outcome.PASS, "", "", "", scope="", population=verdict.Bounds(0.0, 0.0), passed_with=""
)
VERDICT: tuple[tuple[str, Any, dict[str, str]], ...] = (
    ("verdict.json", run_verdict.Verdict("", "", "", (), incomplete="-", routing=verdict.Missing("")), {}),
    (
        "A workload",
        run_verdict.WorkloadVerdict("", FAILED, {}, (), required=True, because=""),
        {"speculation": "required"},
    ),
    ("A check", CHECK, {}),
    ("An abandoned step", run_verdict.AbandonedStep("", {}, FAILED, (), ""), {}),
    ("A transition", run_verdict.Transition("", "", {}, {}, ""), {"from": "before", "to": "after"}),
    ("A finding", verdict.Finding("", "", ""), {}),
)
"""The objects of verdict.json, each with one that has every key, and the attributes that other keys show."""
FURTHER = {
    "schema": "version of this format; a reader refuses a newer one",
    "outcome": "promoted | graded_back | failed | unproven",
    "exit_code": "what the command ends with",
    "from": "the setting before",
    "to": "the setting after",
    "checks": "see *A check*",
    "host_checks": "checks of the objectives on the machine",
    "steps": "settings that were soaked and given up: see *An abandoned step*",
    "workloads": "see *A workload*",
    "findings": "see *A finding*",
    "transitions": "see *A transition*",
    "because": "the reason in words; may change between versions",
}
"""What has no line of its own in the code."""


def files() -> str:
    """Return the page of the fields in a run's files."""
    head = (
        "# Fields of the files\n\nWhat a script may read of a run directory. Fields are added, never renamed; one "
        "that is absent in an older run is optional. The promises around them: [the contract](../contract.md).\n"
    )
    parts = [head]
    for title, example, renamed in VERDICT:
        docs = FURTHER | _attribute_docs(type(example))
        rows = [(f"`{key}`", docs.get(renamed.get(key, key), "")) for key in example.document()]
        parts.append(f"## {title}\n\n{table(('key', 'means'), rows)}")
    for title, kind in (("manifest.json", manifest.Manifest), ("A model", manifest.Model), ("A file", manifest.File)):
        docs = _attribute_docs(kind)
        rows = [(f"`{field.alias or name}`", docs.get(name, "")) for name, field in kind.model_fields.items()]
        parts.append(f"## {title}\n\n{table(('key', 'means'), rows)}")
    schema = Policy.model_json_schema(by_alias=True)
    parts.append(f"## policy.toml\n\n{_keys(schema)}")
    parts += [
        f"## {name}\n\n{_keys(inner)}" for name, inner in sorted(schema["$defs"].items()) if "properties" in inner
    ]
    return "\n".join(parts)


def words() -> str:
    """Return the page of every word of a verdict, as `gatekeeper explain` prints it."""
    parts = ["# Words\n\nWhat a verdict, a finding or a refusal says: `gatekeeper explain WORD` prints the same.\n"]
    every = glossary.entries()
    for kind in dict.fromkeys(one.kind for one in every):
        mine = [one for one in every if one.kind == kind]
        formula = any(one.formula for one in mine)
        head = ("word", "means", *(["formula"] if formula else []), "what to do")
        rows = [(f"`{one.word}`", one.means, *([f"`{one.formula}`"] if formula else []), one.remedy) for one in mine]
        parts.append(f"## {kind.capitalize()}s\n\n{table(head, rows)}")
    return "\n".join(parts)


PAGES = {
    "commands.md": commands,
    "slo-keys.md": slo_keys,
    "metrics.md": metrics,
    "backends.md": backends,
    "exit-codes.md": exit_codes,
    "environment-variables.md": environment,
    "files.md": files,
    "words.md": words,
}


def main() -> None:
    """Write every page."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(HEAD + page(), "utf-8")


if __name__ == "__main__":
    main()
