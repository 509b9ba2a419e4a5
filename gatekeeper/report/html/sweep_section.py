"""The sweep on the page: its answers for the chart that the page's script draws, and its settings as a table."""

from gatekeeper.analysis.verdict.run_verdict import WorkloadOutcome, WorkloadVerdict
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.records import Knobs
from gatekeeper.core.text import describe_setting
from gatekeeper.report.data.glossary import in_words
from gatekeeper.report.data.page_data import PageData
from gatekeeper.report.data.sweep_chart import METRICS
from gatekeeper.report.html.markup import Markup, el, join
from gatekeeper.report.outcome_signs import write_as_words
from gatekeeper.report.run_document import tabulate_sweep
from gatekeeper.report.shown_document import Chart, Fold, Section


def sweep_document(page: PageData) -> dict[str, object]:
    """Return the data from which the page's script draws the sweep; texts and names are stored once, with an index."""
    sweep = page.sweep
    names: dict[str, int] = {}
    texts: dict[str, int] = {}
    workloads = [workload.name for workload in page.verdict.workloads]
    trials = [setting.name for setting in sweep.settings]
    rows = [
        [
            workloads.index(answer.workload),
            trials.index(answer.trial),
            names.setdefault(answer.canary, len(names)),
            answer.repeat,
            answer.tokens,
            texts.setdefault(answer.excerpt, len(texts)),
            texts.setdefault(answer.fault, len(texts)) if answer.fault is not None else None,
            *answer.figures,
        ]
        for answer in sweep.rows
    ]
    return {
        "workloads": workloads,
        "settings": [
            {"name": trial.name, "arm": trial.arm, "moved": trial.moved, "label": _label(trial.name, trial.knobs)}
            for trial in sweep.settings
        ],
        "metrics": [
            {
                "name": metric.name,
                "unit": "x" if metric.speed_ratio else metric.unit,
                "description": metric.description,
                "ratio": metric.against_plain,
            }
            for metric in (BY_NAME[name] for name in METRICS)
        ],
        "chosen": [_find_chosen_trial(page, workload.setting) for workload in page.verdict.workloads],
        "deployed": [workload.outcome is WorkloadOutcome.PROMOTED for workload in page.verdict.workloads],
        "ended": [_describe_result(page, workload) for workload in page.verdict.workloads],
        "estimates": [
            [workloads.index(workload), trials.index(trial), METRICS.index(metric), *interval]
            for (workload, trial, metric), interval in sweep.estimates.items()
            if metric in METRICS and trial in trials
        ],
        "canaries": list(names),
        "texts": list(texts),
        "rows": rows,
    }


def _label(name: str, knobs: Knobs) -> str:
    if knobs.get("draft") is None:
        rest = [f"{knob} {value}" for knob, value in knobs.items() if knob != "draft"]
        return ", ".join((f"plain decoding{' repeated: the noise' if name == 'null' else ''}", *rest))
    return describe_setting(knobs)


def _describe_result(page: PageData, workload: WorkloadVerdict) -> str:
    if page.progress is not None:
        return ""
    word = write_as_words(workload.outcome)
    return f" Result of {workload.name}: {word}, {describe_setting(workload.setting)}: {in_words(workload.because)}."


def _find_chosen_trial(page: PageData, setting: Knobs) -> int | None:
    """Return the trial of the sweep with the setting a workload ends in; None where no trial has exactly that one.

    A run under way has chosen nothing yet.
    """
    if page.progress is not None:
        return None
    for number, trial in enumerate(page.sweep.settings):
        if trial.arm == "candidate" and setting.get("draft") and setting.items() <= trial.knobs.items():
            return number
    return None


def sweep_section(page: PageData) -> Section | None:
    """Return the chart with its pickers, and the table of settings; None without a sweep."""
    if not page.sweep.rows:
        return None
    left_out = page.sweep.left_out
    about = (
        "Each dot is an answer: hover for details. The bar is the estimate with its confidence interval. The sweep "
        "chooses a setting; only the soak proves it."
        + (f" {left_out} more answers are not drawn, but count in the intervals." if left_out else "")
    )
    tables = [
        Section(workload.name, (tabulate_sweep(workload.choice),))
        for workload in page.verdict.workloads
        if workload.choice is not None and workload.choice.results
    ]
    return Section("Sweep", (Chart(_draw_pickers), Fold("As a table", tables)), about, "settings")


def _draw_pickers() -> Markup:
    pickers = [
        el("label", name, el("select", id=f"pick-{name.lower()}", autocomplete="off"))
        for name in ("Workload", "Knob", "Metric")
    ]
    return join(
        el("div", *pickers, class_="pickers"),
        el("div", id="sweep", aria_live="polite"),
        el("noscript", el("p", "This chart needs JavaScript; the table below has the same estimates.", class_="dim")),
    )
