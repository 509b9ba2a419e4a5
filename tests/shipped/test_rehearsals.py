"""Shipped SLO files on simulated machines of their kind: promoted, graded back, unproven, each for the reason meant.

The Mac mini M4 with 24 GB has a file of its own, `test_m4_24gb.py`. Nothing here ran on a Mac.
"""

import re
from concurrent.futures import ProcessPoolExecutor

import pytest

from bench.rehearsals import GAIN, MACHINE_OF, PAGE, SLOS, Rehearsal, page, rehearsals

SLOWER = "no draft setting is faster than plain decoding"


@pytest.mark.whole
@pytest.mark.parametrize(
    ("name", "truth", "code", "back"),
    [
        pytest.param("m4-16gb", None, 0, {}, marks=pytest.mark.nightly),
        ("m4-16gb", 0.9, 1, dict.fromkeys(("json", "tools", "chat"), SLOWER)),
        pytest.param("m2-ultra-64gb-4b", None, 0, {"chat": SLOWER, "random": SLOWER}, marks=pytest.mark.nightly),
        pytest.param(
            *("m2-ultra-64gb-4b", 0.9, 0, dict.fromkeys(("code", "json", "chat", "random"), SLOWER)),
            marks=pytest.mark.nightly,
        ),
        pytest.param("llama-server", GAIN, 0, {"random": SLOWER}, marks=pytest.mark.nightly),
    ],
    ids=lambda value: str(value) if isinstance(value, str | float) else "",
)
def test_a_shipped_slo_ends_for_the_reason_meant(
    name: str, truth: float | None, code: int, back: dict[str, str]
) -> None:
    """What drafts faster on that machine is promoted, and the rest decodes plainly because of its speed."""
    verdict = Rehearsal(name, truth).run().verdict

    steps = {transition.workload: transition.because for transition in verdict.transitions}  # the last of each
    assert code == verdict.exit_code
    assert set(back) == {workload.name for workload in verdict.workloads if workload.outcome == "graded_back"}
    assert set(back) == {workload.name for workload in verdict.workloads if workload.outcome != "promoted"}
    assert [] == [name for name, because in back.items() if because not in steps[name]]


def test_every_file_for_a_mac_or_a_server_is_rehearsed() -> None:
    """Only the files of the little pair, which run on any machine, have no rehearsal."""
    shipped = {path.stem for path in SLOS.glob("*.toml")}

    assert {"quickstart", "quickstart-warm-cache", "smoke"} == shipped - set(MACHINE_OF)


@pytest.mark.parametrize("name", sorted(MACHINE_OF))
def test_the_minutes_of_a_file_are_those_of_the_page(name: str) -> None:
    """A file's header says what its rehearsal took; where one took longer than the plan's most, it says that too."""
    header = re.search(
        r"^# Duration: at most ([0-9.]+) (h|min)[^;,]*(?:[^;]*); (\d+) min in the rehearsal(?:, and up to (\d+))?",
        (SLOS / f"{name}.toml").read_text("utf-8"),
        re.MULTILINE,
    )
    rows = re.findall(rf"^\| {name} \| .*$", PAGE.read_text("utf-8"), re.MULTILINE)
    minutes = [int(took) for row in rows for took in re.findall(r"(\d+) min \|", row)]  # first: at its own rates
    if header is None:
        assert name == "m2-ultra-64gb-4b", "it says what a step takes instead"
        return

    most = float(header[1]) * (60 if header[2] == "h" else 1)
    longest = max(minutes)
    assert minutes[0] == int(header[3])
    assert longest <= most or str(longest) == header[4]


@pytest.mark.nightly
def test_every_shipped_slo_is_promoted_graded_back_and_unproven_where_it_should_be() -> None:
    """Of each file one rehearsal promotes, one ends plainly, and one is unproven."""
    with ProcessPoolExecutor(2) as pool:
        rows = list(pool.map(Rehearsal.row, rehearsals()))

    assert PAGE.read_text("utf-8") == f"{page(rows)}\n"
    for name in MACHINE_OF:
        slo_rows = [row for row in rows if row[0] == name]
        assert any(code == "0" and promoted for _, _, code, promoted, *_ in slo_rows), name
        assert any(
            not promoted and not unproven and "slower" in because
            for _, _, _, promoted, _, unproven, because, _ in slo_rows
        ), name
        assert any(code == "3" and unproven for _, _, code, _, _, unproven, _, _ in slo_rows), name
