"""Early warnings of a watch: answers that fail, and guards without evidence, before they change a route."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gatekeeper.analysis.metrics.server_claims import counted_or_claimed
from gatekeeper.analysis.metrics.timing import acceptance_rate
from gatekeeper.analysis.plan.settings import speculates
from gatekeeper.backends.dialects import running_dialect
from gatekeeper.core.records import Generation
from gatekeeper.core.text import quote
from gatekeeper.core.units import show_seconds
from gatekeeper.live import routes
from gatekeeper.live.guards.guard_judgement import GuardResult
from gatekeeper.live.routes import RouteRules, RouteState


@dataclass(frozen=True, slots=True)
class EarlyWarning:
    """A condition that will change a route if it persists."""

    kind: str
    """fault: answers fail. answering: they succeed again. lacking: a guard has no evidence."""
    text: str
    detail: dict[str, Any]


class EarlyWarnings:
    """Raises each warning once, until its condition ends."""

    def __init__(self, backend: str) -> None:
        """Give hints about the servers of *backend*."""
        self._backend = backend
        self._failing: set[str] = set()
        self._reports: dict[str, bool] = {}
        """Whether any drafted answer of each workload reported its acceptance."""
        self._raised: set[tuple[str, str]] = set()

    def check_answer(self, generation: Generation) -> EarlyWarning | None:
        """Return a warning at the first failed answer of a workload, and at the next successful one."""
        name, fault = generation.workload, generation.answer.fault
        if fault is not None:
            first, reason = name not in self._failing, quote(fault)
            self._failing.add(name)
            return EarlyWarning("fault", f"{name}: no answer: {reason}", {"because": reason}) if first else None
        if speculates(generation.setting):
            shares = (acceptance_rate(counted.answer) for counted in counted_or_claimed((generation,))[0])
            self._reports[name] = self._reports.get(name, False) or any(share is not None for share in shares)
        if name not in self._failing:
            return None
        self._failing.remove(name)
        return EarlyWarning("answering", f"{name}: answers again", {})

    def without_evidence(
        self, state: RouteState, results: Sequence[GuardResult], rules: RouteRules, now_ns: int
    ) -> Iterator[EarlyWarning]:
        """Yield a warning for each guard of a speculating route without evidence, with the time until it is off."""
        if state.standing.step >= rules.plain:
            return
        name = state.standing.workload
        silences = list(routes.without_evidence(state, results, rules, now_ns))
        if not silences:
            limit = rules.watch.missing_for
            text = f"no guard applies, so speculation is turned off after {show_seconds(limit)}"
            yield from self._once(name, "", text, limit)
        for silent, limit, result in silences:
            metric, seconds_left = result.guard.metric, max(0.0, limit - silent)
            if metric == "acceptance_rate" and result.check.center is None and self._reports.get(name) is False:
                hint = running_dialect(self._backend).no_acceptance_hint
                text = f"the server does not report {metric}, so its guard turns speculation off in "
                yield from self._once(name, metric, f"{text}{show_seconds(seconds_left)}: {hint}", seconds_left)
            elif silent > limit / 2:
                text = f"no evidence for {metric} in {show_seconds(silent)} ({result.check.because})"
                text += f": without any, speculation is turned off in {show_seconds(seconds_left)}"
                yield from self._once(name, metric, text, seconds_left)
            else:
                self._raised.discard((name, metric))

    def _once(self, name: str, metric: str, text: str, seconds_left: float) -> Iterator[EarlyWarning]:
        if (name, metric) not in self._raised:
            self._raised.add((name, metric))
            detail = {"metric": metric or None, "off_in": round(seconds_left, 3), "because": text}
            yield EarlyWarning("lacking", f"{name}: {text}", detail)
