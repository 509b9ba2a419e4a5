"""The table of metrics an objective may name, of workloads and of the host; a row is a Metric."""

from collections.abc import Collection
from dataclasses import replace

from gatekeeper.core.errors import did_you_mean, nearest_word
from gatekeeper.core.metrics.host_metrics import HOST_METRICS
from gatekeeper.core.metrics.metric import Metric, PassRate, Per, Sight
from gatekeeper.core.metrics.workload_metrics import WORKLOAD_METRICS

ALL: tuple[Metric, ...] = (*WORKLOAD_METRICS, *HOST_METRICS)
BY_NAME: dict[str, Metric] = {metric.name: metric for metric in ALL}

PASS_RATE = Metric(
    name="canary_pass_rate",
    unit="1",
    higher_is_better=True,
    per=Per.ANSWER,
    needs=Sight.TEXT,
    description="share of the answers that are what their canary expects",
    formula="answers that their canary expects / graded answers",
    remedy="",
    minimum=0.0,
    maximum=1.0,
    watched=True,
)
"""Only watched after the promotion: an SLO compares with plain decoding, which production may not have."""
WATCHED: dict[str, Metric] = {metric.name: metric for metric in (*ALL, PASS_RATE) if metric.watched}
"""The metrics a guard may name."""


def shown_as(metric: Metric, against: str | None) -> Metric:
    """Return how a value of *metric* is shown: against another run it is the ratio of the two, 0.98x, or a difference.

    Differences are those of relative changes and of pass rates.
    """
    if against is None or metric.relative or metric.pass_rate:
        return metric
    return replace(BY_NAME[DECODE_RATIO], higher_is_better=metric.higher_is_better)


PASS_RATES: dict[str, PassRate] = {metric.name: metric.pass_rate for metric in ALL if metric.pass_rate}
"""The pass rate that each difference of pass rates compares."""

DECODE_RATIO = "throughput_ratio"
"""The speed of decoding against plain decoding's."""
ANSWER_RATIO = "answer_throughput_ratio"
"""The speed of whole answers, which counts where these come in one piece."""
SYSTEM_RATIO = "system_throughput_ratio"
"""The speed of all streams together, where several run at once."""
SPEED_RATIOS = (DECODE_RATIO, ANSWER_RATIO, SYSTEM_RATIO)
"""The speeds of a soak against plain decoding; the one that counts comes first."""
PLAIN_SPEED = "plain_decode_throughput"
"""The decode throughput of the plain arm, beside the one of the speculating arm."""
RUN_TO_RUN = tuple(metric.name for metric in ALL if metric.run_to_run)
"""Metrics that two runs can be compared in."""
MEASURED = (
    DECODE_RATIO, ANSWER_RATIO, "acceptance_rate", "ttft_delta", "decode_throughput", "ttft",
    "itl_p50", "itl_p95", "itl_p99", PLAIN_SPEED,
)  # fmt: skip
"""Metrics that every workload's verdict shows, objective or not, where there are enough answers to bound them."""
ENERGY_RATIO = "energy_ratio"
"""It needs the power at rest, which a soak measures only for it."""

_OTHER_NAMES = {alias: metric.name for metric in ALL for alias in metric.aliases}


def suggest_metric(name: str, names: Collection[str]) -> str:
    """Return a hint for an unknown metric."""
    metric = _OTHER_NAMES.get(name.casefold().replace("-", "_").replace(" ", "_"))
    if metric in names and metric is not None:
        return f"did you mean '{metric}'? gatekeeper explain {metric} says what it is"
    if len(names) == len(BY_NAME) and nearest_word(name, names) is None:
        return "gatekeeper explain metrics lists them all"
    return did_you_mean(name, names)
