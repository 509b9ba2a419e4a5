"""The annotations of a run as GitHub's workflow commands on lines of the SLO file."""

from gatekeeper.core.slo import Slo
from gatekeeper.core.text import printable_error
from gatekeeper.report.annotations import annotations
from gatekeeper.report.data.decision import Decision


def render(decision: Decision, slo: Slo, text: str, file: str) -> str:
    """Return one command per line, the worst first; an objective that did not pass has the line it has in *file*.

    *text* is the content of *file*.
    """
    remarks = annotations(decision, slo, text)
    commands = [command(remark.level, remark.message, file, remark.line, remark.title) for remark in remarks]
    return "".join(f"{line}\n" for line in commands)


def command(kind: str, message: str, file: str, line: int, title: str) -> str:
    """Write one workflow command: `%` and line ends are escaped everywhere, `:` and `,` as well before the message."""
    properties = (("file", file), ("line", str(line)), ("title", title))
    pairs = (f"{key}={_escaped(value, (':', '%3A'), (',', '%2C'))}" for key, value in properties)
    return f"::{kind} {','.join(pairs)}::{_escaped(message)}"


def _escaped(text: str, *more: tuple[str, str]) -> str:
    text = printable_error("\n".join(text.splitlines()))  # whatever else ends a line
    for char, code in (("%", "%25"), ("\n", "%0A"), *more):
        text = text.replace(char, code)
    return text
