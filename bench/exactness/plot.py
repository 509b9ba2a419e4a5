"""The figure of bench.exactness: sound drafts promoted by flips, and defects found by their rate.

    python -m bench.exactness.plot exactness.json -o docs/exactness.svg

The file is what `python -m bench.exactness --save` wrote.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import vl_convert

from bench.exactness.__main__ import TITLES
from bench.exactness.judged import Shown

COLORS = dict(zip(Shown, ("#3b7dba", "#4a9a5d", "#8a63b0", "#b9bcc2"), strict=True))


def rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row a point: of sound drafts the share promoted, of defects the share found."""
    points = []
    for cell in document["cells"]:
        sound = not cell["kind"]
        if cell["flips"] not in (document["flips"] if sound else (document["middle"],)):
            continue
        x = document["flips"][cell["flips"]][0] if sound else cell["rate"]
        share = cell["promoted" if sound else "failed"] / cell["runs"]
        points.append({"panel": cell["kind"], "x": x, "share": share, "shown": cell["shown"]})
    return points


def panel(title: str, x_title: str, points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the Vega-Lite spec of one panel."""
    return {
        "title": title,
        "width": 200,
        "height": 120,
        "data": {"values": points},
        "mark": {"type": "line", "point": True},
        "encoding": {
            "x": {"field": "x", "type": "quantitative", "title": x_title, "axis": {"format": ".1%"}},
            "y": {
                "field": "share",
                "type": "quantitative",
                "title": "share of runs",
                "axis": {"format": "%"},
                "scale": {"domain": [0, 1]},
            },
            "color": {
                "field": "shown",
                "type": "nominal",
                "title": None,
                "scale": {"domain": list(COLORS), "range": list(COLORS.values())},
            },
        },
    }


def spec(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Vega-Lite spec: sound drafts, then the defects of the engine that have a rate."""
    points = rows(document)
    panels = [
        panel("sound drafts promoted", "tokens that numerics change", [row for row in points if not row["panel"]])
    ]
    for kind in ("unverified", "shifted", "stale", "dropped", "repetition"):
        found = [row for row in points if row["panel"] == kind]
        panels.append(panel(f"found: {TITLES[kind]}", "share of rounds, or of answers", found))
    pairs = [{"hconcat": panels[begun : begun + 2]} for begun in range(0, len(panels), 2)]
    return {"vconcat": pairs, "config": {"title": {"fontSize": 11, "anchor": "start"}, "background": "white"}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("saved", type=Path, help="what bench.exactness --save wrote")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/exactness.svg"))
    chosen = parser.parse_args()
    document = json.loads(chosen.saved.read_text("utf-8"))
    chosen.output.write_text(vl_convert.vegalite_to_svg(spec(document)), encoding="utf-8")


if __name__ == "__main__":
    main()
