"""What a file is that is no text, or is not there: hints for the person who named it."""

from pathlib import Path

_HEADS = {
    b"PAR1": (
        "a Parquet file",
        "with pyarrow or pandas, pandas.read_parquet('{}').to_json('FILE', orient='records', lines=True)",
    ),
    b"\xff\xfe": ("text in UTF-16", "iconv -f UTF-16 -t UTF-8 {} > FILE"),
    b"\xfe\xff": ("text in UTF-16", "iconv -f UTF-16 -t UTF-8 {} > FILE"),
    b"\x1f\x8b": ("compressed by gzip", "gzip -dc {} > FILE"),
    b"(\xb5/\xfd": ("compressed by zstd", "zstd -dc {} > FILE"),
    b"PK\x03\x04": ("a zip archive", "unzip {}"),
}
"""How files begin that people name by mistake; what they are, and what makes text of them."""


def describe_head(path: Path, content: bytes) -> tuple[str, str] | None:
    """Return what a file is that begins with *content*, and what makes text of it; None where that does not show."""
    for head, (kind, command) in _HEADS.items():
        if content.startswith(head):
            return f"is {kind}", f"write it as UTF-8 text: {command.format(path)}"
    return None


def describe_no_text(path: Path, content: bytes, byte: int) -> tuple[str, str]:
    """Return what is wrong with a file that is not UTF-8 at *byte*, and what to do."""
    if (known := describe_head(path, content)) is not None:
        return known
    if b"\0" in content:
        return "is no text: it holds bytes with the value 0", "name a text file"
    return f"is not UTF-8 at byte {byte}", "save it as UTF-8"


def describe_absence(path: Path) -> str:
    """Return why a file is not there, where its path says so: an address, stdin, a link to nothing; else nothing."""
    if path.parts[:1] in {("http:",), ("https:",)}:
        return "an address is not read: download the file, and name it"
    if str(path) == "-":
        return "stdin is not read: write it into a file, and name that"
    if path.parts[:1] == ("~",):
        return "a shell replaces ~ only outside quotes: write $HOME, or leave the quotes out"
    if path.is_symlink():
        return f"it is a link to {path.readlink()}, which is not there"
    return ""
