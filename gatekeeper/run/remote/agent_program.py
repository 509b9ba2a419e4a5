"""The program that is sent: the modules of the far side as one text that any Python can run."""

from importlib import resources

MODULES = (
    "frames",
    "state",
    "processes",
    "machine",
    "files",
    "environments",
    "jobs",
    "supervisor",
    "agent",
)
"""Each stands on those before it."""
PACKAGE = "gatekeeper.run.remote.agent"
RUN = f"""
import sys, types
names = {PACKAGE!r}.split(".")
for at in range(len(names)):
    package = types.ModuleType(".".join(names[: at + 1]))
    package.__path__ = []
    sys.modules[package.__name__] = package
for name, text in TEXTS:
    module = types.ModuleType({PACKAGE!r} + "." + name)
    sys.modules[module.__name__] = module
    exec(compile(text, module.__name__, "exec"), module.__dict__)
module.main(globals().get("program", b""), globals().get("nonce", ""))
"""
"""Nothing is written to the far disk, which may be full; the modules find each other by the names they have here."""


def program() -> bytes:
    """Return the program; the same text for the same modules."""
    folder = resources.files(PACKAGE)
    texts = [(name, folder.joinpath(f"{name}.py").read_text(encoding="utf-8")) for name in MODULES]
    return f"TEXTS = {texts!a}\n{RUN}".encode("ascii")
