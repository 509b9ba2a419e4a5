"""The policy on the page, and what was fixed before the first token: models, canaries and versions."""

import json

from gatekeeper.core.manifest import Model
from gatekeeper.core.units import show
from gatekeeper.report.data.page_data import PageData
from gatekeeper.report.html.markup import Markup, el, facts, section


def manifest_section(page: PageData) -> Markup:
    """Return the policy, and what was fixed before the first token."""
    frozen = page.manifest
    rows = [
        ("manifest", page.verdict.manifest_sha256),
        ("SLO", f"{frozen.slo.name} {frozen.slo.sha256[:16]}"),
        *([("target", _model(frozen.target))] if frozen.target is not None else []),
        *(("draft", _model(draft)) for draft in frozen.drafts),
        *(
            (f"canaries, {name}", f"{file.count} in {file.name} {file.sha256[:16]}")
            for name, file in frozen.canaries.items()
        ),
        ("soak profile", f"{frozen.profile.name} {frozen.profile.sha256[:16]}"),
        ("backend", frozen.backend),
        ("versions", ", ".join(f"{name} {version}" for name, version in frozen.versions.items())),
    ]
    manifest_json = json.dumps(frozen.document(), indent=1, sort_keys=True, ensure_ascii=False)
    policy = el("p", "No policy was written: an unproven or unfinished run changes nothing.")
    if page.policy is not None:
        policy = _folded("policy.toml: what to deploy, with its guards", page.policy)
    return section(
        "Policy and manifest" if page.progress is None else "Manifest",
        policy if page.progress is None else None,
        el("details", el("summary", "Models, canaries and versions"), facts(rows, "rows")),
        _folded("manifest.json: what was fixed before the first token", manifest_json),
        name="files",
    )


def _folded(title: str, text: str) -> Markup:
    return el("details", el("summary", title), el("pre", text, tabindex="0"))


def _model(model: Model) -> str:
    return f"{model.name}, {model.quantisation}, {show(model.bytes, 'B')}, {model.digest[:16]}"
