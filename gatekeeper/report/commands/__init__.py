"""What commands show people, a file a command: each a function from the command's JSON to a document."""

from collections.abc import Mapping
from typing import Any

JsonObject = Mapping[str, Any]
"""What a command prints with --json."""
