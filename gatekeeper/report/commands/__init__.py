"""What commands print for people, a file a command: each a function from the command's JSON document to text."""

from collections.abc import Mapping
from typing import Any

Document = Mapping[str, Any]
"""What a command prints with --json."""
