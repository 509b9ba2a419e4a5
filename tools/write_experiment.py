"""Draw the timeline of a run, docs/experiment.svg, from the stages named here.

python tools/write_experiment.py          # writes it; with --check, says whether it is up to date
"""

import argparse
import sys
from pathlib import Path
from xml.sax.saxutils import escape

WHERE = Path(__file__).parents[1] / "docs/experiment.svg"
WIDTH, HEIGHT, TOP, BAND = 960, 290, 66, 74
PLAIN, DRAFT, EDGE, TEXT, PALE = "#7a828e", "#3b7dba", "#c9ccd1", "#24292f", "#f3f5f7"
STAGES = (
    ("freeze", 20, 104, "hashes of models,", "canaries, SLO, host"),
    ("sweep", 132, 326, "every setting, and plain decoding,", "on the same canaries"),
    ("choose", 334, 396, "the fastest", "setting"),
    ("soak", 418, 756, "the chosen setting under load, 600 s or more,", "with paired baseline requests"),
    ("passes", 764, 850, "near-ties, cache,", "first tokens"),
    ("judge", 858, 940, "verdict.json,", "policy.toml"),
)
"""Each with its left and right edge, and two lines about it."""
LOOKS = ((170, "8"), (200, "12"), (245, "18"), (296, "all canaries"))
SOAK_LOOKS = ((520, "look 1: 600 s"), (590, "look 2"), (660, "look 3 …"), (724, "max_duration"))
ERRORS = (
    (132, 326, "chooses: error split over settings and looks"),
    (418, 756, "proves: error split over the steps of the ladder, spent over the looks"),
)


def text(x: float, y: float, words: str, *, size: int = 11, fill: str = TEXT, bold: bool = False) -> str:
    """Return one line of text, centred at *x*."""
    weight = ' font-weight="600"' if bold else ""
    where = f'x="{x:g}" y="{y:g}" text-anchor="middle" font-size="{size}" fill="{fill}"{weight}'
    return f"<text {where}>{escape(words)}</text>"


def dots(begin: float, end: float, y: float, *, pairs: bool) -> list[str]:
    """Return requests on a line: of a pair one in each arm, in random order; else both arms apart."""
    out, number, x = [], 0, begin + 8
    while x < end - 10:
        first, second = (DRAFT, PLAIN) if (number * 7919) % 5 < 3 else (PLAIN, DRAFT)
        out.append(f'<circle cx="{x:g}" cy="{y:g}" r="3.2" fill="{first}"/>')
        out.append(f'<circle cx="{x + 7:g}" cy="{y:g}" r="3.2" fill="{second}"/>')
        number, x = number + 1, x + (19 if pairs else 16)
    return out


def drawing() -> str:
    """Return the SVG."""
    label = "The stages of a run, from freezing the artifacts to the verdict"
    view = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui, sans-serif"'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {view} role="img" aria-label="{label}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        text(WIDTH / 2, 24, "one run of certify, from left to right", size=13, bold=True),
    ]
    for name, begin, end, *lines in STAGES:
        out.append(
            f'<rect x="{begin}" y="{TOP}" width="{end - begin}" height="{BAND}" rx="4" fill="{PALE}" stroke="{EDGE}"/>'
        )
        middle = (begin + end) / 2
        out.append(text(middle, TOP - 10, name, size=12, bold=True))
        out += [text(middle, TOP + BAND + 16 + 14 * at, line, size=10) for at, line in enumerate(lines)]
    out += dots(132, 326, TOP + 24, pairs=False) + dots(418, 756, TOP + 24, pairs=True)
    for marks in (LOOKS, SOAK_LOOKS):
        for x, words in marks:
            out.append(f'<path d="M{x} {TOP + 38}V{TOP + 50}" stroke="{TEXT}" stroke-width="1.4"/>')
            out.append(text(x, TOP + 63, words, size=9))
    for begin, end, words in ERRORS:
        y = TOP + BAND + 62
        out.append(f'<path d="M{begin} {y - 6}v6H{end}v-6" fill="none" stroke="{PLAIN}"/>')
        out.append(text((begin + end) / 2, y + 15, words, size=10))
    y = HEIGHT - 46
    bottom = TOP + BAND + 36
    back = f"M900 {bottom}V{y + 2}H404V{TOP + BAND + 8}m-4 7l4 -7l4 7"
    out.append(f'<path d="{back}" fill="none" stroke="#c8553d"/>')
    broken = "an objective failed: a shorter draft, a lighter draft, plain decoding, each soaked and judged anew"
    out.append(text(652, y + 18, broken, size=10, fill="#c8553d"))
    for x, colour, words in ((68, DRAFT, "speculative"), (144, PLAIN, "plain")):
        out.append(f'<circle cx="{x - 6 - 3 * len(words)}" cy="{HEIGHT - 18}" r="4" fill="{colour}"/>')
        out.append(text(x, HEIGHT - 14, words, size=10))
    return "\n".join([*out, "</svg>", ""])


def main() -> None:
    """Write the figure, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if not given.check:
        WHERE.write_text(drawing(), encoding="utf-8")
    elif not WHERE.exists() or WHERE.read_text(encoding="utf-8") != drawing():
        sys.exit(f"{WHERE.name} is not what tools/write_experiment.py draws: run it")


if __name__ == "__main__":
    main()
