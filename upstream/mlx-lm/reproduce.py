"""Ask mlx_lm.server one prompt four times at temperature 0: python reproduce.py TARGET DRAFT PROMPT."""

import json
import socket
import subprocess
import sys
import time
from urllib.request import urlopen

target, draft, prompt = sys.argv[1:]
body = {"messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": 256}
with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
command = [sys.executable, "-m", "mlx_lm", "server", "--model", target, "--draft-model", draft, "--port", str(port)]


def answer() -> str:
    """Return the server's greedy answer to the prompt."""
    with urlopen(f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode()) as reply:
        return str(json.load(reply)["choices"][0]["message"]["content"])


with subprocess.Popen(command) as server:
    while server.poll() is None and socket.socket().connect_ex(("127.0.0.1", port)):
        time.sleep(0.1)
    try:
        first, *repeats = [answer() for _ in range(4)]
    finally:
        server.terminate()
print(sum(repeat != first for repeat in repeats), "of", len(repeats), "repeats differ from the first answer")
