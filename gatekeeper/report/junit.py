"""The verdict as JUnit XML: fail is <failure>, unproven is <error>, and nothing is ever <skipped>."""

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from gatekeeper.core.units import show
from gatekeeper.core.verdict import Check, Outcome, Verdict

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold (production `Char`, fifth edition, 2.2): control characters, surrogates, U+FFFE, U+FFFF."""


def render(verdict: Verdict) -> str:
    """Return the document: a suite per workload and one for the host, a case per check, names unique."""
    root = ET.Element("testsuites", name=f"gatekeeper {verdict.slo}")
    for workload in verdict.workloads:
        suite = ET.SubElement(root, "testsuite", name=workload.name)
        case = _case(suite, f"{verdict.slo}.{workload.name}", "outcome")
        if workload.outcome == "failed" or (workload.required and workload.outcome == "graded_back"):
            _bad(case, "failure", workload.outcome, workload.because)
        elif workload.outcome == "unproven":
            _bad(case, "error", workload.outcome, workload.because)
        _check_cases(suite, f"{verdict.slo}.{workload.name}", workload.checks)
    if verdict.host_checks or verdict.incomplete:
        suite = ET.SubElement(root, "testsuite", name="host")
        _check_cases(suite, f"{verdict.slo}.host", verdict.host_checks)
        if verdict.incomplete:
            _bad(_case(suite, f"{verdict.slo}.run", "evidence"), "error", "incomplete", verdict.incomplete)
    for one in (*root, root):
        for kind, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
            one.set(kind, str(sum(1 for _ in one.iter(tag))))
        one.set("skipped", "0")
        one.set("time", "0")  # readers take a missing number for NaN
    for one in root.iter():
        one.text = _FORBIDDEN.sub("", one.text) if one.text is not None else None
        one.attrib.update({name: _FORBIDDEN.sub("", value) for name, value in one.attrib.items()})
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _case(suite: ET.Element, classname: str, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=classname, name=name, time="0")


def _check_cases(suite: ET.Element, classname: str, checks: Sequence[Check]) -> None:
    for check in checks:
        name = f"{check.metric} {check.bound} {show(check.threshold, check.unit)}"
        taken = {case.get("name") for case in suite}
        unique, number = name, 2
        while unique in taken:
            unique, number = f"{name} ({number})", number + 1
        case = _case(suite, classname, unique)
        if check.outcome is not Outcome.PASS:
            kind = "failure" if check.outcome is Outcome.FAIL else "error"
            _bad(case, kind, check.because, f"{check.metric}: {check.because}\nwhy this objective: {check.why}")


def _bad(case: ET.Element, kind: str, message: str, content: str) -> None:
    ET.SubElement(case, kind, message=message, type=kind).text = content
