"""A route of the policy: what it says for one workload, and what the soak measured of it."""

from pydantic import Field, model_validator

from gatekeeper.core.records import Setting
from gatekeeper.core.slo import ChosenKnobs, Step
from gatekeeper.core.toml_file import InputTable, Seconds

_PLAIN: Setting = (("draft", None),)
TEMPLATE_TOKENS = 8
"""That a chat template adds to a message, at most, as the tokens of a prompt are estimated."""


class MeasuredValue(InputTable):
    """A value as the soak measured it, with its interval at the SLO's confidence."""

    center: float
    lo: float
    hi: float
    n: int = Field(ge=0)


class MeasuredRoute(InputTable):
    """What the soak measured of a route: the reference where production runs no plain decoding."""

    throughput_ratio: MeasuredValue | None = None
    decode_throughput: MeasuredValue | None = None
    acceptance_rate: MeasuredValue | None = None
    canary_pass_rate: MeasuredValue | None = None
    json_pass_rate: MeasuredValue | None = None
    tool_call_pass_rate: MeasuredValue | None = None


class LadderStep(ChosenKnobs):
    """One step of the fallback ladder, below the certified setting."""

    rung: Step


class Route(InputTable):
    """What the policy says for one workload."""

    workload: str = Field(min_length=1)
    speculation: bool
    because: str = ""
    setting: ChosenKnobs = ChosenKnobs()
    warm_up: bool = Field(
        default=False,
        description="the first token kept its bound with a warm-up only: who serves sends a short request after each "
        "start, and before a user's request after a pause",
    )
    warm_up_after: Seconds | None = Field(default=None, gt=0, description="the shortest pause that needs one")
    ladder: tuple[LadderStep, ...] = Field(
        default=(), description="steps below the setting; plain decoding follows the last one"
    )
    longest_prompt: int | None = Field(default=None, ge=1, description="tokens of the longest certified prompt")
    tokens_per_byte: float | None = Field(
        default=None,
        gt=0,
        description="of the longest prompts, besides 8 tokens a message: by this a proxy estimates "
        "the tokens of a prompt",
    )
    max_concurrency: int | None = Field(
        default=None, ge=1, description="requests in flight up to which it may speculate"
    )
    measured: MeasuredRoute = MeasuredRoute()

    @model_validator(mode="after")
    def _drafts(self) -> "Route":
        if self.speculation and self.setting.draft is None:
            raise ValueError(f"route '{self.workload}' has speculation = true and no draft\nset setting.draft")
        if any(lower.draft is None for lower in self.ladder):
            raise ValueError("a ladder step without a draft is plain decoding, which ends every ladder\nremove it")
        return self

    @property
    def steps(self) -> tuple[Setting, ...]:
        """Return the settings from the certified one down; the last one is plain decoding."""
        if not self.speculation:
            return (_PLAIN,)
        return (*(_setting_of(step) for step in (self.setting, *self.ladder)), _PLAIN)


def _setting_of(knobs: ChosenKnobs) -> Setting:
    written = knobs.model_dump(include=set(ChosenKnobs.model_fields), exclude_none=True)
    return tuple(sorted(written.items()))
