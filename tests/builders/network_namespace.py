"""A network namespace with an address of its own, reached over a virtual cable; where the kernel lets us."""

import os
import shutil
import subprocess
from dataclasses import dataclass, field


def _ip(*words: str) -> bool:
    ran = subprocess.run(["ip", *words], capture_output=True, timeout=20, check=False)
    return ran.returncode == 0


@dataclass(slots=True)
class NetworkNamespace:
    """One end of the cable is here, the other in the namespace; both go when the process that holds it ends."""

    number: int
    _holder: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def _subnet(self) -> str:
        # 198.18.0.0/15 is set aside for measurements (RFC 2544): no real network has it.
        place = (os.getpid() % 8192) * 4 + self.number
        return f"198.{18 + place // 16384}.{place // 64 % 256}.{place % 64 * 4 + 1}"

    @property
    def address(self) -> str:
        first, _, last = self._subnet.rpartition(".")
        return f"{first}.{int(last) + 1}"

    @property
    def cable(self) -> str:
        return f"gk{os.getpid()}-{self.number}"

    @property
    def words(self) -> tuple[str, ...]:
        """What a command inside begins with."""
        assert self._holder is not None
        return ("nsenter", f"--net=/proc/{self._holder.pid}/ns/net", "--")

    def open(self) -> bool:
        """Make it; return whether the kernel let us."""
        if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare", "nsenter"))):
            return False
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec sleep 86400"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._holder.stdout is not None
        inside = f"{self.cable}i"
        opened = (
            self._holder.stdout.readline() == b"\n"
            and _ip("link", "add", self.cable, "type", "veth", "peer", inside, "netns", str(self._holder.pid))
            and _ip("address", "add", f"{self._subnet}/30", "dev", self.cable)
            and _ip("link", "set", self.cable, "up")
            and all(
                subprocess.run([*self.words, "ip", *ip_words], capture_output=True, timeout=20, check=False).returncode
                == 0
                for ip_words in (
                    ["address", "add", f"{self.address}/30", "dev", inside],
                    ["link", "set", inside, "up"],
                    ["link", "set", "lo", "up"],
                )
            )
        )
        if not opened:
            self.close()
        return opened

    def pull_cable(self) -> None:
        """Let nothing through, silently."""
        assert _ip("link", "set", self.cable, "down")

    def plug_in(self) -> None:
        assert _ip("link", "set", self.cable, "up")

    def close(self) -> None:
        if self._holder is not None:
            _ip("link", "delete", self.cable)
            self._holder.kill()
            self._holder.wait(10)
            assert self._holder.stdout is not None
            self._holder.stdout.close()
            self._holder = None
