"""Real programs that tests use where they are installed."""

import os
import shutil

import pytest


def llama_server() -> str:
    """Return the real llama-server, or skip the test."""
    program = shutil.which(os.environ.get("LLAMA_SERVER") or "llama-server")
    if program is None:
        pytest.skip("no llama-server: set LLAMA_SERVER (tools/build_llama_server builds one), or put it on PATH")
    return program
