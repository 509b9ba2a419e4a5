"""The probe of one version: as few requests as its symptom needs, looked at after growing numbers of canaries."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gatekeeper import host
from gatekeeper.analysis.metrics.words.warm_cache_words import warm_cache_agreement
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.analysis.stats import sequential
from gatekeeper.analysis.stats.run_to_run import Values
from gatekeeper.core.errors import InputError
from gatekeeper.core.interfaces import Observer
from gatekeeper.core.records import Generation, Role
from gatekeeper.core.system.inputs import Inputs
from gatekeeper.core.verdict import Estimate, Missing
from gatekeeper.regression.bisect_result import Step
from gatekeeper.regression.symptom import (
    BOTH_ARMS,
    MEMORY,
    Symptom,
    measure,
    peak_memory,
    share_of_canaries,
    values_of_metric,
)
from gatekeeper.regression.version_under_test import VersionUnderTest
from gatekeeper.run.stages import send_warm_cache
from gatekeeper.run.stages.tasks import KeptRecords, PassTask, SoakTask

WARM = "warm-cache"
"""Name of the requests with the prompt cache on: their order follows from it, and is the same for each version."""


def probe_version(
    inputs: Inputs, folder: Path, symptom: Symptom, observers: Sequence[Observer], name: str, *, rounds: range
) -> Step:
    """Measure the symptom of one version: all *rounds* where versions are compared, else until it is decided."""
    begun = time.monotonic()
    with VersionUnderTest(inputs, folder, observers, name) as version, host.keep_awake():
        version.observe("stage", {"stage": name, "settings": {version.workload: dict(version.setting)}})
        probe = _VersionProbe(version, symptom)
        value = probe.compared(rounds) if symptom.is_compared else probe.run()
        versions = version.versions()
    remark = ""
    if isinstance(value, Estimate):
        if symptom.judge(value) == "unclear":
            remark = f"the limit of {symptom.threshold:.4g} lies inside its interval"
        elif version.always_cached:
            remark = "its cache cannot be switched off: plain decoding had it on, too"
        value = value.rounded()
    seconds = round(time.monotonic() - begun, 1)
    return Step(name, value, versions, remark, seconds, values=probe.values, rounds=rounds.stop)


class _VersionProbe:
    """Looks at the records after growing numbers of canaries."""

    def __init__(self, version: VersionUnderTest, symptom: Symptom) -> None:
        self._version, self._symptom, self._canaries = version, symptom, version.canaries
        self._warm: dict[str, bool] = {}
        self.values: Values = ()
        """Of its answers, where versions are compared."""

    def compared(self, rounds: range) -> Estimate | Missing:
        """Answer each canary in each round and keep the values; return what they show."""
        if (fault := self._first_fault()) is not None:
            return Missing(f"its first request failed: {fault}")
        canaries = len(self._canaries)
        self._send(rounds.start * canaries, rounds.stop * canaries)
        answers = self._version.paired(self._version.measured("candidate"), self._version.measured("plain"))
        values = values_of_metric(self._symptom.metric, answers)
        if isinstance(values, Missing):
            return values
        self.values = values
        return measure(self._symptom.metric, answers, (canaries,), canaries, answers.level)

    def run(self) -> Estimate | Missing:
        if (fault := self._first_fault()) is not None:
            return Missing(f"its first request failed: {fault}")
        is_warm = self._symptom.metric == "warm_cache_agreement"
        send: Callable[[int, int], None] = self._send_warm if is_warm else self._send
        value: Estimate | Missing = Missing("no canary was answered")
        looks: tuple[int, ...] = ()
        for end in sequential.looks(len(self._canaries)):
            send(looks[-1] if looks else 0, end)
            looks = (*looks, end)
            value = self._value(looks)
            if self._symptom.judge(value) in {"good", "bad"}:
                break
        return value

    def _first_fault(self) -> str | None:
        """Send each arm a request that is not measured: it compiles, reads the model, and shows what cannot work."""
        if self._symptom.metric == "warm_cache_agreement":
            try:
                self._version.client("candidate")
            except InputError:  # an older server has no option for it, and is deployed with its cache on
                self._version.always_cached = True
        for arm in self._arms(1):
            fault = self._version.send(arm, self._canaries[0], "warmup", Role.WARMUP).answer.fault
            if fault is not None:
                return fault
        return None

    def _value(self, looks: tuple[int, ...]) -> Estimate | Missing:
        most = len(self._canaries)
        if self._symptom.metric == MEMORY:
            return peak_memory(self._version.peak)
        if self._symptom.metric == "warm_cache_agreement":
            return share_of_canaries(self._warm, most)
        answers = self._version.paired(self._version.measured("candidate"), self._version.measured("plain"))
        return measure(self._symptom.metric, answers, looks, most, answers.level)

    def _arms(self, number: int) -> Iterator[str]:
        """Yield the arms that the metric needs; every second time plain decoding first."""
        arms = ("candidate", "plain") if self._symptom.metric in BOTH_ARMS else ("candidate",)
        yield from arms if number % 2 == 0 else reversed(arms)

    def _send(self, begin: int, end: int) -> None:
        for number in range(begin, end):
            canary = self._canaries[number % len(self._canaries)]
            for arm in self._arms(number):
                generation = self._version.send(arm, canary, str(number))
                progress = {"answered": number + 1, "of": max(end, len(self._canaries))}
                self._version.observe("answer", {"generation": generation, **progress})

    def _send_warm(self, begin: int, end: int) -> None:
        """Request canaries with the prompt cache on, as deployed; a process of its own for each look."""
        version = self._version
        version.close_clients()  # its memory is for those with the cache on
        group = self._canaries[begin:end]
        if len(group) < 2 and begin:  # a conversation needs a second canary
            group = self._canaries[end - 2 : end]
        soak = SoakPlan(WARM, {version.workload: version.setting}, version.setting)
        answers: KeptRecords[Generation] = KeptRecords(version.record, [])
        task = PassTask(
            soak=SoakTask(version.slo, soak, {version.workload: group}, begin, 0), needs={}, recorded=(),
            backend=version.backend, open_client=version.new_client, record=answers, observe=version.observe,
        )  # fmt: skip
        send_warm_cache.send(task)
        agreement = warm_cache_agreement(answers.records, [canary.id for canary in group])
        if not isinstance(agreement, Missing):
            self._warm |= agreement[0]
