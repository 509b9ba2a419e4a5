"""The page: one file, escaped, offline, and the verdict first."""

import hashlib
import json
import re
from base64 import b64encode
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import pytest

from gatekeeper.analysis.verdict.run_verdict import AbandonedStep, WorkloadOutcome
from gatekeeper.core.judgement import Finding, Outcome
from gatekeeper.core.records import Generation, StoredRecords
from gatekeeper.report import run_document
from gatekeeper.report.data.decision import decide
from gatekeeper.report.data.page_data import PageData
from gatekeeper.report.data.progress import Progress
from gatekeeper.report.data.requirements import requirements
from gatekeeper.report.data.workload_progress import WorkloadRow
from gatekeeper.report.html import page
from gatekeeper.report.phrases import merge_findings
from tests.builders.case import WINNING, bare
from tests.builders.page_data import (
    DRAFTED,
    MIXED,
    OBJECTIVES,
    PAGE,
    case_with_soaks,
    like_golden,
    page_of,
    whole_case,
)
from tests.builders.pages import live_page
from tests.builders.slo import generation, steady

HOSTILE = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'>\u2028&\"'`${1}]]>-->"


class Document(HTMLParser):
    """The elements of a page, its texts, and what its scripts hold."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside.append(tag)

    def handle_data(self, data: str) -> None:
        if self._inside and self._inside[-1] in {"script", "style"}:
            self.scripts.append(data)
            return
        self.texts.append(data)

    def handle_endtag(self, tag: str) -> None:
        if self._inside and tag in self._inside:
            while self._inside.pop() != tag:
                pass

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]


def test_it_loads_nothing() -> None:
    """No element, style or script refers to another file; the policy names the digests of those that are there."""
    text = page.render(page_of(whole_case()))
    document = Document(text)
    contents = re.findall(r"<(?:style|script)>(.*?)</(?:style|script)>", text, re.DOTALL)

    links = {str(value) for _, tag in document.elements for key, value in tag.items() if key in {"src", "href"}}
    digests = [b64encode(hashlib.sha256(content.encode()).digest()).decode() for content in contents]
    (policy,) = [str(tag["content"]) for tag in document.tags("meta") if tag.get("http-equiv")]
    outside = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+", text)) - {"http://www.w3.org"}
    assert ([], set(), []) == (
        [link for link in links if not link.startswith("#")],
        outside,
        re.findall(r"@import|url\(", text),
    )
    assert policy.startswith("default-src 'none'; ")
    assert (2, [], False) == (len(digests), [each for each in digests if each not in policy], "unsafe" in policy)


def hostile() -> PageData:
    """Return a run in which every foreign text tries to break out of the page."""
    case = whole_case()

    def with_hostile_text(recorded: StoredRecords[Generation]) -> StoredRecords[Generation]:
        answers = [
            replace(
                record,
                canary=record.canary,
                answer=replace(record.answer, text=HOSTILE, fault=HOSTILE if number == 3 else None),
            )
            for number, record in enumerate(recorded.records)
        ]
        return StoredRecords(tuple(answers), recorded.trouble)

    case = replace(case, sweep={name: with_hostile_text(sweep) for name, sweep in case.sweep.items()})
    case = replace(case, soaks={name: with_hostile_text(soak) for name, soak in case.soaks.items()})
    page_data = page_of(case, policy=HOSTILE)
    workloads = tuple(replace(workload, because=HOSTILE) for workload in page_data.verdict.workloads)
    finding = Finding("made", HOSTILE, HOSTILE, HOSTILE)
    manifest = page_data.manifest.model_copy(update={"backend": HOSTILE, "host": {"chip": HOSTILE}})
    return replace(
        page_data, verdict=replace(page_data.verdict, workloads=workloads, findings=(finding,)), manifest=manifest
    )


def test_hostile_text_stays_text() -> None:
    """Answers, faults, reasons, the policy and the manifest may contain `</script>`: it is shown and creates no
    element.
    """
    page_data = hostile()
    text = page.render(page_data)
    document = Document(text)

    assert [] == document.tags("img")
    assert 2 == len(document.tags("script"))
    assert "</script><script>window" not in text
    assert HOSTILE.split("\u2028", maxsplit=1)[0] in document.text
    assert any(HOSTILE in str(text) for text in json.loads(document.scripts[1])["texts"])


def test_half_a_surrogate_pair_is_written() -> None:
    """A model's text may be invalid Unicode; the page is valid UTF-8 all the same."""
    page_data = page_of(whole_case())
    broken = replace(page_data, policy="half of \ud83d")

    assert "half of \N{REPLACEMENT CHARACTER}" in page.render(broken).encode().decode()


@cache
def many() -> str:
    """Return the page of a run with 10,000 requests: 8,000 in the sweep and 2,000 in the soak."""
    case = whole_case()
    first, soak = next(iter(case.sweep)), next(iter(case.soaks))

    def requests(count: int, arm: str, trial: str) -> list[Generation]:
        return [
            replace(
                generation(steady(0.02, 6, sent_s=number, text=f"{number} " * 30), f"easy-{number % 8:03}", arm=arm),
                trial=trial,
                key=str(number),
                at=f"2026-01-01T00:{number // 60 % 60:02}:{number % 60:02}.000000Z",
            )
            for number in range(count)
        ]

    sweep = {**case.sweep, first: StoredRecords((*case.sweep[first].records, *requests(8000, "plain", first)))}
    soaks = {**case.soaks, soak: StoredRecords((*case.soaks[soak].records, *requests(2000, "candidate", soak)))}
    return page.render(page_of(replace(case, sweep=sweep, soaks=soaks)))


@pytest.mark.nightly  # drawing them takes as long as a hundred other tests
def test_ten_thousand_requests_stay_a_small_page() -> None:
    """A page of 10,000 requests is under 5 MB, and states how many answers it does not draw."""
    assert len(many().encode()) < 5_000_000
    assert "of them drawn" in many()


def test_an_interrupted_run_says_so() -> None:
    """Without the end of its events a run is interrupted: the page begins with that, where, and how to continue."""
    text = Document(page.render(page_of(whole_case(), finished=False, policy=None, incomplete="cut off"))).text

    assert text.index("No decision yet") < text.index("--resume") < text.index("Workloads")
    assert [] == [words for words in ("during soak-1", "No policy was written") if words not in text]


def test_however_little_was_recorded_there_is_a_page() -> None:
    """Without a soak, without a sweep or without a draft, it decides nothing that was not measured."""
    written = {"backend": "scripted", "target": "t", "drafts": [], "script": "truth.json"}
    plain = bare({"hard": WINNING}, optional=("hard",), objectives=OBJECTIVES[1:2], confidence=0.9, subject=written)
    cases = [plain, *(case_with_soaks(MIXED, soaks=soaks) for soaks in (0, 1))]
    cases += [replace(case, sweep={name: StoredRecords((), "missing") for name in case.sweep}) for case in cases]

    for case in cases:
        assert "No decision yet" in Document(page.render(page_of(case, finished=False, policy=None))).text


@pytest.mark.parametrize(
    ("required", "incomplete", "shown"),
    [
        (True, None, ["speculation required: drafting is off", "evidence complete: suffices"]),
        (False, None, ["evidence complete: suffices"]),
        (False, "chip is 'AMD EPYC', the SLO is for 'Apple M4'", ["evidence complete: does not suffice"]),
    ],
)
def test_what_decides_the_exit_code_is_a_row_of_the_matrix(
    incomplete: str | None, shown: list[str], *, required: bool
) -> None:
    """All checks pass, and the run ends in 1 or 3 by drafting that is off or by another host: the count shows it."""
    first, second = PAGE.verdict.workloads
    passing = tuple(replace(check, outcome=Outcome.PASS) for check in first.checks)
    first = replace(first, checks=passing)
    graded = replace(second, outcome=WorkloadOutcome.GRADED_BACK, required=required, checks=passing, steps=())
    verdict = replace(
        PAGE.verdict, workloads=(first, graded), host_checks=(), findings=(), incomplete=incomplete, transitions=()
    )
    page_data = replace(PAGE, verdict=verdict, decision=decide(verdict), gaps=())

    rows = requirements(verdict)
    text, summary = Document(page.render(page_data)).text, run_document.render_summary(page_data)

    assert shown == [f"{row.name} {row.rule}: {row.shown}" for row in rows if row.about != first.name]
    passed = 2 * len(passing) + sum(row.outcome is Outcome.PASS for row in rows)
    assert f"{passed} of {2 * len(passing) + len(rows)} checks passed" in text
    open_rows = [row for row in rows if row.outcome is not Outcome.PASS]
    assert (verdict.exit_code != 0) == bool(open_rows)
    assert all(f"`{row.name}` {row.rule} | - | {row.shown}" in summary for row in open_rows)


def test_a_finding_of_every_soak_is_told_once() -> None:
    """One note names the soaks it was found in; a demo, which is short, does not foresee when memory runs out."""
    findings = [Finding("virtual_machine", f"soak-{number}, host", "other guests share it") for number in (1, 2)]
    findings += [Finding("numerics", f"code, soak-{number}", "other words") for number in (1, 3)]
    findings += [Finding("memory_exhaustion", "soak-1, subject_footprint", "used up in 3 d", "find the leak")]
    verdict = replace(PAGE.verdict, findings=tuple(findings))

    certification = [finding.about for finding in merge_findings(verdict)]
    demo = [finding.about for finding in merge_findings(replace(verdict, grade="demo"))]

    assert ["host, soak-1 and soak-2", "code, soak-1 and soak-3", "subject_footprint, soak-1"] == certification
    assert ["host, soak-1 and soak-2", "code, soak-1 and soak-3"] == demo


def test_the_given_up_setting_of_a_card_is_the_one_of_the_table() -> None:
    """Of two settings that were given up the faster one is the best try, and the table of objectives shows its
    values.
    """
    passed = replace(PAGE.verdict.workloads[0].checks[0], center=1.4, lo=1.2, hi=1.5)
    slow = replace(passed, center=1.3)
    steps = [
        AbandonedStep(f"soak-{number}", {**DRAFTED, "num_draft_tokens": number}, WorkloadOutcome.FAILED, "no", (check,))
        for number, check in ((6, passed), (2, slow))
    ]
    workload = replace(PAGE.verdict.workloads[1], choice=None, steps=tuple(steps))
    verdict = replace(PAGE.verdict, workloads=(PAGE.verdict.workloads[0], workload))

    text = Document(page.render(replace(PAGE, verdict=verdict, decision=decide(verdict)))).text

    assert ("6: 1.40x [1.20, 1.50]" in text, "length 2" in text) == (True, False)
    assert "1.40x heavy, draft" in text


def test_a_run_under_way_shows_what_it_has_so_far() -> None:
    """A card has the speed so far with its interval and its answers; sections that have nothing yet are left out."""
    document = Document(live_page())
    titles = [tag["id"] for tag in document.tags("h2")]

    assert ["workloads", "settings", "latency", "files"] == titles
    assert 3 == document.text.count("measuring")
    so_far = re.search(r"so far (\d\.\d\d)x \[(\d\.\d\d), (\d\.\d\d)\], (\d+) of 24 answers of \w+", document.text)
    assert so_far is not None
    center, low, high, answers = map(float, so_far.groups())
    assert low <= center <= high
    assert 12 < answers < 24
    assert [] == [word for word in ("unproven", "deployed", "Outcome", "Valid until") if word in document.text]


@pytest.mark.parametrize(
    ("stage", "ratio", "words"),
    [
        ("soak-1", (1.5, 1.4, 1.6), "so far 1.50x [1.40, 1.60], 9 answers of hard"),
        ("soak-1", None, "in the sweep: 1.30x [1.20, 1.40]"),
        ("sweep", (1.5, 1.4, 1.6), "so far 1.30x [1.20, 1.40], 9 of 24 answers of hard"),
        ("replay", None, "in the sweep: 1.30x [1.20, 1.40]"),
    ],
)
def test_a_speed_so_far_is_of_the_answers_beside_it(
    stage: str, ratio: tuple[float, float, float] | None, words: str
) -> None:
    """In the soak a card shows the soak's answers and their ratio, not the sweep's with the soak's answers."""
    rows = tuple(WorkloadRow(name, "heavy", 20.0, 30.0, 0.8, 9, ratio) for name in ("easy", "hard"))
    now = replace(Progress().snapshot(), stage=stage, rows=rows)
    planned = {"easy": 24, "hard": 24} if stage == "sweep" else {}

    text = Document(page.render(replace(PAGE, progress=now, planned=planned))).text

    assert words in text[text.index("hard", text.index("Workloads")) :]


def test_the_page_is_as_it_was() -> None:
    """The whole body is compared with a stored one; style and script are files of their own and left out."""
    text = re.sub(r"<(style|script)>.*?</\1>", r"<\1></\1>", page.render(PAGE), flags=re.DOTALL)
    text = re.sub(r"sha256-[A-Za-z0-9+/=]+", "sha256-", text)

    like_golden("page.html", text.replace("><", ">\n<"))
