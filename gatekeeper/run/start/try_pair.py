"""`gatekeeper try`: a pair of the models on this machine, probed for half a minute; one sentence says if it helps."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gatekeeper import host
from gatekeeper.analysis.plan.complaints.memory_fit import RUNTIME_BYTES, SMALL_VOCABULARY
from gatekeeper.analysis.plan.draft_pairs import ModelPair, model_pairs
from gatekeeper.backends.models import locate
from gatekeeper.core.errors import HostLacksError
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.text import last_part, listed
from gatekeeper.run.start import quick_probe
from gatekeeper.run.start.doctor import missing_backends
from gatekeeper.run.start.inspected_models import inspect_model, usable

FOLDER = Path("models")
"""Models of the user, besides those in the caches."""
LITTLE = ("little/json", "little/code")
"""The canaries of a model with a small vocabulary, which knows nothing else."""
NEXT = "gatekeeper init"


def find_pair() -> ModelPair:
    """Return the heaviest target on this machine with its drafts that fits into memory and has an installed backend."""
    models = [inspect_model(stored) for stored in (*locate.all_models(), *locate.in_folder(FOLDER))]
    pairs, missing = model_pairs(usable(models)), missing_backends()
    if not pairs:
        message = "no target and draft with the same vocabulary were found in the caches and in the folder models"
        hint = f"name them: gatekeeper try --target T --draft D; or see which fit this machine: {NEXT}"
        raise HostLacksError(message, hint=hint)
    installed = [pair for pair in pairs if pair.backend not in missing]
    if not installed:
        backend = pairs[0].backend
        raise HostLacksError(f"the backend {backend} of the models found is not installed", hint=missing[backend])
    readings, _ = host.survey()
    free = readings["memory_headroom"].value
    room = float(free) if isinstance(free, int | float) else float("inf")
    fitting = [pair for pair in installed if pair.target.bytes + pair.drafts[0].bytes + RUNTIME_BYTES <= room]
    if not fitting:
        raise HostLacksError("no pair of the models found fits into the available memory", hint="close other programs")
    return fitting[0]


def try_pair(
    target: str | None, drafts: Sequence[str], *, backend: str, seconds: float, observers: Sequence[Observer]
) -> dict[str, Any]:
    """Probe a pair, the one found here where no *target* is given; return what was found, with one sentence."""
    canaries = quick_probe.CANARIES
    if target is None:
        pair = find_pair()
        target, drafts, backend = pair.target.name, [pair.drafts[0].name], pair.backend
        canaries = LITTLE if (pair.target.vocabulary or SMALL_VOCABULARY) < SMALL_VOCABULARY else canaries
    again = f"gatekeeper try --target {target} " + " ".join(f"--draft {draft}" for draft in drafts)
    probed = quick_probe.probe_pair(
        target, drafts, None, None, backend=backend, seconds=seconds, observers=observers, again=again, shipped=canaries
    )
    pair_names = {"backend": backend, "target": target, "drafts": list(drafts)}
    return probed | {"pair": pair_names, "sentence": sentence(target, drafts[0], probed["workloads"]), "next": NEXT}


def sentence(target: str, draft: str, workloads: Mapping[str, Mapping[str, Any]]) -> str:
    """Say for which workloads the draft helps, for which it hurts, and what is open."""
    parts = []
    for word, says in WORDS.items():
        names = [f"{name}{_ratio(result)}" for name, result in workloads.items() if result["answer"] == word]
        parts += [says.format(listed(names))] if names else []
    return f"Drafting with {last_part(draft)} for {last_part(target)} {listed(parts)} on this machine."


WORDS = {
    "helps": "makes {} faster",
    "hurts": "makes {} slower",
    "unclear": "is not decided for {} (a longer --seconds may decide)",
}
"""What the sentence says of workloads, by the answer of the probe."""


def _ratio(result: Mapping[str, Any]) -> str:
    return f" ({result['ratio']:.2f}x)" if result.get("ratio") is not None else ""
