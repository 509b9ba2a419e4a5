"""The reference pages of the docs, written from the program itself: commands, SLO keys, metrics, exit codes and others.

`python tools/write_reference.py` writes `docs/reference/`; a test compares the pages with the program.
"""

import argparse
import importlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # run as a script, Python looks in tools/ alone


from gatekeeper.analysis.verdict import run_verdict  # noqa: E402
from gatekeeper.backends.dialect import Dialect  # noqa: E402
from gatekeeper.core import judgement, manifest  # noqa: E402
from gatekeeper.core.backend_registry import SERVERS, backend_names  # noqa: E402
from gatekeeper.core.document import document_of  # noqa: E402
from gatekeeper.core.exit_codes import ExitCode  # noqa: E402
from gatekeeper.core.metrics import ALL  # noqa: E402
from gatekeeper.core.metrics.metric import Metric, Sight  # noqa: E402
from gatekeeper.core.policy import Policy  # noqa: E402
from gatekeeper.core.system import environment_variables  # noqa: E402
from gatekeeper.report.data import glossary  # noqa: E402
from tools.command_reference import commands  # noqa: E402
from tools.record_reference import records  # noqa: E402
from tools.reference_tables import attribute_docs, listing, table  # noqa: E402

FOLDER = ROOT / "docs" / "reference"
PROGRAMS = {
    "mlx": "mlx-lm in a worker process of ours; part of gatekeeper on a Mac, the extra `mlx` on Linux",
    "redrafter": "Apple's Python package in a worker process of ours",
    "scripted": "simulated: the script that `subject.script` names, on a virtual clock",
    "worker": "any program that speaks the [worker protocol](worker-protocol.md): `subject.command`",
    "zlab-dflash": "z-lab's Python package `dflash` in a worker process of ours",
}
"""The backends that are programs of ours or of the user, not servers."""
ELSEWHERE = "in an environment of its own; name it in subject.program"
"""How to install most servers, which their page says once."""
HEAD = "<!-- Written by tools/write_reference.py -->\n\n"


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


def _policy_tables(schema: dict[str, Any]) -> Iterator[str]:
    """Yield each table of a policy; one whose keys need no text is a list of them where it is named first."""
    tables = {name: inner for name, inner in schema["$defs"].items() if "properties" in inner}
    plain = {name: ", ".join(f"`{key}`" for key in tables[name]["properties"]) for name in tables}
    plain = {name: keys for name, keys in plain.items() if not _described(tables[name])}
    plain["MeasuredRoute"] += f", each with {plain['MeasuredValue']}"
    texts = {"policy.toml": _keys(schema)}
    texts |= {name: _keys(inner) for name, inner in sorted(tables.items()) if name not in {*plain, *OF_THE_PROXY}}
    for title, text in texts.items():
        shown = text.replace("[Proxy](#proxy)", "[its keys](../proxy.md#which-workload)")
        for name, keys in plain.items():
            shown = shown.replace(f"[{name}](#{name.lower()})", f"table of {keys}")
        yield f"## {title}\n\n{shown}"


def _described(schema: dict[str, Any]) -> bool:
    return any(inner.get("description") for inner in schema.get("properties", {}).values())


def _keys(schema: dict[str, Any]) -> str:
    """Return a list of the keys that have a meaning of their own, and a line of the others."""
    rows, others = [], []
    for name, inner in schema.get("properties", {}).items():
        key = f"`{name}`", f"{_type(inner)}{', required' if name in schema.get('required', ()) else _default(inner)}"
        if inner.get("description"):
            rows.append((*key, inner["description"]))
        else:
            others.append(f"{key[0]} ({key[1]})" if "](#" in key[1] else key[0])
    further = f"{'Further keys' if rows else 'Keys'}: {', '.join(others)}.\n" if others else ""
    return "\n".join(filter(None, (listing(rows), further)))


def _default(schema: dict[str, Any]) -> str:
    default = schema.get("default")
    empty = default is None or default in ("", []) or isinstance(default, dict) or "const" in schema
    return "" if empty else f" = `{json.dumps(default)}`"


def _type(schema: dict[str, Any]) -> str:
    choices = schema.get("anyOf", schema.get("oneOf"))
    choices = [one for one in choices or () if one.get("type") != "null"]
    if schema.get("enum") and set(backend_names()) <= {*schema["enum"]}:
        return "[a backend](backends.md)"
    if choices:
        if [one.get("type") for one in choices] == ["number", "string"]:
            return "quantity"
        named = any("const" in one for one in choices)
        return "one of the names" if named else " or ".join(dict.fromkeys(_type(one) for one in choices))
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    found = [
        (name, f"[{name}](#{name.lower()})"),
        ("enum" in schema, ", ".join(f"`{json.dumps(one)}`" for one in schema.get("enum", ()))),
        ("const" in schema, f"`{json.dumps(schema.get('const'))}`"),
        ("items" in schema, _list_of(_type(schema["items"])) if "items" in schema else ""),
    ]
    values = schema.get("additionalProperties")
    kind = f"table of {_type(values)}" if isinstance(values, dict) else str(schema.get("type", "any"))
    return next((text for holds, text in found if holds), kind)


def _list_of(kind: str) -> str:
    return f"{kind}s" if kind in {"string", "integer", "number"} else f"list of {kind}"


def metrics() -> str:
    """Return the page of every metric that an objective may name."""
    head = (
        "# Metrics\n\nWhat an objective may name; `gatekeeper explain NAME` says what to do where one fails. In "
        "brackets: the unit, which way is better, and one sample with what it needs (of the host: what is read).\n"
    )
    parts = [head]
    for title, of_host in (("Metrics of a workload", False), ("Metrics of the host", True)):
        rows: dict[tuple[str, str], list[str]] = {}
        for one in ALL:
            if one.host is of_host:
                unit = f"{one.unit}, ".removeprefix("1, ") + ("higher" if one.higher_is_better else "lower")
                seen = _seen(one) if of_host else ": ".join(filter(None, (one.per.value, _seen(one))))
                rows.setdefault((f"{unit}; {seen}", _meaning(one)), []).append(f"`{one.name}`")
        parts.append(f"## {title}\n\n{listing((', '.join(names), *cells) for cells, names in rows.items())}")
    return "\n".join(parts)


def _meaning(metric: Metric) -> str:
    """Return what a metric is; the formula of a share follows from its words, and itl_* differ by their quantile."""
    if metric.formula in metric.description or metric.description.startswith(("share of", "the same")):
        return metric.description
    text = f"{metric.description}: `{metric.formula.removeprefix('95 % quantile over answers of ')}`"
    quantile = rf"{metric.name[-2:]} % quantile|median"
    return re.sub(quantile, "quantile", text) if metric.name.startswith("itl_") else text


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
            rows.append((f"`{name}`", "", PROGRAMS[name]))
            continue
        dialect: Dialect = importlib.import_module(SERVERS[name]).DIALECT
        sees = sight(dialect.sight).replace("arrivals, token count, text", "").strip(", ")
        seen = "; ".join(filter(None, ("per request" if dialect.switches else "", sees)))
        rows.append((f"`{name}`", seen, dialect.install.replace(ELSEWHERE, "").replace("()", "").strip()))
    return (
        "# Backends\n\nEvery name that `subject.backend` may have; what was tried: "
        "[Servers](../servers.md#what-can-be-certified-today). Plain decoding has its own server, unless it is *per "
        "request*, as programs of ours may declare it. Arrivals, token counts and text are seen of all servers, but no "
        "arrivals of `ddtree`; what else is expected stands in brackets. What two short answers show before the run "
        "counts, whatever is expected. What `pip` installs goes into an environment of its own: name it in "
        "`subject.program`.\n\n" + listing(rows)
    )


def exit_codes() -> str:
    """Return the page of exit codes, with the way to the reason words."""
    codes = [(code.value, code.words, code.means, code.remedy) for code in ExitCode]
    return (
        "# Exit codes and reason words\n\n## Exit codes\n\nA command whose codes mean more says so in its help; "
        "`gatekeeper explain 3` explains one.\n\n"
        + table(("code", "in short", "means", "what to do"), codes)
        + "\n## Reason words\n\nOf `gatekeeper admit --json`, and of a run without proof: [words](words.md#reasons).\n"
    )


def environment() -> str:
    """Return the page of every environment variable that is read."""
    docs = attribute_docs(environment_variables)
    texts = {name: text for name, text in docs.items() if name != "FAMILIES"}
    beside = {name: text.removeprefix("See ").rstrip(".") for name, text in texts.items() if text.startswith("See ")}
    rows = {
        name: (", ".join(f"`{one}`" for one in (name, *(other for other in beside if beside[other] == name))), "", text)
        for name, text in texts.items()
        if name not in beside
    }
    of_gatekeeper = [row for name, row in rows.items() if name.startswith("GATEKEEPER_")]
    of_others = [row for name, row in rows.items() if not name.startswith("GATEKEEPER_")]
    return (
        "# Environment variables\n\nEvery environment variable that gatekeeper reads.\n\n"
        f"## Of gatekeeper\n\n{listing(of_gatekeeper)}\n## Of other programs\n\n{listing(of_others)}\n"
        f"## Families\n\n{listing((names, '', text) for names, text in environment_variables.FAMILIES.items())}"
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
    ("A transition", run_verdict.Transition("", "", {}, {}, ""), {"from": "before", "to": "after"}),
    ("A finding", judgement.Finding("", "", ""), {}),
)
"""The objects of verdict.json, each with one that has every key, and the attributes that other keys show."""
FURTHER = {
    "schema": "version of this format; a reader refuses a newer one",
    "outcome": "promoted | graded_back | failed | unproven",
    "from": "the setting before",
    "to": "the setting after",
    "host_checks": "checks of the objectives on the machine",
    "steps": "settings that were soaked and given up: see *An abandoned step*",
}
"""What has no line of its own in the code."""
CLEAR = {"slo", "exit_code", "workloads", "n", "why", "because", "findings", "files", "name"}
"""Keys that say by their names what they are."""
OF_THE_PROXY = {"Proxy", "ProxyRule"}
"""Tables that docs/proxy.md shows whole."""


def files() -> str:
    """Return the page of the fields in a run's files."""
    head = (
        "# Fields of the files\n\nWhat a script may read of a run. Fields are added, never renamed "
        "([the contract](../contract.md)). *Further keys* say by their names what they are; `because` is the "
        "reason in words, which may change between versions.\n"
    )
    parts = [head]
    for title, example, renamed in VERDICT:
        docs = FURTHER | attribute_docs(type(example))
        meanings = {key: docs.get(renamed.get(key, key), "") for key in document_of(example)}
        parts.append(f"## {title}\n\n{_meanings(meanings)}")
    for title, kind in (("manifest.json", manifest.Manifest), ("A model", manifest.Model), ("A file", manifest.File)):
        docs = attribute_docs(kind)
        meanings = {field.alias or name: docs.get(name, "") for name, field in kind.model_fields.items()}
        parts.append(f"## {title}\n\n{_meanings(meanings)}")
    schema = Policy.model_json_schema(by_alias=True)
    return "\n".join((*parts, *_policy_tables(schema)))


def _meanings(meanings: Mapping[str, str]) -> str:
    """Return a list of the keys that have a meaning of their own, and a line of the others."""
    others = ", ".join(f"`{key}`" for key, text in meanings.items() if not text or key in CLEAR)
    rows = [(f"`{key}`", "", text) for key, text in meanings.items() if text and key not in CLEAR]
    further = f"{'Further keys' if rows else 'Keys'}: {others}.\n" if others else ""
    return "\n".join(filter(None, (listing(rows), further)))


def words() -> str:
    """Return the page of every word of a verdict, as `gatekeeper explain` prints it."""
    head = (
        "What a verdict, a refusal or a page says, and *what to do*: `gatekeeper explain WORD` prints the same. "
        "[Metrics](metrics.md)."
    )
    parts = [f"# Words\n\n{head}\n"]
    every = [one for one in glossary.entries() if one.kind not in {"metric", glossary.EXIT_CODE}]
    for kind in dict.fromkeys(one.kind for one in every):
        mine = [one for one in every if one.kind == kind]
        rows = []
        for alike in _with_one_remedy(mine):
            names = ", ".join(f"`{one.word}`" if one.kind != "term" else one.word for one in alike)
            remedy = f"; *{alike[0].remedy}.*" if alike[0].remedy else ""
            rows.append((names, "", "; ".join(one.means for one in alike) + remedy))
        parts.append(f"## {kind.capitalize()}s\n\n{listing(rows)}")
    return "\n".join(parts)


def _with_one_remedy(entries: Iterable[glossary.GlossaryEntry]) -> list[list[glossary.GlossaryEntry]]:
    """Return two or three words for which the same helps together, in the place of the first of them."""
    groups: dict[str, list[glossary.GlossaryEntry]] = {}
    for entry in entries:
        groups.setdefault(entry.remedy or entry.word, []).append(entry)
    return [part for group in groups.values() for part in ([group] if len(group) < 4 else [[one] for one in group])]


PAGES = {
    "commands.md": commands,
    "slo-keys.md": slo_keys,
    "metrics.md": metrics,
    "backends.md": backends,
    "exit-codes.md": exit_codes,
    "environment-variables.md": environment,
    "files.md": files,
    "records.md": records,
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
