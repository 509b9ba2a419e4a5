"""What `gatekeeper init` shows."""

from gatekeeper.analysis.plan.complaints.memory_fit import SYSTEM
from gatekeeper.core.units import show_bytes, show_memory
from gatekeeper.report.commands import JsonObject
from gatekeeper.report.commands.plan_document import coverage_hint
from gatekeeper.report.shown_document import Command, Document, Facts, Listing, Table


def init_document(proposal: JsonObject) -> Document:
    """Return what was detected, the pair that was chosen, and the file that was written."""
    machine, pair, models = proposal["host"], proposal["pair"], proposal["models"]
    memory = show_memory(machine["memory_bytes"]) if machine["memory_bytes"] else "memory unknown"
    if machine["memory_bytes"]:
        free = machine["available"]
        memory += f", {'an unknown part' if free is None else show_bytes(free)} of it available now"
    installed = [name for name, there in proposal["backends"].items() if there] or ["none"]
    none_found = "none found in the caches of Hugging Face, LM Studio and Ollama, or in ./models"
    facts = (
        ("machine", f"{machine['chip'] or 'unknown chip'}, {memory}"),
        ("installed", ", ".join(installed)),
        ("models", str(len(models)) if models else none_found),
    )
    names = f"{pair['target']} with {', '.join(pair['drafts'])}"
    if proposal["here"]:
        lines = [f"pair for backend {pair['backend']}: {names}"]
        if proposal["memory"] is not None:
            # What the system holds is not available now, so it is not needed once more.
            parts = [part["bytes"] or 0.0 for part in proposal["memory"]["parts"] if part["part"] != SYSTEM]
            lines += [f"    needs about {show_bytes(sum(parts))} of what is available, with the headroom of the SLO"]
    else:
        lines = [proposal["why_not_here"]] if proposal["why_not_here"] else []
        lines += [f"proposed pair for a machine of this size, backend {pair['backend']}: {names}"]
    lines += [f"left out, not measurable on this host: {name}" for name in proposal["left_out"]]
    lines += [proposal[name] for name in ("certifies_nothing", "short_of_memory", "elsewhere") if proposal[name]]
    lines += [f"wrote {proposal['written']}"]
    lines += [f"for {name}: {command}" for name, command in proposal["also"].items()]
    lines += [f"first: {command}" for command in proposal["do_first"]]
    lines += [coverage_hint(proposal["written"])]
    table = Table(("", "", "", ""), list(map(_model_row, models)))
    return Document("init", "", (Facts(facts), table, Listing(lines), Command(proposal["next"])))


def _model_row(model: JsonObject) -> tuple[str, ...]:
    use = f"left out: {model['left_out']}" if model["left_out"] else f"{model['quantisation']}, for {model['backend']}"
    return f"  {model['name']}", model["shelf"], show_bytes(model["bytes"]) if model["bytes"] else "", use
