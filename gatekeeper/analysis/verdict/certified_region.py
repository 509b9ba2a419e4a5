"""The certified region of a workload: which values of each axis are inside, outside and open, and the proven bounds."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from gatekeeper.analysis.plan.region_points import Point
from gatekeeper.core.verdict import Check, Outcome, known

WORDS = {Outcome.PASS: "inside", Outcome.FAIL: "outside", Outcome.UNPROVEN: "open"}


@dataclass(frozen=True, slots=True)
class PointProbe:
    """A point, judged."""

    point: Point
    outcome: Outcome
    because: str
    answers: int
    """Of both arms."""
    checks: tuple[Check, ...] = ()
    reach: Mapping[str, float] = field(default_factory=dict)
    """Up to where it proves each axis it moves: a context as the tokens that its prompts had."""
    tokens_per_byte: float | None = None
    """Of its prompts; where it lengthened them."""
    hopeless: bool = False
    """Open, whatever further answers show."""

    @property
    def word(self) -> str:
        """Return the outcome as a place: inside, outside or open."""
        return WORDS[self.outcome]

    def document(self) -> dict[str, object]:
        """Return it as verdict.json writes it."""
        return {
            "point": dict(self.point),
            "outcome": self.word,
            "because": self.because,
            "answers": self.answers,
            "checks": [check.document() for check in self.checks],
        }


@dataclass(frozen=True, slots=True)
class AxisValue:
    """What is known of one value of an axis, all other axes as certified."""

    value: float
    outcome: str
    """certified | inside | outside | open"""
    probed: bool = False
    """Whether it was measured itself."""


@dataclass(frozen=True, slots=True)
class RegionAxis:
    """One axis of a region: its values, and how far it is proven."""

    name: str
    certified: float
    monotone: bool
    limits: Mapping[str, float]
    """The ends, by their keys in policy.toml: alone, and together with the other axes where a box was proven."""
    values: tuple[AxisValue, ...]
    tokens_per_byte: float | None = None
    """Of a context: by this a proxy estimates the tokens of a prompt."""

    def word(self, value: float) -> str:
        """Return the outcome of one of its values."""
        return next(axis_value.outcome for axis_value in self.values if axis_value.value == value)

    def document(self) -> dict[str, object]:
        """Return it as verdict.json writes it."""
        return {
            "axis": self.name,
            "certified": self.certified,
            "monotone": self.monotone,
            **self.limits,
            "values": [asdict(value) for value in self.values],
            **known(tokens_per_byte=self.tokens_per_byte),
        }


@dataclass(frozen=True, slots=True)
class CertifiedRegion:
    """The points around the certified one at which a workload may speculate."""

    axes: tuple[RegionAxis, ...]
    points: tuple[PointProbe, ...]
    soak_alone: tuple[str, ...]
    """Metrics that are proven at the certified point alone."""
    because: str | None = None
    """Why its records are damaged, if they are."""

    @property
    def answers(self) -> int:
        """Return how many answers it rests on."""
        return sum(probe.answers for probe in self.points)

    def narrowed(self, axis: RegionAxis) -> "CertifiedRegion":
        """Return the region that reaches no further along *axis* than that one does, nor anywhere beyond it."""
        others = tuple(own for own in self.axes if own.name != axis.name)
        own = next((own for own in self.axes if own.name == axis.name), None)
        end = axis.limits["at_most"]
        if own is not None:
            limits = {key: min(value, end) for key, value in own.limits.items()}
            axis = replace(own, certified=min(own.certified, end), limits=limits, values=(*own.values, *axis.values))
        elif any("together_at_most" in other.limits for other in others):
            axis = replace(axis, limits={**axis.limits, "together_at_most": axis.certified})
        return replace(self, axes=(*others, axis))

    def document(self) -> dict[str, object]:
        """Return it as verdict.json writes it."""
        return {
            "axes": [axis.document() for axis in self.axes],
            "points": [probe.document() for probe in self.points],
            "soak_alone": list(self.soak_alone),
            "answers": self.answers,
            **known(because=self.because),
        }
