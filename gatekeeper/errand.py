"""An errand: what is asked beside a soak when its clock has stopped, untimed and one request after the other."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gatekeeper.desk import Desk, Request
from gatekeeper.terms.canary import Canary
from gatekeeper.terms.records import Generation, Role, Setting
from gatekeeper.terms.slo import Slo
from gatekeeper.verdict.plan import plain_of, sampling_for

Observe = Callable[[str, dict[str, object]], None]


@dataclass(frozen=True, slots=True)
class Errand:
    """What one pass beside a soak is given."""

    slo: Slo
    name: str
    """The soak it belongs to."""
    settings: Mapping[str, Setting]
    """Of the workloads that are asked again."""
    resident: Setting
    canaries: Mapping[str, Sequence[Canary]]
    seed: int
    before: tuple[Generation, ...] = ()
    """What an earlier, interrupted segment recorded."""


def request(
    errand: Errand,
    workload: str,
    arm: str,
    canary: Canary,
    role: Role,
    *,
    without: frozenset[str],
    sampling: Mapping[str, Any],
    repeat: int = 0,
    pair: str = "",
) -> Request:
    """Return the request of *canary* in *arm*, *without* some knobs and with *sampling* in the place of the SLO's."""
    candidate = errand.settings[workload]
    knobs = candidate if arm == "candidate" else plain_of(candidate)
    setting = tuple((knob, value) for knob, value in knobs if knob not in without)
    return Request(
        trial=errand.name,
        key=f"{arm}-{repeat}:{workload}/{canary.id}",
        workload=workload,
        canary=canary,
        arm=arm,
        setting=setting,
        sampling=replace(sampling_for(errand.slo, canary, setting, 1), **sampling),
        role=role,
        repeat=repeat,
        pair=pair,
    )


def ask_missing(
    errand: Errand,
    open_desk: Callable[[], Desk],
    resident: Setting,
    requests: Iterable[Request],
    *,
    record: Callable[[Generation], None],
    observe: Observe,
) -> None:
    """Ask what no earlier segment recorded, at a desk of its own; none is opened for nothing."""
    done = {one.key for one in errand.before}
    missing = [one for one in requests if one.key not in done]
    if not missing:
        return

    asked = 0

    def note(one: Generation) -> None:
        nonlocal asked
        record(one)
        asked += 1
        observe("answer", {"generation": one, "soak": errand.name, "answered": asked, "of": len(missing)})

    with open_desk() as desk:
        desk.open(resident)
        desk.ask_all(iter(missing), 1, note)
