"""How the scripted backend gives one answer: its times, its draft, its quality; script.py explains each key."""

from typing import Literal

from pydantic import Field, field_validator

from gatekeeper.core.quantity_fields import Seconds
from gatekeeper.core.toml_file import InputTable

Share = float


class Quality(InputTable):
    """How often each arm is right."""

    plain: Share = Field(default=1.0, ge=0, le=1)
    candidate: Share = Field(default=1.0, ge=0, le=1)


class Behaviour(InputTable):
    """How one answer is given; a script has one behaviour for all canaries and overrides for some."""

    prefill: Seconds = Field(default=0.04, ge=0)
    prefill_token: Seconds = Field(default=0.0, ge=0)
    draft_prefill: Seconds = Field(default=0.0, ge=0)
    draft_prefill_token: Seconds = Field(default=0.0, ge=0)
    first: Literal["round", "prefill"] = "round"
    token: Seconds = Field(default=0.02, gt=0)
    verify: Seconds | dict[str, Seconds] | None = None
    draft_token: Seconds | dict[str, Seconds] = 0.002
    acceptance: Share | dict[str, Share] = 0.7
    acceptance_falloff: float = Field(default=1.0, ge=0, le=1)
    num_draft_tokens: int = Field(default=4, ge=0)
    adaptive: dict[int, int] = Field(default={1: 4}, min_length=1)
    ratio: float | dict[str, float] | None = None
    tokens: int = Field(default=64, ge=1)
    quality: Quality = Quality()
    agreement: Share = Field(default=1.0, ge=0, le=1)
    gap: float | None = Field(default=5.0, ge=0)
    flips: Share = Field(default=0.0, ge=0, le=1)
    warm: Share = Field(default=1.0, ge=0, le=1)
    shortcut: bool = False
    wording: Literal["right", "other", "twice"] = "right"
    engaged: bool = True

    @field_validator("acceptance")
    @classmethod
    def _chances(cls, written: Share | dict[str, Share]) -> Share | dict[str, Share]:
        for chance in written.values() if isinstance(written, dict) else (written,):
            if not 0 <= chance <= 1:
                raise ValueError(f"{chance} is not a probability; allowed: 0 to 1")
        return written

    @field_validator("verify")
    @classmethod
    def _takes_time(cls, written: float | dict[str, float] | None) -> float | dict[str, float] | None:
        for seconds in written.values() if isinstance(written, dict) else (written,):
            if seconds is not None and seconds <= 0:
                raise ValueError(f"{seconds:g} s is no time; it must be greater than 0")
        return written

    @field_validator("ratio")
    @classmethod
    def _positive(cls, written: float | dict[str, float] | None) -> float | dict[str, float] | None:
        for ratio in written.values() if isinstance(written, dict) else (written,):
            if ratio is not None and ratio <= 0:
                raise ValueError(f"{ratio} is not a ratio; it must be greater than 0")
        return written

    def verify_seconds(self, draft_tokens: int) -> float:
        """Return the time of one verify pass at this draft length."""
        return self.token if self.verify is None else float(_for(self.verify, str(draft_tokens), self.token))

    def draft_seconds(self, draft: str) -> float:
        """Return the time *draft* takes to propose one token."""
        return float(_for(self.draft_token, draft, 0.002))

    def chance(self, draft: str) -> float:
        """Return the chance that a token of *draft* is accepted, before falloff and drift."""
        return float(_for(self.acceptance, draft, 0.7))

    def length(self, streams: int) -> int:
        """Return the draft length of an adaptive setting with this many streams."""
        return self.adaptive[
            max((threshold for threshold in self.adaptive if threshold <= streams), default=min(self.adaptive))
        ]

    def exact_ratio(self, draft_tokens: int) -> float | None:
        """Return the decode ratio that the script sets at this draft length, None where the costs decide."""
        return None if self.ratio is None else _for(self.ratio, str(draft_tokens), 1.0)


def _for(written: float | dict[str, float], name: str, otherwise: float) -> float:
    return written.get(name, otherwise) if isinstance(written, dict) else written
