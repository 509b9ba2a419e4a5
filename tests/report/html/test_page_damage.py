"""Whatever is lost of a run, there is a page of what is left."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatekeeper.core.records import StoredRecords
from gatekeeper.report import FORMATS, Format, RenderedFrom
from gatekeeper.report.data.page_data import PageData
from tests.analysis.verdict.test_damage import CASES, case_of, losses
from tests.builders.page_data import page_of, whole_case


def rendered(report: Format, page: PageData) -> str:
    """Return a report in its format, of what it needs."""
    sources = {RenderedFrom.PAGE: page, RenderedFrom.DECISION: page.decision, RenderedFrom.VERDICT: page.verdict}
    return report.load()(sources[report.source])


@pytest.mark.whole
@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
@settings(max_examples=6, deadline=None)
def test_every_report_of_a_damaged_run_is_made(name: str, data: st.DataObject) -> None:
    """Files lost, cut or holed, events lost with them: every report renders, and none calls it promoted."""
    case = case_of(name)
    hurt = data.draw(losses(case))
    lost = hurt.sweep != case.sweep or hurt.soaks != case.soaks or bool(hurt.doubts)

    page_data = page_of(hurt, finished=data.draw(st.booleans()), policy=None)
    report_by_format = {
        form: rendered(report, page_data) for form, report in FORMATS.items() if report.source is not RenderedFrom.TABLE
    }

    assert all(report_by_format.values())
    assert not lost or ">Turn drafting on" not in report_by_format["html"]


def test_a_record_of_an_unknown_workload_is_left_out() -> None:
    """A flipped byte in a workload's name takes that answer off the page, and nothing else."""
    case = whole_case()
    first, *rest = case.soaks["soak-1"].records
    strange = replace(first, workload="eaty", canary="nobody", at="0001-01-01T00:00:00")

    page_data = page_of(replace(case, soaks={"soak-1": StoredRecords((strange, *rest))}))

    assert len(rest) == page_data.timelines[0].answers
