"""The plot of bench.truth: what the gate and two naive rules end in, by how far the truth lies from the bound.

    python -m bench.truth_plot speed.json memory.json -o docs/truth.svg

Each bar is all runs of one distance, whatever the nuisance; the files are what `bench.truth --save` wrote.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import vl_convert

RULES = {"gate": "gatekeeper", "means": "two means", "best_of_two": "best of two"}
OUTCOMES = {"promoted": "#3b7dba", "unproven": "#c9ccd1", "blocked": "#e08a3c"}
PROMISES = {False: "speed: throughput_ratio", True: "memory: footprint_growth"}


def rows(documents: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the share of each outcome, by promise, rule and distance, over every scenario of that distance."""
    counts: dict[tuple[bool, str, float], dict[str, int]] = defaultdict(lambda: dict.fromkeys(OUTCOMES, 0))
    for document in documents:
        for scenario in document["scenarios"]:
            for rule in RULES:
                counted = counts[scenario["leaks"], rule, round(scenario["effect"], 2)]
                for outcome in OUTCOMES:
                    counted[outcome] += scenario[rule][outcome]
    return [
        {
            "promise": PROMISES[leaks],
            "rule": RULES[rule],
            "truth": f"{effect:+.0%}",
            "effect": effect,
            "outcome": outcome,
            "order": order,
            "share": counted[outcome] / sum(counted.values()),
        }
        for (leaks, rule, effect), counted in counts.items()
        for order, outcome in enumerate(OUTCOMES)
    ]


def panel(promise: str, rule: str, seen: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the Vega-Lite spec of one rule's bars."""
    mine = [one for one in seen if (one["promise"], one["rule"]) == (promise, rule)]
    distances = sorted({one["effect"]: one["truth"] for one in mine}.items())
    return {
        "title": f"{rule}, {promise}",
        "width": {"step": 22},
        "height": 110,
        "data": {"values": mine},
        "mark": "bar",
        "encoding": {
            "x": {
                "field": "truth",
                "type": "ordinal",
                "sort": [truth for _, truth in distances],
                "title": "truth against the bound",
            },
            "y": {"field": "share", "type": "quantitative", "title": "share of runs", "axis": {"format": "%"}},
            "color": {
                "field": "outcome",
                "type": "nominal",
                "scale": {"domain": list(OUTCOMES), "range": list(OUTCOMES.values())},
                "title": None,
            },
            "order": {"field": "order"},
        },
    }


def spec(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the Vega-Lite spec: a row per promise, a panel per rule."""
    seen = rows(documents)
    found = [promise for promise in PROMISES.values() if any(one["promise"] == promise for one in seen)]
    panels = [{"hconcat": [panel(promise, rule, seen) for rule in RULES.values()]} for promise in found]
    return {"vconcat": panels, "config": {"title": {"fontSize": 11, "anchor": "start"}, "background": "white"}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("saved", nargs="+", type=Path, help="files written by bench.truth --save")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/truth.svg"))
    given = parser.parse_args()
    documents = [json.loads(path.read_text("utf-8")) for path in given.saved]
    given.output.parent.mkdir(exist_ok=True)
    given.output.write_text(vl_convert.vegalite_to_svg(spec(documents)), encoding="utf-8")


if __name__ == "__main__":
    main()
