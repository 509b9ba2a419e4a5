"""Hints where a running server refuses its first request: its key, its model or its address; what to write instead."""

import re
from collections.abc import Mapping, Sequence

from gatekeeper.backends.http import control_requests
from gatekeeper.core.errors import nearest_word
from gatekeeper.core.hidden_keys import Address
from gatekeeper.core.parse import ParseError, json_value
from gatekeeper.core.text import some

START = "start it, or correct the url"
NOT_FOUND = 404
LONGEST_NAME = 200
_PAGE = re.compile(r"not an event stream: \s*(<|Ollama is running)|HTTP 404: \s*<")


def listed_models(url: Address, headers: Mapping[str, str]) -> list[str]:
    """Return the names of the models that the server at *url* lists."""
    return models_in(control_requests.fetch(url.at("/v1/models"), headers) or "{}")


def models_in(listed: str) -> list[str]:
    """Return the names in a server's list of models; none where it is no such list."""
    try:
        return [str(model["id"]) for model in json_value(listed).get("data") or ()]
    except (ParseError, AttributeError, KeyError, TypeError):
        return []


def certain_mistake(fault: str, model: str | None, listed: Sequence[str], key_variable: str | None) -> str:
    """Return the hint for a *fault* that no draft causes, whatever the server's health says; empty for any other."""
    status = _status(fault)
    if status in {401, 403}:
        if key_variable is not None:
            return f"it refuses the key in {key_variable}: correct that variable, or api_key_env in [subject]"
        return "it wants a key: set api_key_env in [subject] to the name of the variable that holds it"
    if status == NOT_FOUND and listed and model is not None and model not in listed:
        # A name of several lines could pass for a hint of ours, and a long one fills the screen.
        names = [name for name in listed if name.isprintable() and len(name) <= LONGEST_NAME]
        near = nearest_word(model, names)
        hint = f"did you mean '{near}'?" if near else f"it lists {some(names) or 'no name that can be shown'}"
        return f"set served_model_name in [subject] to the name of the model there; {hint}"
    if _PAGE.match(fault):
        return "a web page answers there: correct the url, such as http://127.0.0.1:8080"
    return ""


def start_hint(fault: str) -> str:
    """Return what to do about a running server that answered its first request with *fault*."""
    status = _status(fault)
    if status == 429:
        return "it limits requests: wait, or raise its limit; a soak sends one after the other"
    if status is not None and status >= 500:
        return "look in its log, and restart it; or correct the url"
    return "write http:// in the url: it speaks no TLS" if "WRONG_VERSION_NUMBER" in fault else START


def _status(fault: str) -> int | None:
    match = re.match(r"HTTP (\d{3})\b", fault)
    return None if match is None else int(match[1])
