"""The annotations of a run as SARIF 2.1.0, for code scanning: a result for each, at its line of the SLO file.

An objective that is not proven is a result of kind `fail`, like one that failed: a result of kind `open`, which SARIF
has for it, may have no level, and what shows no level shows none of them.
"""

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gatekeeper import __version__
from gatekeeper.core.manifest import sha256
from gatekeeper.core.slo import Slo
from gatekeeper.core.text import inert_json, printable_error
from gatekeeper.core.verdict import known
from gatekeeper.report.annotations import Annotation, annotations
from gatekeeper.report.data import glossary
from gatekeeper.report.data.decision import Decision

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
HOME = "https://github.com/OWNER/gatekeeper"
"""Where the documents are."""
PAGES = {"metric": "metrics.md", "outcome": "words.md#outcomes", "finding": "words.md#findings"}
"""Of docs/reference, by the kind of a word."""
LEVELS = {"notice": "note"}
"""What SARIF calls a level, where it is another word."""


def render(decision: Decision, slo: Slo, text: str, file: str) -> str:
    """Return the document; *text* is the content of *file*, the SLO file.

    A *file* below the working directory is named relative to the root of the sources, as code scanning needs it.
    """
    remarks = annotations(decision, slo, text)
    names = list(dict.fromkeys(remark.rule for remark in remarks))
    location = _location(Path(file))
    driver = {
        "name": "gatekeeper",
        "semanticVersion": __version__,
        "informationUri": HOME,
        "rules": [_rule(name) for name in names],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"gatekeeper/{quote(slo.name)}/"},
        "invocations": [{"executionSuccessful": True, "exitCode": int(decision.exit_code)}],
        "columnKind": "unicodeCodePoints",
        "results": [_result(remark, names.index(remark.rule), location) for remark in remarks],
    }
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return inert_json(json.dumps(_printable(document), indent=1, ensure_ascii=False, allow_nan=False)) + "\n"


def _printable(value: Any) -> Any:
    """Return *value* with texts that steer no terminal and command no CI system."""
    if isinstance(value, dict):
        return {key: _printable(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_printable(part) for part in value]
    # In a message of SARIF `[text](address)` is a link, and the texts of a server are not ours.
    return printable_error(value).replace("](", "] (") if isinstance(value, str) else value


def _location(file: Path) -> dict[str, Any]:
    if file.is_absolute() and not file.is_relative_to(Path.cwd()):
        return {"uri": file.as_uri()}
    path = file.relative_to(Path.cwd()) if file.is_absolute() else file
    return {"uri": quote(os.fsencode(path.as_posix())), "uriBaseId": "%SRCROOT%"}


def _rule(name: str) -> dict[str, Any]:
    entries = [entry for entry in glossary.explained(name) if entry.kind in PAGES]
    if not entries:  # a finding of another version
        return {"id": name, "helpUri": f"{HOME}/blob/main/docs/reference/words.md"}
    entry = entries[0]
    return {
        "id": name,
        "shortDescription": {"text": entry.means},
        "help": {"text": entry.remedy or entry.means},
        "helpUri": f"{HOME}/blob/main/docs/reference/{PAGES[entry.kind]}",
    }


def _result(remark: Annotation, rule: int, location: dict[str, Any]) -> dict[str, Any]:
    bound = () if remark.row is None else (remark.row.check.bound, f"{remark.row.check.threshold:.6g}")
    return {
        "ruleId": remark.rule,
        "ruleIndex": rule,
        "level": LEVELS.get(remark.level, remark.level),
        "message": {"text": f"{remark.title}\n{remark.message}"},
        "locations": [{"physicalLocation": {"artifactLocation": location, "region": {"startLine": remark.line}}}],
        # The figures differ from run to run; what is promised does not.
        "partialFingerprints": {"objective/v1": sha256("\n".join((remark.rule, remark.about, *bound)))},
        "properties": {"about": remark.about, **_figures(remark)},
    }


def _figures(remark: Annotation) -> dict[str, Any]:
    """Return what was measured, in base units, as verdict.json has it."""
    if remark.row is None:
        return {}
    check = remark.row.check
    return {
        "outcome": check.outcome.name.lower(),
        "bound": check.bound,
        "threshold": check.threshold,
        "unit": check.unit,
        "setting": dict(remark.row.setting),
        **known(center=check.center, lo=check.lo, hi=check.hi, n=check.n, passes_at=remark.row.passes_at),
    }
