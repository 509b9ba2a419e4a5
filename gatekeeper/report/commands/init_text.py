"""What `gatekeeper init` prints."""

from gatekeeper.analysis.plan.complaints.memory_fit import SYSTEM
from gatekeeper.core.text import align_columns
from gatekeeper.core.units import show_bytes, show_memory
from gatekeeper.report.commands import Document
from gatekeeper.report.commands.plan_text import coverage_hint


def init_text(document: Document) -> str:
    """Return what was detected, the pair that was chosen, and the file that was written."""
    machine, pair, models = document["host"], document["pair"], document["models"]
    memory = show_memory(machine["memory_bytes"]) if machine["memory_bytes"] else "memory unknown"
    if machine["memory_bytes"]:
        free = machine["available"]
        memory += f", {'an unknown part' if free is None else show_bytes(free)} of it available now"
    installed = [name for name, there in document["backends"].items() if there] or ["none"]
    count = len(models) or "none found in the caches of Hugging Face, LM Studio and Ollama, or in ./models"
    lines = [f"machine: {machine['chip'] or 'unknown chip'}, {memory}", f"installed: {', '.join(installed)}"]
    lines += [f"models: {count}", *(f"  {row}" for row in align_columns([_model_row(model) for model in models]))]
    names = f"{pair['target']} with {', '.join(pair['drafts'])}"
    if document["here"]:
        lines += [f"pair for backend {pair['backend']}: {names}"]
        if document["memory"] is not None:
            # What the system holds is not available now, so it is not needed once more.
            parts = [part["bytes"] or 0.0 for part in document["memory"]["parts"] if part["part"] != SYSTEM]
            lines += [f"    needs about {show_bytes(sum(parts))} of what is available, with the headroom of the SLO"]
    else:
        lines += [document["why_not_here"]] if document["why_not_here"] else []
        lines += [f"proposed pair for a machine of this size, backend {pair['backend']}: {names}"]
    lines += [f"left out, not measurable on this host: {name}" for name in document["left_out"]]
    lines += [document[name] for name in ("certifies_nothing", "short_of_memory", "elsewhere") if document[name]]
    lines += [f"wrote {document['written']}"]
    lines += [f"for {name}: {command}" for name, command in document["also"].items()]
    lines += [f"first: {command}" for command in document["do_first"]]
    lines += [coverage_hint(document["written"])]
    lines += [f"next: {document['next']}"]
    return "\n".join(lines) + "\n"


def _model_row(model: Document) -> tuple[str, ...]:
    use = f"left out: {model['left_out']}" if model["left_out"] else f"{model['quantisation']}, for {model['backend']}"
    return model["name"], model["shelf"], show_bytes(model["bytes"]) if model["bytes"] else "", use
