"""How far a route reaches around its certified point, axis by axis."""

from collections.abc import Mapping

from pydantic import Field, model_validator

from gatekeeper.core.text import condition_value
from gatekeeper.core.toml_file import InputTable


class AxisBounds(InputTable):
    """How far a route reaches along one axis: alone, with all other axes as certified, and together with others."""

    certified: float = Field(ge=0, description="where the soak was")
    at_least: float | None = Field(default=None, ge=0, description="temperature alone: limits cover all below them")
    at_most: float = Field(ge=0)
    together_at_least: float | None = Field(default=None, ge=0)
    together_at_most: float | None = Field(
        default=None, ge=0, description="end of the proven box: up to here while other axes differ, too"
    )
    tokens_per_byte: float | None = Field(
        default=None, gt=0, description="of a context: by this a proxy estimates the tokens of a prompt"
    )

    @model_validator(mode="after")
    def _around_certified(self) -> "AxisBounds":
        inner = self.certified if self.together_at_most is None else self.together_at_most
        lowest = self.certified if self.together_at_least is None else self.together_at_least
        if not self.certified <= inner <= self.at_most or not (self.at_least or 0.0) <= lowest <= self.certified:
            raise ValueError("its bounds do not lie around the certified value\ncopy them from the run's policy.toml")
        return self

    @property
    def point(self) -> "AxisBounds":
        """Return the certified value alone."""
        none = {"together_at_least": None, "together_at_most": None}
        low = None if self.at_least is None else self.certified
        return self.model_copy(update={"at_least": low, "at_most": self.certified, **none})

    def moved(self, value: float) -> bool:
        """Return whether *value* is another one than was certified; a limit covers everything below it."""
        return value > self.certified or (self.at_least is not None and value < self.certified)

    def within(self, value: float, *, together: bool) -> bool:
        """Return whether *value* is proven: alone, or *together* with others that differ."""
        low, high = self.at_least, self.at_most
        if together:
            high = self.certified if self.together_at_most is None else self.together_at_most
            low = None if low is None else self.certified if self.together_at_least is None else self.together_at_least
        return (low or 0.0) <= value <= high

    def covers(self, edited: "AxisBounds") -> bool:
        """Return whether *edited*, of an edited policy, allows no more."""
        same_point = (edited.certified, edited.at_least is None) == (self.certified, self.at_least is None)
        dense = (edited.tokens_per_byte or 0.0) >= (self.tokens_per_byte or 0.0)
        alone = all(self.within(end, together=False) for end in (edited.at_least, edited.at_most) if end is not None)
        inner = (end for end in (edited.together_at_least, edited.together_at_most) if end is not None)
        return same_point and dense and alone and all(self.within(end, together=True) for end in inner)


class RouteRegion(InputTable):
    """The conditions of a route: a request outside of them decodes plainly. An axis that is left out has none."""

    temperature: AxisBounds | None = None
    context: AxisBounds | None = Field(default=None, description="tokens of the prompt")
    concurrency: AxisBounds | None = Field(default=None, description="requests in flight at once")
    max_tokens: AxisBounds | None = None

    @model_validator(mode="after")
    def _whole(self) -> "RouteRegion":
        if not self.axes:
            raise ValueError("a region without an axis has no conditions\nremove it")
        if self.temperature is not None and self.temperature.at_least is None:
            raise ValueError("a temperature has two ends\nset at_least")
        if len({bounds.together_at_most is None for bounds in self.axes.values()}) > 1:
            raise ValueError("the box of a region has an end on every axis\nset together_at_most on all of them")
        return self

    @property
    def axes(self) -> dict[str, AxisBounds]:
        """Return the axes that have conditions."""
        bounds_by_axis = {axis: getattr(self, axis) for axis in type(self).model_fields}
        return {axis: bounds for axis, bounds in bounds_by_axis.items() if bounds is not None}

    @property
    def point(self) -> "RouteRegion":
        """Return the certified point alone, for a setting whose surroundings were not explored."""
        return self.model_copy(update={axis: bounds.point for axis, bounds in self.axes.items()})

    def beyond(self, values: Mapping[str, float | None]) -> str | None:
        """Return why a request with these values is outside; None where it is proven. A value may not be missing."""
        for axis, bounds in self.axes.items():
            value = values.get(axis)
            if value is None:
                return f"the request does not say its {axis}"
            if not bounds.within(value, together=False):
                end = (
                    f"at most {condition_value(bounds.at_most)}"
                    if value > bounds.at_most
                    else f"at least {condition_value(bounds.at_least or 0.0)}"
                )
                return f"{axis} {condition_value(value)} is outside of the certified region: {end}"
        changes = {
            axis: value for axis, value in values.items() if axis in self.axes and self.axes[axis].moved(value or 0)
        }
        if len(changes) < 2 or all(
            self.axes[axis].within(value or 0, together=True) for axis, value in changes.items()
        ):
            return None
        return f"{' and '.join(changes)} were not certified together that far"
