"""The routing pass: a few requests at the end of a run, so that the routes can be compared with one setting for all."""

from collections.abc import Callable, Collection, Mapping, Sequence

from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.analysis.sweep.routing import RoutingRequest
from gatekeeper.core.canary import Canary
from gatekeeper.core.records import Generation, Role, Setting
from gatekeeper.core.slo import Slo
from gatekeeper.run.requests import Client, Observe, Request, build_request


def send_routing_requests(
    slo: Slo,
    canaries: Mapping[str, Sequence[Canary]],
    requests: Sequence[RoutingRequest],
    client: Client,
    *,
    shares_process: bool,
    done: Collection[str],
    record: Callable[[Generation], None],
    observe: Observe,
) -> None:
    """Send what *done* lacks, setting by setting, plain decoding first; the first request of each only warms it."""
    by_id = {(name, one.id): one for name, many in canaries.items() for one in many}
    missing = [one for one in requests if one.key not in done]
    drafting = next((one.trial.setting for one in requests if one.trial.arm == "candidate"), None)
    answered = 0
    for trial in dict.fromkeys(one.trial for one in missing):
        resident: Setting = trial.setting
        if trial.arm == "plain":
            resident = drafting if shares_process and drafting is not None else plain_of(trial.setting)
        client.open(resident)
        mine = [one for one in missing if one.trial == trial]
        client.send(_request(slo, mine[0], by_id, Role.WARMUP))
        for one in mine:
            made = client.send(_request(slo, one, by_id, Role.MEASURED))
            record(made)
            answered += 1
            observe("answer", {"generation": made, "answered": answered, "of": len(missing)})


def _request(slo: Slo, one: RoutingRequest, by_id: Mapping[tuple[str, str], Canary], role: Role) -> Request:
    canary, trial = by_id[one.workload, one.canary], one.trial
    prefix = one.key.removesuffix(f":{one.workload}/{one.canary}")
    return build_request(slo, trial.name, prefix, one.workload, canary, trial.arm, trial.setting, role)
