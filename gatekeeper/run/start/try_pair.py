"""`gatekeeper try`: a pair of the models on this machine, probed for half a minute; one sentence says if it helps."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gatekeeper import host
from gatekeeper.analysis.plan.complaints.memory_fit import RUNTIME_BYTES
from gatekeeper.analysis.plan.draft_pairs import ModelPair, model_pairs
from gatekeeper.analysis.plan.request_costs import SMALL_VOCABULARY
from gatekeeper.core.errors import HostLacksError
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.text import join_names, last_part
from gatekeeper.core.units import show_bytes, show_ratio
from gatekeeper.run.start import try_slo
from gatekeeper.run.start.doctor import missing_backends
from gatekeeper.run.start.inspected_models import find_models, named_models, pair_words, usable

LITTLE = ("little/json", "little/code")
"""The canaries of a model with a small vocabulary, which knows nothing else."""


def find_pair() -> ModelPair:
    """Return the heaviest target on this machine with its drafts that fits into memory and has an installed backend."""
    pairs, missing = model_pairs(usable(find_models())), missing_backends()
    if not pairs:
        message = "no target and draft with the same vocabulary were found in the caches and in the folder models"
        hint = "name them: gatekeeper try --target T --draft D; or see which fit this machine: gatekeeper init"
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
        message = f"no pair of the models found fits into the available memory, {show_bytes(room)}"
        raise HostLacksError(message, hint=f"close other programs; most is held by {host.memory_holders()}")
    return fitting[0]


def try_pair(
    target: str | None,
    drafts: Sequence[str],
    canaries_file: Path | None = None,
    out: Path | None = None,
    *,
    backend: str | None,
    seconds: float,
    observers: Sequence[Observer],
) -> dict[str, Any]:
    """Probe a pair, the one found here where no *target* is given; return what was found, with one sentence.

    *canaries_file* replaces the shipped canaries; the records stay in *out*.
    """
    if target is None and not drafts:
        pair = find_pair()
        backend, model, names = pair.backend, pair.target, [pair.drafts[0].name]
    else:
        named, *others = named_models(target, drafts)
        backend, model, names = backend or named.backend, named.known, [draft.known.name for draft in others]
    little = (model.vocabulary or SMALL_VOCABULARY) < SMALL_VOCABULARY
    words = pair_words(backend, model.name, names)
    again = f"gatekeeper try {words}"
    again += f" --canaries {shlex.quote(str(canaries_file))}" if canaries_file is not None else ""
    probed = try_slo.try_models(
        model.name, names, canaries_file, out, backend=backend, seconds=seconds, observers=observers, again=again,
        shipped=LITTLE if little else try_slo.CANARIES,
    )  # fmt: skip
    return probed | {
        "pair": {"backend": backend, "target": model.name, "drafts": names},
        "sentence": sentence(model.name, names[0], probed["workloads"]),
        "next": f"gatekeeper init {words}",
    }


def sentence(target: str, draft: str, workloads: Mapping[str, Mapping[str, Any]]) -> str:
    """Say for which workloads the draft helps, for which it hurts, and what is open."""
    parts = []
    for word, says in WORDS.items():
        names = [f"{name}{_ratio(result)}" for name, result in workloads.items() if result["answer"] == word]
        parts += [says.format(join_names(names))] if names else []
    return f"Drafting with {last_part(draft)} for {last_part(target)} {join_names(parts)} on this machine."


WORDS = {
    "helps": "makes {} faster",
    "hurts": "makes {} slower",
    "unclear": "is not decided for {}",
}
"""What the sentence says of workloads, by the answer of the probe."""


def _ratio(result: Mapping[str, Any]) -> str:
    ratio = result.get("ratio")
    if ratio is None:
        return ""
    open_yet = result["answer"] == "unclear"
    return f" ({show_ratio(ratio, result['lo'], result['hi'])})" if open_yet else f" ({ratio:.2f}x)"
