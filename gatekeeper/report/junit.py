"""The verdict as JUnit XML: fail is <failure>, unproven is <error>, and nothing is ever <skipped>."""

import re
from xml.etree import ElementTree as ET

from gatekeeper.core.units import show
from gatekeeper.core.verdict import Check, Outcome, Verdict, WorkloadVerdict

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What the production `Char` of XML 1.0 (fifth edition, 2.2) leaves out."""


def render(verdict: Verdict) -> str:
    """Return the document: a suite per workload and one for the host, a case per promise, names unique."""
    root = ET.Element("testsuites", name=f"gatekeeper {verdict.slo}")
    for workload in verdict.workloads:
        suite = _suite(root, workload.name)
        _outcome_case(suite, f"{verdict.slo}.{workload.name}", workload)
        for check in workload.checks:
            _check_case(suite, f"{verdict.slo}.{workload.name}", check)
    suite = _suite(root, "host")
    for check in verdict.host_checks:
        _check_case(suite, f"{verdict.slo}.host", check)
    if verdict.incomplete:
        case = ET.SubElement(suite, "testcase", classname=f"{verdict.slo}.run", name="evidence", time="0")
        _bad(case, "error", "incomplete", verdict.incomplete)
    if not len(suite):
        root.remove(suite)
    for one in (*root, root):
        for kind, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
            one.set(kind, str(sum(1 for _ in one.iter(tag))))
        one.set("skipped", "0")
        one.set("time", "0")  # readers take a missing number for NaN
    for one in root.iter():
        one.text = _clean(one.text) if one.text is not None else None
        one.attrib.update({name: _clean(value) for name, value in one.attrib.items()})
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(root: ET.Element, name: str) -> ET.Element:
    return ET.SubElement(root, "testsuite", name=name)


def _outcome_case(suite: ET.Element, classname: str, workload: WorkloadVerdict) -> None:
    case = ET.SubElement(suite, "testcase", classname=classname, name="outcome", time="0")
    if workload.outcome == "failed" or (workload.required and workload.outcome == "graded_back"):
        _bad(case, "failure", workload.outcome, workload.because)
    elif workload.outcome == "unproven":
        _bad(case, "error", workload.outcome, workload.because)


def _check_case(suite: ET.Element, classname: str, check: Check) -> None:
    name = f"{check.metric} {check.bound} {show(check.threshold, check.unit)}"
    taken = {case.get("name") for case in suite}
    unique, number = name, 2
    while unique in taken:
        unique, number = f"{name} ({number})", number + 1
    case = ET.SubElement(suite, "testcase", classname=classname, name=unique, time="0")
    if check.outcome is not Outcome.PASS:
        kind = "failure" if check.outcome is Outcome.FAIL else "error"
        _bad(case, kind, check.because, f"{check.metric}: {check.because}\nwhy it was promised: {check.why}")


def _bad(case: ET.Element, kind: str, message: str, content: str) -> None:
    ET.SubElement(case, kind, message=message, type=kind).text = content


def _clean(text: str) -> str:
    """Drop the characters that XML 1.0 can not hold: control characters, surrogates, U+FFFE and U+FFFF."""
    return _FORBIDDEN.sub("", text)
