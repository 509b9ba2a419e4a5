"""The JSON Schema of an SLO file: `slos/slo.schema.json`, made from the model that reads the file, for editors.

It knows keys, types, choices and limits. What needs more than one key (names that must exist, the unit of a metric,
bounds that it can never reach) stays with gatekeeper, which says it with file and line.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # run as a script, Python looks in tools/ alone

from gatekeeper.core.metrics import ALL  # noqa: E402
from gatekeeper.core.reasons import CERTIFICATION  # noqa: E402
from gatekeeper.core.slo import Slo  # noqa: E402

SCHEMA = ROOT / "slos" / "slo.schema.json"
ID = "https://www.schemastore.org/gatekeeper-slo.json"
"""The address that SchemaStore gives a schema of this name; it is not submitted yet."""

NAMES = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}
"""Limits as pydantic writes them where a type has a schema of its own, and the words of JSON Schema."""

KNOBS = {
    "draft": "which of subject.drafts proposes tokens; chosen",
    "num_draft_tokens": "tokens drafted per verify round; chosen",
    "block_size": "tokens a block-diffusion draft proposes at once; chosen",
    "window": "attention window of the draft, in tokens; chosen",
    "draft_n_min": "a shorter proposal is not verified; chosen",
    "draft_p_min": "least probability at which the draft goes on; chosen",
    "temperature": "a condition, in both arms: reported, never chosen",
    "max_tokens": "a condition, in both arms: reported, never chosen",
    "thinking": "a condition, in both arms: reported, never chosen",
    "concurrency": "a condition, in both arms: answers under way at once",
}

SAYS: dict[str, dict[str, str]] = {
    "Slo": {
        "schema": "version of this format",
        "name": "names the run directory, the verdict and the policy",
        "why": "what decision hangs on this file",
        "confidence": "of each bound, one-sided; the error is split over the steps of the ladder",
        "workload": "classes of prompts, each with its own verdict and route",
        "objective": "what must be proven",
    },
    "Host": {"memory_gb": "installed memory", "power": "ac: a run on battery is unproven"},
    "KnobPlace": {
        "argv": "pieces of the server's command line; {value} is the knob's; needs a restart",
        "field": "name of a field in each request",
    },
    "Subject": {
        "backend": "the system that decodes",
        "prompt_cache": "as-deployed: turns of conversations are judged with the cache on",
        "plain_url": "the address of the same server without a draft",
        "plain_command": "starts the same server without a draft; {target} {port}",
        "knobs": "where a generic server takes a knob",
    },
    "Sampling": {
        "temperature": "0 is greedy: only then can tokens be compared one by one",
        "top_p": "keep the likeliest up to this share of probability",
        "top_k": "keep so many of the likeliest tokens",
        "min_p": "keep tokens of at least this share of the likeliest",
        "frequency_penalty": "sent with every canary that sets none of its own; so are the next two",
        "presence_penalty": "by whether a token was there before",
        "repetition_penalty": "a factor; `repeat_penalty` of llama-server and Ollama",
        "seed": "what the seed of each request follows from; sent above temperature 0 and at concurrency 1 only",
        "max_tokens": "where neither a knob nor the canary has its own",
    },
    "Workload": {
        "name": "names the route",
        "tier": "length of its prompts",
        "speculation": "optional: plain decoding does not block the deploy",
    },
    "Knobs": KNOBS,
    "Sweep": KNOBS
    | {
        "design": "each knob alone, or every combination",
        "repeats": "answers per canary, as far as the budget goes",
        "max_runs": "refuse a sweep with more settings times workloads",
        "default": "each knob's value while another is moved; else its first",
    },
    "Soak": {
        "duration": f"a minimum; under {CERTIFICATION} the verdict is a demo",
        "max_duration": "end even if some objective still lacks answers",
        "profile": "a file in soak/profiles, by its name, or a path that ends in .toml",
        "concurrency": "answers under way at once, in both arms",
        "baseline_share": "share of baseline requests (plain decoding) in the soak",
        "baseline_drift": "ratios are unproven while they change by more over the soak",
    },
    "Fallback": {"ladder": "steps to go down when an objective fails, each once"},
    "Promote": {"valid_for": "after this the certificate is expired"},
    "Telemetry": {"endpoint": "an OTLP collector", "protocol": "how it is spoken to"},
    "Objective": {
        "at_least": "the lower bound, in the metric's unit; or at_most",
        "at_most": "the upper bound, in the metric's unit; or at_least",
        "workloads": "default: all; left out for metrics of the host",
        "when": "default: speculating for comparisons with plain decoding, always for the rest",
        "scope": "frozen: what is counted is a fact of this canary set; population: an interval for all prompts like "
        "them; refused for facts of the run, such as the host's",
        "from": "ours: counted by gatekeeper; claims: as the server says of itself",
        "why": "the reason; it stands beside the check in every report",
    },
}
"""What a key means, by model, where its field does not say so itself."""

EXACTLY_ONE = {"Objective": ("at_least", "at_most"), "KnobPlace": ("argv", "field")}
"""Keys of which a table has exactly one."""


def schema() -> Json:
    """Return the schema of an SLO file, keys sorted; the same for the same model."""
    made = Slo.model_json_schema(by_alias=True)
    tables = {name: table(name, made["$defs"][name]) for name in sorted(made["$defs"])}
    top = table("Slo", {key: value for key, value in made.items() if key != "$defs"})
    top |= {"title": "gatekeeper SLO", "description": "The objectives for a target and its drafts on one machine."}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": ID, "$defs": tables, **top}


def table(name: str, made: Json) -> Json:
    """Return one table's schema with every key described."""
    keys = {key: described(name, key, tidy(value)) for key, value in made["properties"].items()}
    if name == "Sweep":  # one value is a list of it
        keys |= {key: one_or_many(keys[key]) for key in KNOBS}
    out = {**{key: value for key, value in made.items() if key != "title"}, "properties": keys}
    if name in EXACTLY_ONE:
        out["oneOf"] = [{"required": [key]} for key in EXACTLY_ONE[name]]
    return out


def one_or_many(value: Json) -> Json:
    """Return the schema of a list that may also be written as its only value."""
    says = {"description": value["description"]} if "description" in value else {}
    return {"anyOf": [value["items"], {key: one for key, one in value.items() if key != "description"}], **says}


def described(name: str, key: str, value: Json) -> Json:
    """Return a key's schema with what it means: the field's own words, else ours; a table speaks for itself."""
    description = value.get("description") or SAYS.get(name, {}).get(key)
    if (name, key) == ("Objective", "metric"):
        # An enum would hide what each metric says; a choice of constants shows it where an editor completes the name.
        choices = [{"const": metric.name, "description": f"{metric.description} [{metric.unit}]"} for metric in ALL]
        return {"description": "what is measured; `gatekeeper explain metrics` lists them", "oneOf": choices}
    return {**value, "description": description} if description else value


def tidy(value: Any) -> Any:
    """Drop what TOML does not have (null) and what says nothing (derived titles); name limits as JSON Schema does."""
    if isinstance(value, list):
        return [tidy(one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {NAMES.get(key, key): one for key, one in value.items() if key not in {"title", "anyOf"}}
    if "default" in kept and (kept["default"] is None or isinstance(kept["default"], dict)):
        del kept["default"]  # a table's own keys have their defaults
    kept = {key: one if key in {"default", "enum"} else tidy(one) for key, one in kept.items()}
    choices = [tidy(one) for one in value.get("anyOf", ()) if one != {"type": "null"}]
    if len(choices) == 1:
        return {**choices[0], **kept}
    return {**kept, "anyOf": choices} if choices else kept


def text() -> str:
    """Return the file's content."""
    return json.dumps(schema(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the file; with --check say by the exit code if it is what would be written."""
    parser = argparse.ArgumentParser(description="Write slos/slo.schema.json.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where the file differs")
    if not parser.parse_args().check:
        SCHEMA.write_text(text(), encoding="utf-8")
        return 0
    same = SCHEMA.is_file() and SCHEMA.read_text(encoding="utf-8") == text()
    if not same:
        print(f"{SCHEMA.relative_to(ROOT)} is not what the model says; run: ./run generate", file=sys.stderr)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
