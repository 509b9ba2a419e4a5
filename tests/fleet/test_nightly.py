"""A night of a fleet: one line, and the fleet's exit code."""

import subprocess
from pathlib import Path

from tests.builders.github import put_on_path

NIGHTLY = Path(__file__).parents[2] / "soak" / "nightly.sh"
GATEKEEPER = """{ printf '<%s>' "$@"; echo; } >> calls.txt
case "$1 $2" in
"fleet certify")
  while [ "$1" != --runs ]; do shift; done
  printf 'a table\\n\\n2 runs: 1 promoted, 1 failed (exit code 1)\\nnext: gatekeeper\\n'
  exit 1
  ;;
esac
"""


def night(folder: Path, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    argv = ["bash", str(NIGHTLY), *words]
    return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False)


def test_a_night_reports_and_keeps_the_exit_code(tmp_path: Path) -> None:
    """SLOs and hosts file reach gatekeeper, its last line is the night's, its exit code that of the script."""
    path = put_on_path(tmp_path / "bin", "/usr/bin:/bin", gatekeeper=GATEKEEPER)

    done = night(tmp_path, {"PATH": path}, "--fleet", "--hosts", "my hosts.toml", "a b.toml", "c.toml")

    runs = f"{tmp_path}/runs/fleet"
    call = f"<fleet><certify><a b.toml><c.toml><--hosts><my hosts.toml><--runs><{runs}>\n"
    assert call == (tmp_path / "calls.txt").read_text()
    line = f"fleet: 2 runs: 1 promoted, 1 failed (exit code 1); on the hosts of my hosts.toml; {runs}\n"
    assert (1, line) == (done.returncode, done.stdout)
    assert line == (tmp_path / "runs/last.txt").read_text()
