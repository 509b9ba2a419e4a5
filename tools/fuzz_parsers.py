"""Fuzz one parser of foreign text for as long as you like, guided by coverage: Linux, with `pip install atheris`.

    python tools/fuzz_parsers.py NAME [options of libFuzzer, such as -max_total_time=600]

NAME is a parser of `tests/faults/test_parsers.py`, whose quick test runs in CI. What breaks the parser is written to
`crash-…` in the working directory: shorten it, and put it next to the examples in `tests/faults/corpus/NAME`.
"""

import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # run as a script, Python looks in tools/ alone


def main(arguments: list[str]) -> None:
    """Run libFuzzer on the parser that the first argument names."""
    try:
        atheris: Any = importlib.import_module("atheris")
    except ImportError:
        sys.exit("fuzz_parsers: pip install atheris (Linux, Python 3.11 to 3.13)")
    with atheris.instrument_imports(include=["gatekeeper"]):
        parsers: Any = importlib.import_module("tests.faults.test_parsers")
    if not arguments or arguments[0] not in parsers.PARSERS:
        sys.exit(f"fuzz_parsers: name one of: {', '.join(sorted(parsers.PARSERS))}")
    name, *options = arguments
    with tempfile.TemporaryDirectory() as found, tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pressure").mkdir()
        for number, example in enumerate(parsers.examples(name)):
            (Path(found) / f"example-{number}").write_bytes(example)
        atheris.Setup([sys.argv[0], *options, found], lambda raw: parsers.check(name, raw, Path(folder)))
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
