"""The verdict as JUnit XML: fail is <failure>, unproven is <error>, and nothing is ever <skipped>.

The time of a suite is that of its soaks; so is that of its case `outcome`, and the other cases read the same answers in
no time of their own. Workloads share a soak, so the whole takes the time of its longest suite.
"""

import re
from collections.abc import Sequence
from decimal import Decimal
from xml.etree import ElementTree as ET

from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.judgement import Check, Outcome
from gatekeeper.core.text import describe_setting, without_commands
from gatekeeper.core.units import show
from gatekeeper.report import phrases
from gatekeeper.report.data.decision import decide
from gatekeeper.report.data.objective_rows import ObjectiveRow
from gatekeeper.report.outcome_signs import write_as_words

OUTCOME = "outcome"
"""The case of a workload as a whole."""
_FORBIDDEN = re.compile("[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold (production `Char`, fifth edition, 2.2): control characters, surrogates, U+FFFE, U+FFFF.

Also those that it discourages, and carriage returns, which end a line in a log.
"""


def render(verdict: Verdict) -> str:
    """Return the document: a suite per workload and one for the host, a case per check, names unique.

    An objective that failed with settings given up is a failed case where the exit code follows from it.
    """
    root = ET.Element("testsuites", name=f"gatekeeper {verdict.slo}")
    given_up = [row for row in decide(verdict).rows if row.abandoned and row.blocking]
    longest = 0.0
    for workload in verdict.workloads:
        suite = ET.SubElement(root, "testsuite", name=workload.name)
        about = f"{verdict.slo}.{workload.name}"
        case, graded_back = _case(suite, about, OUTCOME), workload.outcome is WorkloadOutcome.GRADED_BACK
        if workload.outcome is WorkloadOutcome.FAILED or (workload.required and graded_back):
            _bad(case, "failure", _outcome(workload), workload.because)
        elif workload.outcome is WorkloadOutcome.UNPROVEN:
            _bad(case, "error", _outcome(workload), workload.because)
        _check_cases(suite, about, workload.checks)
        _given_up_cases(suite, about, [row for row in given_up if row.about == workload.name])
        _set_time(suite, seconds := _seconds(workload))
        longest = max(longest, seconds)
    host = [row for row in given_up if row.about == "host"]
    if verdict.host_checks or verdict.incomplete or host:
        suite = ET.SubElement(root, "testsuite", name="host")
        _check_cases(suite, f"{verdict.slo}.host", verdict.host_checks)
        _given_up_cases(suite, f"{verdict.slo}.host", host)
        if verdict.incomplete:
            _bad(_case(suite, f"{verdict.slo}.run", "evidence"), "error", "incomplete", verdict.incomplete)
        _set_time(suite, longest)
    if longest:
        root.set("time", f"{longest:g}")
    for suite in (*root, root):
        for kind, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
            suite.set(kind, str(sum(1 for _ in suite.iter(tag))))
        suite.set("skipped", "0")
    for element in root.iter():
        element.text = _safe(element.text) if element.text is not None else None
        element.attrib.update({name: _safe(value) for name, value in element.attrib.items()})
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _safe(text: str) -> str:
    return without_commands(_FORBIDDEN.sub("", text))  # in this order: what is removed may stand inside of a command


def _outcome(workload: WorkloadVerdict) -> str:
    return f"{write_as_words(workload.outcome)}: {workload.because}"


def _seconds(workload: WorkloadVerdict) -> float:
    """Return the seconds of all soaks of a workload."""
    measured = (workload.measured, *(step.measured for step in workload.steps))
    return sum(soak.soak_seconds or 0.0 for soak in measured)


def _set_time(suite: ET.Element, seconds: float) -> None:
    """Set the time of a suite and its cases, if it is known."""
    if not seconds:
        return
    suite.set("time", f"{seconds:g}")
    for case in suite:
        case.set("time", f"{seconds:g}" if case.get("name") == OUTCOME else "0")


def _case(suite: ET.Element, classname: str, name: str) -> ET.Element:
    taken = {case.get("name") for case in suite}
    unique, number = name, 2
    while unique in taken:
        unique, number = f"{name} ({number})", number + 1
    return ET.SubElement(suite, "testcase", classname=classname, name=unique)


def _check_cases(suite: ET.Element, classname: str, checks: Sequence[Check]) -> None:
    for check in checks:
        case = _case(suite, classname, _name(check))
        _figures(case, check)
        if check.outcome is not Outcome.PASS:
            kind = "failure" if check.outcome is Outcome.FAIL else "error"
            _bad(case, kind, check.because, f"{check.metric}: {check.because}\nwhy this objective: {check.why}")


def _given_up_cases(suite: ET.Element, classname: str, rows: Sequence[ObjectiveRow]) -> None:
    """Add a failed case for each objective that no setting met, with the figures of the closest one."""
    for row in rows:
        case = _case(suite, classname, f"{_name(row.check)} while drafting")
        _figures(case, row.check, setting=describe_setting(row.setting, whole=True))
        lines = [f"{describe_setting(setting)}: {check.metric}: {check.because}" for setting, check in row.tried]
        lines += [f"passes at {row.passes_at}"] if row.passes_at else []
        lines += [f"why this objective: {row.check.why}", f"what to do: {row.remedy}"]
        _bad(case, "failure", row.check.because, "\n".join(lines))


def _name(check: Check) -> str:
    return f"{check.metric} {check.bound} {show(check.threshold, check.unit)}{phrases.against(check)}"


def _figures(case: ET.Element, check: Check, **more: str) -> None:
    """Add what was measured as properties; in base units, as verdict.json has it."""
    figures = {"threshold": check.threshold, "center": check.center, "lo": check.lo, "hi": check.hi, "n": check.n}
    # Written out, as a reader of XML properties may not know exponents: 0.00000012 and not 1.2e-07.
    values = {name: f"{Decimal(f'{value:.6g}'):f}" for name, value in figures.items() if value is not None}
    properties = ET.SubElement(case, "properties")
    for name, value in (values | {"unit": check.unit} | more).items():
        ET.SubElement(properties, "property", name=name, value=value)


def _bad(case: ET.Element, kind: str, message: str, content: str) -> None:
    ET.SubElement(case, kind, message=message, type=kind).text = content
