"""The notices: what people are told before it turns speculation off: answers that fail, evidence that does not come."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gatekeeper.terms.quote import quote
from gatekeeper.terms.records import Generation
from gatekeeper.terms.units import show_seconds
from gatekeeper.verdict import vigil
from gatekeeper.verdict.claims import counted_or_claimed
from gatekeeper.verdict.guard import Judgement
from gatekeeper.verdict.ladder import speculates
from gatekeeper.verdict.timing import acceptance
from gatekeeper.verdict.vigil import Rules, State

MUTE = {
    "mlx-server": "serve with `python -m gatekeeper.backends.mlx_tap` in the place of `python -m mlx_lm server`, or "
    "take that guard out of the policy",
}
"""By backend: what makes a server tell its acceptance that does not."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that did not change a route, but will if it goes on."""

    kind: str
    """fault: answers fail. answering: they no longer do. lacking: a guard finds no evidence."""
    text: str
    detail: dict[str, Any]

    @property
    def good(self) -> bool:
        """Tell whether it is good news."""
        return self.kind == "answering"


class Notices:
    """Says each thing once, until it is over."""

    def __init__(self, backend: str) -> None:
        """Give advice about the servers of *backend*."""
        self._backend = backend
        self._failing: set[str] = set()
        self._tells: dict[str, bool] = {}
        """By workload: whether any drafted answer told what was accepted."""
        self._told: set[tuple[str, str]] = set()

    def heard(self, one: Generation) -> Notice | None:
        """Take an answer in; say where the first of several fails, and where they come again."""
        name, fault = one.workload, one.answer.fault
        if fault is not None:
            new, why = name not in self._failing, quote(fault)
            self._failing.add(name)
            return Notice("fault", f"{name}: no answer: {why}", {"because": why}) if new else None
        if speculates(one.setting):
            told = (acceptance(known.answer) for known in counted_or_claimed((one,))[0])
            self._tells[name] = self._tells.get(name, False) or any(share is not None for share in told)
        if name not in self._failing:
            return None
        self._failing.remove(name)
        return Notice("answering", f"{name}: it answers again", {})

    def lacking(self, state: State, judged: Sequence[Judgement], rules: Rules, now_ns: int) -> Iterator[Notice]:
        """Say which guards of a route that speculates find no evidence, and when that turns it off."""
        if state.standing.rung >= rules.plain:
            return
        name = state.standing.workload
        silences = list(vigil.silences(state, judged, rules, now_ns))
        if not silences:
            limit = rules.watch.missing_for
            yield from self._once(name, "", f"no guard watches it, so it is off after {show_seconds(limit)}", limit)
        for silent, limit, one in silences:
            metric, left = one.guard.metric, max(0.0, limit - silent)
            mute = metric == "acceptance_rate" and one.check.center is None and self._tells.get(name) is False
            if mute:
                said = f"this server tells nobody what it accepts, so the guard on {metric} turns speculation off in "
                said += f"{show_seconds(left)}: {MUTE.get(self._backend, 'take that guard out of the policy')}"
                yield from self._once(name, metric, said, left)
            elif silent > limit / 2:
                said = f"no evidence of {metric} for {show_seconds(silent)} ({one.check.because})"
                yield from self._once(name, metric, f"{said}: speculation is off in {show_seconds(left)} without", left)
            else:
                self._told.discard((name, metric))

    def _once(self, name: str, metric: str, said: str, left: float) -> Iterator[Notice]:
        if (name, metric) not in self._told:
            self._told.add((name, metric))
            detail = {"metric": metric or None, "off_in": round(left, 3), "because": said}
            yield Notice("lacking", f"{name}: {said}", detail)
