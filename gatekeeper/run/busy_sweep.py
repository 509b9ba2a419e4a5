"""A sweep on a machine too busy to prove anything: it says so in its first minutes, with what it has so far."""

from gatekeeper import host
from gatekeeper.analysis.metrics.comparability import after_slow_start, instability
from gatekeeper.analysis.plan.settings import PLAIN
from gatekeeper.analysis.plan.soak_schedule import soak_plans
from gatekeeper.core.records import EventKind, Generation
from gatekeeper.core.text import join_names
from gatekeeper.core.units import show_seconds
from gatekeeper.report.data.workload_progress import WorkloadProgress
from gatekeeper.run.active_run import ActiveRun
from gatekeeper.run.plan import soak_outlook

LOOKS_S = (60.0, 90.0)
"""When it is looked at: the start of a run and the answer under way then fit into two minutes."""
MOST = 0.75
"""Where others use this share of all cores, a run takes several times as long as on a quiet machine."""


class BusySweep:
    """Takes the answers of a sweep, and notes once that other programs keep the run from proving anything."""

    def __init__(self, run: ActiveRun) -> None:
        self._run, self._answers = run, list[Generation]()
        self._looks: tuple[float, ...] = LOOKS_S if run.knows_other_programs else ()
        self._begun, self._before = run.backend.clock.now_ns(), host.processor_use()

    def take(self, generation: Generation) -> None:
        """Take one answer; after some of them look at all."""
        self._answers.append(generation)
        elapsed = (self._run.backend.clock.now_ns() - self._begun) / 1e9
        if not self._looks or elapsed < self._looks[0]:
            return
        self._looks = tuple(look for look in self._looks if look > elapsed)
        others = host.used_between(self._before, host.processor_use())
        reason = self._find_reason() if others.busy else None
        if reason is not None:
            outcome = f"stays unproven: {reason}"
        elif not self._looks and others.cores >= MOST * others.of:
            outcome = "takes several times as long, and may prove nothing"
        else:
            return
        self._looks = ()
        because = f"{others.in_words('used')}; if that goes on, this run {outcome}; so far: {self._describe_ratios()}"
        advice = "close them, or press Ctrl-C: what is measured is kept, and a command continues it"
        self._run.observe(EventKind.WARNING, {"about": "this machine", "because": f"{because}; {advice}"})

    def _find_reason(self) -> str | None:
        """Return why the run cannot prove what it is for, if it goes on as it began; None where it can."""
        run, plan = self._run, self._run.prepared.plan
        workloads = [workload.name for workload in run.slo.workload]
        plain = {
            name: [each for each in self._answers if (each.workload, each.arm) == (name, "plain")] for name in workloads
        }
        unsteady = [name for name, answers in plain.items() if instability(after_slow_start(answers)) is not None]
        if unsteady:
            return f"plain decoding has no one speed to compare with in {join_names(unsteady)}"
        setting, most = plan.candidates[0].setting if plan.candidates else PLAIN, run.slo.soak.max_duration
        for soak in soak_plans(plan, dict.fromkeys(workloads, setting), 1):
            if soak_outlook(run.prepared, soak, self._answers).get("soak", 0.0) >= most > run.slo.soak.duration:
                return f"the soak would reach its max_duration of {show_seconds(most)} before it has enough answers"
        return None

    def _describe_ratios(self) -> str:
        """Write how many answers there are, and how fast drafting was so far."""
        progress: dict[str, WorkloadProgress] = {}
        for generation in self._answers:
            progress.setdefault(generation.workload, WorkloadProgress()).take(generation)
        rows = [workload.row(name) for name, workload in progress.items()]
        ratios = [f"{row.workload} {row.drafting / row.plain:.2f}x" for row in rows if row.drafting and row.plain]
        return join_names(ratios) or "plain decoding alone"
