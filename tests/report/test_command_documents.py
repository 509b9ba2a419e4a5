"""What commands show: tables of the host's values, tries of the deploy gate, two systems side by side."""

import re
from dataclasses import replace
from typing import Any

import pytest

from gatekeeper.core.judgement import Estimate, Missing
from gatekeeper.core.records import HostSample, Reading, setting
from gatekeeper.host.sources import UNITS
from gatekeeper.report import host_table
from gatekeeper.report.commands.admit_document import admit_document
from gatekeeper.report.data.workload_summary import summary_of
from gatekeeper.report.document_text import render_text
from gatekeeper.versus.versus_document import versus_document
from gatekeeper.versus.versus_result import ComparedSide, MetricComparison, VersusResult
from tests.builders.page_data import PAGE


@pytest.mark.parametrize(
    ("reading", "text"),
    [
        (Reading(None, "B", "vm_stat", "stale"), "-"),
        (Reading(0.0, "B", "vm_stat", "ok"), "0 B"),
        (Reading(1.38e9, "Hz", "powermetrics", "ok"), "1380 MHz"),
        (Reading("ac", "", "pmset -g batt", "ok"), "ac"),
    ],
)
def test_a_missing_value_is_a_dash_and_a_zero_a_zero(reading: Reading, text: str) -> None:
    """The row of a value has its use, which every value of a sample has, or what went wrong with its source."""
    lines = host_table.table(HostSample("2026-11-20T09:12:00Z", 0, {"swap_used": reading}), {"vm_stat": "not found"})

    _, value, _, source, _, use = re.split(r"\s{2,}", lines.splitlines()[1])
    assert (text, reading.source) == (value, source)
    assert use == ("not found" if reading.status != "ok" else host_table.USES["swap_used"])
    assert list(UNITS) == list(host_table.USES)


@pytest.mark.parametrize(("nats", "words"), [(0.0, "as likely as"), (0.0198, "2 % less"), (-0.0198, "2 % more")])
def test_a_likelihood_is_a_share(nats: float, words: str) -> None:
    """A change of the log-likelihood is shown as how much less likely a token is, which needs no unit."""
    workload = PAGE.verdict.workloads[0]
    figures = {**workload.measured.figures, "nll_delta": Estimate(nats, nats, nats, 9)}
    read = replace(workload, measured=replace(workload.measured, figures=figures))

    assert f"tokens {words}" in (summary_of(read).quality or "")


@pytest.mark.parametrize(
    ("failed", "words"), [(0, "no finished run of this is known"), (2, "at least 2 of 3 finished")]
)
def test_a_count_of_none_is_no_lower_bound(failed: int, words: str) -> None:
    """'At least 0' says nothing; a count that may be too small says so, with the reason."""
    tries = {"finished": 3, "not_passed": failed, "at_least": True, "because": "the record was lost"}
    answer: dict[str, Any] = {
        "exit_code": 0, "reason": "admitted", "because": "it passed", "run": "r", "slo": "s", "next": "deploy it",
        "checks": (), "passed_over": (), "tries": tries,
    }  # fmt: skip
    text = render_text(admit_document(answer))

    assert f"tries  {words}" in text
    assert "(the record was lost)" in text


def test_acceptance_of_one_side_is_not_called_unmeasured() -> None:
    """Where one system drafts and the other does not, its acceptance was measured, and there is nothing to compare."""
    accepted = {"acceptance_rate": Estimate(0.789, 0.7, 0.8, 9)}
    plain_side = ComparedSide("A", "A", {}, None, setting(draft=None), {}, None)
    drafting_side = replace(plain_side, label="B", name="B", measured=accepted)
    missing = MetricComparison("acceptance_rate", Missing("no answer has a value for it"), "not measured")

    result = VersusResult("s", "w", 0.95, plain_side, drafting_side, (), (missing,), None, (), 20.0, 1, None)
    lines = [" ".join(line.split()) for line in render_text(versus_document(result)).splitlines()]

    assert "B: B: 78.9 % of drafted tokens accepted" in lines
    assert "acceptance_rate - only B shows that it drafts, so there is nothing to compare" in lines
