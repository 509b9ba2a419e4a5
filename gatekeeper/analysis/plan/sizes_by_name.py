"""Sizes by name: how many bytes a model such as `Qwen3-30B-A3B-4bit` has, and how many of them a token reads."""

import re

_BILLIONS = re.compile(r"(?<![\d.A-Za-z])(\d+(?:\.\d+)?)b(?![a-z])", re.IGNORECASE)


_ACTIVE = re.compile(r"-a(\d+(?:\.\d+)?)b(?![a-z])", re.IGNORECASE)


_BITS = re.compile(r"(\d+)-?bit|q(\d)(?=_)", re.IGNORECASE)


def bytes_by_name(name: str) -> float | None:
    """Return the size of the model *name* that a name such as `Qwen3-8B-4bit` tells; None where it tells none.

    Half a bit per parameter is added for the scales of quantisation, and 16 bits are assumed where it names none.
    """
    billions, bits = _BILLIONS.search(name), _BITS.search(name)
    if billions is None:
        return None
    width = int(bits[1] or bits[2]) + 0.5 if bits is not None else 16.0
    return float(billions[1]) * 1e9 * width / 8


def has_experts(name: str) -> bool:
    """Tell whether a name such as `30B-A3B` is one of a mixture of experts."""
    return _ACTIVE.search(name) is not None


def bytes_read(name: str, size: float | None) -> float | None:
    """Return the bytes of weights read for each token of the model *name*; None where nothing tells.

    Without its *size*, its name may tell it. Of a mixture of experts, `30B-A3B`, only a part is read.
    """
    billions, active = _BILLIONS.search(name), _ACTIVE.search(name)
    size = bytes_by_name(name) if size is None else size
    if size is None or billions is None or active is None:
        return size
    return size * min(1.0, float(active[1]) / float(billions[1]))
