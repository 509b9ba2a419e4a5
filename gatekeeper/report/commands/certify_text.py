"""What `gatekeeper certify --only sweep` prints."""

from gatekeeper.core.text import describe_setting
from gatekeeper.core.verdict import Estimate
from gatekeeper.report.commands import Document
from gatekeeper.report.data.glossary import finding_title
from gatekeeper.report.phrases import ratio


def sweep_text(document: Document) -> str:
    """Return, per workload, what the sweep measured of each setting and what it chooses."""
    lines = []
    for name, choice in document["workloads"].items():
        lines.append(f"{name}: {describe_setting(choice['setting'])}; {choice['because']}")
        for result in choice["settings"]:
            ends = (result[name] for name in ("ratio", "lo", "hi", "n"))
            speed = ratio(Estimate(*ends)) if result["ratio"] else result["because"]
            acceptance = result["acceptance_rate"]
            rate = "" if acceptance is None else f", acceptance {acceptance:.2f}"
            lines.append(f"    {result['trial']:<28} {speed}{rate}, {result['n']} canaries")
    lines += [
        f"{finding_title(finding['kind'])}, {finding['about']}: {finding['detail']}; {finding['advice']}"
        for finding in document.get("findings", ())
    ]
    lines.append(f"run: {document['run']}")
    return "\n".join(lines) + "\n"
