"""Energy on the page: the joules a token of both arms, and what the draft saves."""

from collections.abc import Iterator

from gatekeeper.analysis.verdict.run_verdict import Verdict, WorkloadVerdict
from gatekeeper.core.metrics import ENERGY_RATIO
from gatekeeper.core.units import show
from gatekeeper.core.verdict import Check
from gatekeeper.report.data.objective_rows import measured
from gatekeeper.report.html import charts
from gatekeeper.report.html.markup import Markup, el, join, section

ABOUT = (
    "Joules a token above the power at rest, of the same work in both arms: by readings of the sensor that lie wholly "
    "inside an answer. Rest was sampled before and after the soak; the interval holds for either."
)


def energies(verdict: Verdict) -> Markup | None:
    """Return the section; None where no objective compares the energy of the arms, or none was measured."""
    blocks = [
        _workload(workload, check)
        for workload in verdict.workloads
        for check in workload.checks
        if check.metric == ENERGY_RATIO and workload.measured.energy is not None
    ]
    return section("Energy", *blocks, about=ABOUT) if blocks else None


def _workload(workload: WorkloadVerdict, check: Check) -> Markup:
    energy = workload.measured.energy
    arms = {} if energy is None else {"plain": energy.plain, "draft": energy.drafting}
    basis = "" if energy is None else f"; {energy.basis}"
    said = f"{measured(check)} times the joules a token of plain decoding{basis}"
    return join(el("h3", workload.name), charts.bars(dict(_written(arms)), f"joules a token: {said}"), el("p", said))


def _written(arms: dict[str, float]) -> Iterator[tuple[str, float]]:
    """Name each bar with its value."""
    for arm, joules in arms.items():
        yield f"{arm} {show(joules, 'J')}", joules
