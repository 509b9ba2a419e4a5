"""Processes of the remote host: both ways of listing them see the same, and a family is whole."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gatekeeper.run.remote.agent import processes


def test_files_and_ps_see_the_same_process() -> None:
    """
    Without /proc, ps gives the parent and the session of a process just as well.
    """
    if not (Path("/proc/self/stat").exists() and os.access("/bin/ps", os.X_OK)):
        pytest.skip("this machine lacks one of the two")

    by_files, by_ps = processes._by_proc()[os.getpid()], processes._by_ps()[os.getpid()]

    assert (os.getppid(), os.getsid(0)) == by_files[:2] == by_ps[:2]
    assert by_ps[2]


def test_a_family_reaches_into_other_sessions() -> None:
    """
    A server in a session of its own belongs to what started it, and so does what that server starts.
    """
    sh = shutil.which("sh")
    assert sh is not None
    grandchild = f"import subprocess; subprocess.run([{sh!r}, '-c', 'echo up; read gone'])"
    with subprocess.Popen(
        [sys.executable, "-c", grandchild], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as server:
        assert server.stdout is not None
        server.stdout.readline()
        family = processes.tree(os.getpid())
        of_server = processes.tree(server.pid)
        server.communicate(b"\n")

    assert set(of_server) < set(family)
    assert 2 == len(of_server)
    assert [] == processes.alive(of_server)
