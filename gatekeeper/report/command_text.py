"""What the commands print for people: plan, sweep, probe, doctor, init, history, prune, admit, metrics."""

from collections.abc import Mapping, Sequence
from typing import Any

from gatekeeper.core.metrics import ALL
from gatekeeper.core.metrics.metric import Metric, Sight
from gatekeeper.core.text import aligned, counted, describe_setting
from gatekeeper.core.units import show, show_bytes, show_memory, show_seconds
from gatekeeper.core.verdict import Estimate
from gatekeeper.report.comparison import change, figure
from gatekeeper.report.data.glossary import GlossaryEntry
from gatekeeper.report.phrases import ratio, spaced

WEIGHTS = {"never": "cannot be proven", "not-here": "not on this host", "weak": "note"}

STAGES = {
    "sweep": "sweep",
    "soak": "soak",
    "plain_blocks": "plain blocks before, midway through and after the soak",
    "closing": "closing pass over the quality canaries",
}
STEPS = {"shrink-draft": "a shorter draft", "lighter-draft": "a lighter draft", "autoregressive": "plain decoding"}


def plan(document: dict[str, Any]) -> str:
    """Return the trials, the expected time, and what the plan cannot prove."""
    from gatekeeper.analysis.passes import FINAL_PASSES, PASSES  # noqa: PLC0415 (brings numpy, which --version does without)

    titles = STAGES | {after.key: after.title for after in PASSES} | {final.name: final.title for final in FINAL_PASSES}
    trials = document["trials"]
    most = "at most " if document["stop"] == "early" else ""
    lines = [f"{document['slo']}: {len(trials)} trials, {most}{document['answers']} answers in the sweep"]
    lines += [
        f"  {one['name']:<28} {one['answers']:>5} answers  {describe_setting(one['setting'])}"
        for one in document["trials"]
    ]
    lines += [
        f"expected {titles[name]}: {(name == 'sweep' and most) or 'about '}{show_seconds(seconds)}"
        for name, seconds in document["expected_seconds"].items()
    ]
    total, least = (show_seconds(document[f"{which}_total_seconds"]) for which in ("expected", "least"))
    lines += [f"expected in total: about {total}" + (f", {least} if the sweep stops early" if least != total else "")]
    lines += [
        f"expected for a fallback to {STEPS[name]}: about {show_seconds(seconds)} more, if every workload needs it"
        for name, seconds in document["expected_fallback_seconds"].items()
    ]
    lines += [document["assumption"], *(f"not comparable: {doubt}" for doubt in document["doubts"])]
    if memory := document.get("memory"):
        lines += [_memory(memory)]
    complaints = document["complaints"]
    lines += [f"{WEIGHTS[one['weight']]}: {one['about']}: {one['message']}; {one['hint']}" for one in complaints]
    return "\n".join(lines) + "\n"


def _memory(memory: dict[str, Any]) -> str:
    parts = (
        f"{one['part']} {show_bytes(one['bytes']) if one['bytes'] is not None else 'unknown'}"
        for one in memory["parts"]
    )
    here = f" of {show_memory(memory['here'])}" if memory["here"] is not None else ""
    return f"estimated memory: {' + '.join(parts)} = {show_bytes(memory['needed'])}{here}"


def choices(document: dict[str, Any]) -> str:
    """Return, per workload, what the sweep measured of each setting and what it chooses."""
    lines = []
    for name, choice in document["workloads"].items():
        lines.append(f"{name}: {describe_setting(choice['setting'])}; {choice['because']}")
        for one in choice["settings"]:
            seen = ratio(Estimate.of(one, "ratio")) if one["ratio"] else one["because"]
            accepted = one["acceptance_rate"]
            rate = "" if accepted is None else f", acceptance {accepted:.2f}"
            lines.append(f"    {one['trial']:<28} {seen}{rate}, {one['n']} canaries")
    lines += [
        f"{spaced(one['kind'])}, {one['about']}: {one['detail']}; {one['advice']}"
        for one in document.get("findings", ())
    ]
    lines.append(f"run: {document['run']}")
    return "\n".join(lines) + "\n"


def probe(document: dict[str, Any]) -> str:
    """Return, per workload, whether the draft helps, why, and what to do next."""
    lines = [f"{document['slo']}: {describe_setting(document['setting'])}, {show_seconds(document['seconds'])}"]
    for name, one in document["workloads"].items():
        lines.append(f"{name}: {one['answer']}; {one['because']}")
        accepted, needed = one["acceptance_rate"], one["break_even_acceptance"]
        if accepted is not None and needed is not None:
            lines.append(f"    acceptance {accepted:.2f}, break-even {needed:.2f}")
        lines += [f"    why: {one['model']['because']}", f"    next: {one['next']}"]
    lines += [f"note: {note}" for note in document["notes"]]
    lines += [f"run: {document['run']}"] if document["run"] else []
    return "\n".join(lines) + "\n"


def tried(document: dict[str, Any], *, verbose: bool) -> str:
    """Return the sentence of `gatekeeper try` and what to do next; *verbose* adds what the probe found."""
    details = probe(document) if verbose else ""
    advice = f"next: {document['next']}, which writes an SLO file for this machine; then certify it"
    return f"{document['sentence']}\n{details}{advice}\n"


_HEADS = {
    "backend": "serving systems",
    "program": "programs",
    "host": "host telemetry",
    "variable": "variables that make speculation lossy",
}
_NOT_ASKED = "  not installed: {}; how to install each: gatekeeper doctor --json"


def checkup(document: Mapping[str, Any]) -> str:
    """Return the tables of `gatekeeper doctor`, each fix once with what it is for, and at the end what to do next."""
    lines = [versions(document["versions"]).rstrip()]
    fixes: dict[str, list[str]] = {}
    for kind, head in _HEADS.items():
        mine = [one for one in document["items"] if one["kind"] == kind]
        if not mine and kind == "variable":
            continue
        # One serving system is enough: those that are not installed are no fault.
        shown = [one for one in mine if one["found"] or kind != "backend"]
        absence = "set" if kind == "variable" else "missing"
        rows = [("" if one["found"] else absence, one["what"], one["needed_for"], one["found"] or "") for one in shown]
        lines += ["", head, *(f"  {row}" for row in aligned(rows))]
        if absent := [one["needed_for"].removeprefix("backend ") for one in mine if one not in shown]:
            lines += [_NOT_ASKED.format(", ".join(absent))]
        for one in shown:
            if one["fix"]:
                fixes.setdefault(one["fix"], []).append(one["needed_for"])
    if fixes:
        lines += ["", "what is missing, and what to do"]
        for fix, uses in fixes.items():
            lines += [f"  for {', '.join(uses)}:", f"      {fix}"]
    lines += ["", f"ready for: {'; '.join(document['ready'])}"]
    lines += [f"missing for: {'; '.join(document['missing']) or 'nothing'}", f"next: {document['next']}"]
    return "\n".join(lines) + "\n"


def versions(known: Mapping[str, str | None]) -> str:
    """Return a line for each version, our own first."""
    return "".join(f"{name} {version or 'not found'}\n" for name, version in known.items())


def proposal(document: Mapping[str, Any]) -> str:
    """Return what `gatekeeper init` found, chose and wrote."""
    machine, pair, models = document["host"], document["pair"], document["models"]
    memory = show_memory(machine["memory_bytes"]) if machine["memory_bytes"] else "memory unknown"
    if machine["memory_bytes"] and machine["available"]:
        memory += f", {show_bytes(machine['available'])} of it available now"
    installed = [name for name, there in document["backends"].items() if there] or ["none"]
    found = len(models) or "none found in the caches of Hugging Face, LM Studio and Ollama"
    lines = [f"machine: {machine['chip'] or 'unknown chip'}, {memory}", f"installed: {', '.join(installed)}"]
    lines += [f"models: {found}", *(f"  {row}" for row in aligned([_model_row(one) for one in models]))]
    names = f"{pair['target']} with {', '.join(pair['drafts'])}"
    if document["here"]:
        seen = document["memory"]
        lines += [f"pair for backend {pair['backend']}: {names}"]
        if seen is not None and machine["available"]:
            lines += [f"    needs about {show_bytes(seen['needed'])}, including the headroom of the SLO"]
    else:
        lines += ["no two of them make a pair that fits into the available memory"] if models else []
        lines += [f"proposed pair for a machine of this size, backend {pair['backend']}: {names}"]
    lines += [f"left out, not measurable on this host: {name}" for name in document["left_out"]]
    lines += [document["elsewhere"]] if document["elsewhere"] else []
    lines += [f"wrote {document['written']}"]
    lines += [f"for {name}: {command}" for name, command in document["also"].items()]
    lines += [f"first: {command}" for command in document["do_first"]]
    lines += [f"next: {document['next']}"]
    return "\n".join(lines) + "\n"


def _model_row(one: Mapping[str, Any]) -> tuple[str, ...]:
    use = f"left out: {one['left_out']}" if one["left_out"] else f"{one['quantisation']}, for {one['backend']}"
    return one["name"], one["shelf"], show_bytes(one["bytes"]) if one["bytes"] else "", use


def history(document: Mapping[str, Any]) -> str:
    """Return each SLO's runs, oldest first, and its trend."""
    lines: list[str] = []
    for slo in document["slos"]:
        lines += [f"{slo['slo']}: {counted(len(slo['runs']), 'run')}", *_sparklines(slo["runs"])]
        for run in slo["runs"]:
            grade = f", {run['grade']}" if run["grade"] else ""
            memory = f", footprint {show_bytes(run['footprint_peak'])}" if run["footprint_peak"] else ""
            lines.append(f"  {run['at'][:16]}Z  {spaced(run['outcome'])}{grade}{memory}  {run['run']}")
            lines += [f"    not trusted: {run['trouble']}"] if run["trouble"] else []
            for name, one in run["workloads"].items():
                figures = [f"{ratio(Estimate.of(one['speed']))} against plain"] if one["speed"] else []
                if one["acceptance_rate"]:
                    figures.append(f"acceptance {figure(one['acceptance_rate'], 'acceptance_rate')}")
                lines.append(f"    {name}: {spaced(one['outcome'])}, {describe_setting(one['setting'])}")
                lines += [f"      {'; '.join(figures)}"] if figures else []
        lines += _trend(slo["trend"])
    lines += [f"cannot be read: {one['run']}: {one['because']}" for one in document["unreadable"]]
    return "\n".join(lines or ["no runs found"]) + "\n"


BARS = "▁▂▃▄▅▆▇█"
NIGHTS = 30
"""Runs of a sparkline."""


def _sparklines(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a row for each workload and host: the speed of its last runs, the latest one, its bound, the outcomes."""
    rows = []
    for host in dict.fromkeys(run["host"] for run in runs):
        mine = [run for run in runs if run["host"] == host][-NIGHTS:]
        for name in dict.fromkeys(name for run in mine for name in run["workloads"]):
            seen = [run["workloads"][name] for run in mine if name in run["workloads"]]
            speeds = [one["speed"]["center"] if one["speed"] else None for one in seen]
            known = [one for one in seen if one["speed"]]
            latest = ratio(Estimate.of(known[-1]["speed"])) if known else "not measured"
            bound = f"bound {known[-1]['bound']:g}x" if known and known[-1]["bound"] is not None else ""
            count = f"{sum(one['outcome'] == 'promoted' for one in seen)} of {len(seen)} promoted"
            rows.append((name, _sparkline(speeds), latest, bound, count, host))
    return [f"  {row}" for row in aligned(rows)] if rows else []


def _sparkline(values: Sequence[float | None]) -> str:
    """Draw values between the least and the largest of them; a dot is a run without one."""
    known = [value for value in values if value is not None]
    least, most = min(known, default=0.0), max(known, default=0.0)
    step = (most - least) / (len(BARS) - 1) or 1.0
    return "".join("·" if value is None else BARS[round((value - least) / step)] for value in values)


def _trend(trend: Mapping[str, Any] | None) -> list[str]:
    if trend is None:
        return ["  trend: needs two complete runs"]
    if trend["a"] is None:
        return [f"  trend: {trend['because']}"]
    lines = [f"  trend, {trend['b']} against {trend['a']}:"]
    for name, contrasts in trend["workloads"].items():
        lines += [f"    {name}: {_contrast(one)}" for one in contrasts if one["a"] and one["b"]]
    if trend["footprint_peak"]["change"] is not None:
        lines.append(f"    {_contrast(trend['footprint_peak'])}")
    return [*lines, *_differ(trend["differences"], "    ")]


def _differ(differences: list[str], indent: str) -> list[str]:
    return [f"{indent}also different, a possible cause: {', '.join(differences)}"] if differences else []


def _contrast(one: Mapping[str, Any]) -> str:
    metric = one["metric"]
    moved = f" ({change(one)})" if one["change"] is not None else ""
    return f"{metric}: {figure(one['a'], metric)} -> {figure(one['b'], metric)}{moved}, {one['says']}"


def pruned(document: Mapping[str, Any]) -> str:
    """Return a line for each run, the removed ones first, and the sum at the end."""
    dry = document["dry_run"]
    lines = [f"{'would remove' if dry else 'removed'}  {_of(one)}" for one in document["removed"]]
    lines += [f"kept  {_of(one)}: {'; '.join(one['because'])}" for one in document["kept"]]
    lines += [f"left alone  {one['run']}: {one['because']}" for one in document["left"]]
    lines += [f"cannot be removed  {one['run']}: {one['because']}" for one in document["failed"]]
    gone = f"{counted(len(document['removed']), 'run')}, {show(document['bytes'], 'B')}"
    rest = counted(len(document["kept"]) + len(document["left"]) + len(document["failed"]), "run")
    lines.append(f"{document['runs']}: {'would remove' if dry else 'removed'} {gone}; {rest} kept")
    return "\n".join(lines) + "\n"


def _of(one: Mapping[str, Any]) -> str:
    return f"{one['run']}  {one['at'][:16]}Z  {one['slo']}  {spaced(one['outcome'])}"


def linted(document: Mapping[str, Any]) -> str:
    """Return what is wrong with each SLO file, and nothing of those where nothing is."""
    wrong = [(one["slo"], what) for one in document["files"] for what in one["wrong"]]
    lines = [f"{slo}: {what['message'].removeprefix(f'{slo}: ')}\n  hint: {what['hint']}\n" for slo, what in wrong]
    return "".join(lines)


WORDS = {0: "admitted", 1: "refused, an objective is not met", 3: "refused"}
CHECKS = {"seals": "checksums", "papers": "certificate"}
"""Words for the names of checks that the JSON document keeps for scripts."""


def admission(document: Mapping[str, Any]) -> str:
    """Return the first reason in the first line, then what to do next and what was checked."""
    code = document["exit_code"]
    reason = f"{spaced(document['reason'])}: " if code == 3 else ""
    where = f" ({document['run']})" if document["run"] else ""
    lines = [f"{document['slo']}: {WORDS[code]}: {reason}{document['because']}{where}", f"  next: {document['next']}"]
    lines += [f"  {CHECKS.get(one['check'], one['check']):<11} {one['detail']}" for one in document["checks"]]
    for one in document.get("chain", ()):
        host = ", ".join(str(one["host"][key]) for key in ("chip", "os") if one["host"][key])
        lines.append(
            f"  {one['step']:<11} by {' and '.join(one['by']) or 'unknown'} on {host or 'unknown'}, {one['at'][:16]}Z"
        )
    for one in document.get("server", ()):
        if one["outcome"] != "as certified":
            lines.append(f"  {one['outcome']}: {one['part']}: {one['detail']}")
    lines += [f"  skipped {one['run']}: {one['because']}" for one in document["passed_over"]]
    tries = document.get("tries")
    if tries is not None and (tries["not_passed"] or tries["at_least"]):
        least, why = ("at least ", f" ({tries['because']})") if tries["at_least"] else ("", "")
        counts = f"{tries['not_passed']} of {tries['finished']}"
        lines.append(f"  tries       {least}{counts} finished runs of this did not pass{why}")
    return "\n".join(lines) + "\n"


def metrics_document() -> dict[str, Any]:
    """Return every metric as JSON."""
    return {
        "schema": 1,
        "metrics": [
            {
                "name": metric.name,
                "unit": metric.unit,
                "better": "higher" if metric.higher_is_better else "lower",
                "per": metric.per.value,
                "needs": _needs(metric),
                "when": metric.default_when,
                "population": metric.population,
                "says": metric.description,
            }
            for metric in ALL
        ],
    }


def _needs(metric: Metric) -> list[str]:
    if metric.host:
        return ["host telemetry"]
    return sorted(str(flag.name).lower() for flag in Sight if flag in metric.needs)


def metrics() -> str:
    """Return one paragraph per metric."""
    out = []
    for metric in ALL:
        better = "higher" if metric.higher_is_better else "lower"
        needs = ", ".join(_needs(metric)) or "nothing"
        facts = f"{metric.unit}; {better} is better; per {metric.per.value}; needs {needs}"
        out.append(f"{metric.name}\n    {metric.description}\n    {facts}")
    return "\n".join(out) + "\n"


def glossary(entries: Sequence[GlossaryEntry]) -> str:
    """Return what a word means, how it is computed and what to do."""
    parts = []
    for one in entries:
        rows = [("means", one.means), ("formula", one.formula), ("what to do", one.remedy)]
        parts.append("\n".join([f"{one.word} ({one.kind})", *(f"  {name}: {text}" for name, text in rows if text)]))
    return "\n\n".join(parts) + "\n"


def glossary_list(entries: Sequence[GlossaryEntry]) -> str:
    """Return every word with its meaning, by kind."""
    lines = []
    for kind in dict.fromkeys(one.kind for one in entries):
        rows = [(one.word, one.means) for one in entries if one.kind == kind]
        lines += [f"{kind}s", *(f"  {row}" for row in aligned(rows)), ""]
    return "\n".join(lines)
