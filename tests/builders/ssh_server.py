"""A real OpenSSH server on 127.0.0.1 with throw-away keys, and the client's configuration for it."""

import contextlib
import getpass
import os
import shlex
import shutil
import signal
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.builders.waiting import until


def program(name: str) -> str | None:
    """Return where sshd and its like are; /usr/sbin is on few people's PATH."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin")


def key(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True, timeout=30)
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(slots=True)
class Server:
    """One sshd whose sessions live in a home of their own; closed by whoever starts it."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    port: int = 0
    address: str = "127.0.0.1"
    within: tuple[str, ...] = ()
    """The command that enters its network namespace."""
    name: str = "mini"
    """What the client calls it."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def state(self) -> Path:
        return self.home / ".gatekeeper"

    @property
    def config(self) -> Path:
        return self.root / "ssh_config"

    @property
    def known_hosts(self) -> Path:
        return self.root / "known_hosts"

    @property
    def words(self) -> str:
        """What GATEKEEPER_SSH is set to."""
        return shlex.join(["ssh", "-F", str(self.config)])

    def start(self) -> None:
        """Make keys where there are none, start sshd and wait until it listens."""
        self.home.mkdir(parents=True, exist_ok=True)
        for name in ("host", "user"):
            if not (self.root / name).exists():
                key(self.root / name)
        shutil.copyfile(self.root / "user.pub", self.root / "authorized")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.port = self.port or free_port()
        self._configure()
        sshd = program("sshd")
        assert sshd is not None
        with (self.root / "sshd.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.within, sshd, "-D", "-e", "-f", str(self.root / "sshd_config")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(self._answers, (self.root / "sshd.log").read_text)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.root / "sshd.log").read_text()
        with contextlib.suppress(OSError), socket.create_connection((self.address, self.port), 1):
            return True
        return False

    def _configure(self) -> None:
        lock = str(self.root / "host.lock")  # the host of another test is another host
        environment = {"HOME": str(self.home), "PATH": os.environ["PATH"], "GATEKEEPER_HOST_LOCK": lock}
        environment |= self.environment
        written = " ".join(f'"{name}={value}"' for name, value in environment.items())
        lines = [
            *self.options,  # the first value counts
            f"Port {self.port}",
            f"ListenAddress {self.address}",
            f"HostKey {self.root / 'host'}",
            f"AuthorizedKeysFile {self.root / 'authorized'}",
            "StrictModes no",
            "UsePAM no",
            "PermitRootLogin yes",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PidFile none",
            "MaxStartups 100",
            "PrintMotd no",
            f"SetEnv {written}",
        ]
        (self.root / "sshd_config").write_text("\n".join(lines) + "\n")
        self.trust(self.root / "host.pub")
        self.config.write_text(
            f"Host {self.name}\n  HostName {self.address}\n  Port {self.port}\n  User {getpass.getuser()}\n"
            f"  IdentityFile {self.root / 'user'}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
            f"  UserKnownHostsFile {self.known_hosts}\n  GlobalKnownHostsFile /dev/null\n"
        )

    def prefer(self, *lines: str) -> None:
        """Put further lines before those of the client's configuration: the first value counts."""
        further = "".join(f"  {line}\n" for line in lines)
        self.config.write_text(self.config.read_text().replace(f"Host {self.name}\n", f"Host {self.name}\n{further}"))

    def trust(self, public: Path | None) -> None:
        """Have the client know this host key alone; none at all for None."""
        kind_and_key = " ".join(public.read_text().split()[:2]) if public else ""
        self.known_hosts.write_text(f"[{self.address}]:{self.port} {kind_and_key}\n" if public else "")

    def cut(self) -> int:
        """Cut every connection there is; both ends notice, and the server continues to listen. Return how many."""
        return self._signal_sessions(signal.SIGKILL)

    def freeze(self) -> int:
        """Let nothing pass over any connection, as after a pulled cable; neither end notices. Return how many."""
        return self._signal_sessions(signal.SIGSTOP)

    def _signal_sessions(self, number: signal.Signals) -> int:
        assert self.process is not None
        sessions = psutil.Process(self.process.pid).children(recursive=True)
        count = 0
        for session in sessions:
            with contextlib.suppress(psutil.NoSuchProcess):
                if session.name().startswith("sshd"):
                    session.send_signal(number)
                    count += 1
        return count

    def stop(self) -> None:
        """Stop the server and all its sessions; jobs continue, and `start` starts it again."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGSTOP)  # no new session while the old ones are ended
            self.cut()
            self.process.kill()
            self.process.wait(10)

    def close(self) -> None:
        self.stop()
        for process in self.left():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def left(self) -> list[psutil.Process]:
        """Return the processes that still live in this home: those of jobs among them."""
        processes = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("HOME") == str(self.home) and process.pid != os.getpid():
                    processes.append(process)
        return processes
