"""The package on a Mac, as far as Linux can show it: names that only Linux has."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gatekeeper

PACKAGE = Path(gatekeeper.__file__).parent
LINUX_ONLY: dict[str, str] = {
    "os": "posix_fadvise posix_fallocate fdatasync pipe2 pidfd_open memfd_create eventfd getrandom sched_setaffinity "
    "sched_getaffinity sched_setscheduler sched_getscheduler getresuid setresuid getresgid setresgid splice "
    "copy_file_range getxattr setxattr listxattr removexattr O_DIRECT O_NOATIME O_PATH O_TMPFILE unshare setns preadv2",
    "select": "epoll EPOLLIN EPOLLOUT EPOLLHUP",
    "signal": "SIGPWR SIGPOLL SIGCLD SIGRTMIN SIGRTMAX SIGSTKFLT sigtimedwait sigwaitinfo",
    "socket": "AF_NETLINK AF_PACKET AF_VSOCK AF_ALG SOCK_CLOEXEC SOCK_NONBLOCK MSG_CMSG_CLOEXEC MSG_ERRQUEUE "
    "TCP_QUICKACK TCP_USER_TIMEOUT TCP_CORK TCP_INFO TCP_DEFER_ACCEPT SO_BINDTODEVICE SO_MARK SO_PEERCRED SO_PRIORITY",
    "resource": "prlimit RUSAGE_THREAD RLIMIT_OFILE RLIMIT_NICE RLIMIT_MSGQUEUE RLIMIT_RTPRIO RLIMIT_SIGPENDING",
    "time": "CLOCK_BOOTTIME CLOCK_TAI pthread_getcpuclockid",
    "fcntl": "F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS F_GET_SEALS F_SETSIG F_NOTIFY",
}
"""Names of the standard library by module, as its documentation marks them: Linux, or Unix but not macOS."""
ANY = re.compile(rf"\b(?:{'|'.join(name for names in LINUX_ONLY.values() for name in names.split())})\b")
IMPORT_ALL = f"""
import importlib, pkgutil, sys
import gatekeeper

def imported():
    for module in pkgutil.walk_packages(gatekeeper.__path__, "gatekeeper."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

imported()  # first with all that other packages need of this system
for name in [name for name in sys.modules if name.partition(".")[0] == "gatekeeper"]:
    del sys.modules[name]
for module, names in {LINUX_ONLY!r}.items():
    for name in names.split():
        vars(importlib.import_module(module)).pop(name, None)
sys.platform = "darwin"
import gatekeeper
imported()
"""


def linux_names(path: Path) -> list[str]:
    """Return the names of LINUX_ONLY in a file that no `hasattr` in it tests."""
    source = path.read_text()
    if not ANY.search(source):
        return []
    used, tested = set(), set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                used.add((module, name))
            case ast.ImportFrom(module=str(module), names=names):
                used |= {(module, alias.name) for alias in names}
            case ast.Call(func=ast.Name(id="hasattr"), args=[ast.Name(id=module), ast.Constant(value=name)]):
                tested.add((module, name))
    return sorted(f"{module}.{name}" for module, name in used - tested if name in LINUX_ONLY.get(module, "").split())


def test_nothing_needs_a_name_that_a_mac_lacks() -> None:
    """What only Linux has is tested for with `hasattr` where it is used."""
    files = {str(path.relative_to(PACKAGE)): linux_names(path) for path in PACKAGE.rglob("*.py")}

    assert {} == {name: names for name, names in files.items() if names}


def test_the_scan_sees_such_a_name(tmp_path: Path) -> None:
    """A name is seen as an attribute and in an import, and not where it is tested for."""
    path = tmp_path / "module.py"
    path.write_text(
        "import os\nfrom select import epoll\nos.pipe2(0)\nif hasattr(os, 'splice'):\n    os.splice(0, 1, 2)\n"
    )

    assert ["os.pipe2", "select.epoll"] == linux_names(path)


@pytest.mark.nightly  # ten seconds: every module is imported twice
def test_every_module_is_imported_as_on_a_mac() -> None:
    """Without the names that only Linux has, and with the platform of a Mac, every module can be imported."""
    command = [sys.executable, "-c", IMPORT_ALL]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PACKAGE.parent, timeout=300, check=False)

    assert (0, "") == (done.returncode, done.stderr[-2000:])
