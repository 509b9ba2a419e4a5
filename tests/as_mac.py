"""Runs tests on Linux as if on a Mac: a library answers Apple's calls, and stand-ins for its tools are on PATH.

`python -m tests.as_mac mini|virtual [arguments of pytest]`: a Mac mini as it is sold, or the virtual Mac of a hosted
runner. What a test says of this machine must hold on those as well.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.builders import mac_tools

STATES: dict[str, dict[str, str | None]] = {
    "mini": {},
    "virtual": {"hw__model": "VirtualMac2,1", "kern__hv_vmm_present": "1"},
}
"""What sysctl prints otherwise."""
REFUSED = "echo 'sudo: a password is required' >&2; exit 1"
NOT_SOLD = ("macmon",)
"""Tools of a healthy Mac that macOS does not ship."""


def main(state: str, arguments: list[str]) -> int:
    """Run pytest with *arguments* as if on the Mac in *state*; return its exit code."""
    with tempfile.TemporaryDirectory(prefix="gatekeeper-as-mac-") as name:
        folder = Path(name)
        if mac_tools.COMPILER is None:
            sys.exit("tests.as_mac: no C compiler here: install gcc")
        library = mac_tools.build_library(folder)
        tools = {tool: script for tool, script in mac_tools.healthy().items() if tool not in NOT_SOLD}
        keys = STATES[state] | {"hw__ncpu": str(os.cpu_count())}
        tools |= {"sysctl": mac_tools.sysctl_script(**keys), "sudo": REFUSED}
        mac_tools.write_tools(folder / "bin", tools)
        path = os.pathsep.join((str(folder / "bin"), os.environ["PATH"]))
        environment = os.environ | {"PATH": path, "LD_PRELOAD": str(library)}
        return subprocess.run([sys.executable, "-m", "pytest", *arguments], env=environment, check=False).returncode


if __name__ == "__main__":
    if sys.argv[1:2] not in [[state] for state in STATES]:
        sys.exit(f"tests.as_mac: name a state: {', '.join(STATES)}")
    sys.exit(main(sys.argv[1], sys.argv[2:]))
