"""Why a setting is faster or slower than plain decoding, by the cost model, and which change would help."""

from collections.abc import Mapping
from dataclasses import dataclass

from gatekeeper.analysis.sweep import cost_model
from gatekeeper.core.slo import DRAFT_LENGTHS
from gatekeeper.core.verdict import Missing, rounded

WORTH_SAYING = 1.03
"""A smaller modelled gain is not reported as advice: the fit is not more exact."""
MISFIT = 0.15
"""Where model and measurement differ by more, the text says that the model misses something."""


@dataclass(frozen=True, slots=True)
class CostExplanation:
    """The rounds of a setting, what they cost, and what the model makes of that."""

    rounds: cost_model.MeasuredRounds
    cost: cost_model.RoundCost
    plain_token: float
    """Seconds that plain decoding takes for a token."""
    chances: tuple[float, ...]
    """By position: the setting's own chances, then those of the same draft's longest setting."""
    ratio: float | None
    """The measured speed over plain decoding's."""

    @property
    def relative(self) -> float:
        """Return what a round costs, in plain tokens."""
        return self.cost.round(self.rounds.length) / self.plain_token

    @property
    def yields(self) -> float:
        """Return how many tokens the model expects of a round."""
        return cost_model.expected_tokens(self.rounds.chances)

    @property
    def modelled(self) -> float:
        """Return the speed over plain decoding's that the model expects."""
        return self.yields / self.relative

    @property
    def break_even_acceptance(self) -> float | None:
        """Return the share of proposed tokens that must be accepted; None where a round costs no more than a token."""
        return rounded((self.relative - 1) / self.rounds.length) if self.relative > 1 else None

    @property
    def best_length(self) -> tuple[int, float]:
        """Return the draft length with the best modelled ratio, within the positions whose acceptance is known."""
        yields = cost_model.reached_chances(self.chances)
        ratios = [
            (1 + sum(yields[:length])) * self.plain_token / self.cost.round(length)
            for length in range(1, len(yields) + 1)
        ]
        gain = max(ratios, default=0.0)
        return (ratios.index(gain) + 1 if ratios else 0), gain

    @property
    def because(self) -> str:
        """Explain the speed, and name the change from which the model expects most."""
        rounds, relative, modelled = self.rounds, self.relative, self.modelled
        verify = self.cost.verify / self.plain_token
        text = f"one round takes the time of {relative:.2f} plain tokens"
        if round(verify, 2) < 1:  # a verify pass reads the same weights as a plain token, so it cannot take less time
            return f"{text} and yields {self.yields:.2f}; the times are too noisy to say what a draft costs here"
        assumed = " (assumed)" if self.cost.assumed else ""
        text += (
            f" ({verify:.2f} to verify{assumed}, {rounds.length} x {self.cost.step / self.plain_token:.3f} to draft) "
            f"and yields {self.yields:.2f}: {modelled:.2f}x expected"
        )
        if self.ratio is not None and abs(modelled / self.ratio - 1) > MISFIT:
            text += f", {self.ratio:.2f}x measured (the estimate leaves out a cost or a saving)"
        if relative > 1:
            needed = (relative - 1) / rounds.length
            side = "above" if rounds.acceptance > needed else "below"
            beyond = ", which no draft can reach" if needed > 1 else ""
            text += f"; acceptance {rounds.acceptance:.2f} is {side} the break-even of {needed:.2f}{beyond}"
        return f"{text}; {self._advice()}"

    def _advice(self) -> str:
        rounds, (length, gain) = self.rounds, self.best_length
        knob = next((knob for knob in DRAFT_LENGTHS if dict(rounds.setting).get(knob)), DRAFT_LENGTHS[0])
        if gain > 1 and length != rounds.length and gain > WORTH_SAYING * self.modelled:
            return f"{knob} = {length} is expected to give {gain:.2f}x"
        if self.modelled > 1:
            return "no other draft length measured here is expected to be faster"
        free = self.yields * self.plain_token / self.cost.verify
        if free > WORTH_SAYING:
            return f"a lighter draft could help: one that took no time would give {free:.2f}x"
        if (rounds.length + 1) * self.plain_token > self.cost.round(rounds.length):
            return "only a draft with a higher acceptance could help"
        return f"no draft can help: verifying {rounds.length} tokens takes longer than they can save"

    def document(self) -> dict[str, object]:
        """Return model and measurement as verdict.json writes them."""
        rounds, cost, (length, gain) = self.rounds, self.cost, self.best_length
        chance = cost_model.break_even_chance(self.relative, rounds.length) if self.relative > 1 else None
        return {
            "acceptance_by_position": [rounded(chance) for chance in rounds.chances],
            "tokens_per_round": {"modelled": rounded(self.yields), "measured": rounded(rounds.tokens)},
            "seconds": {
                "plain_token": rounded(self.plain_token),
                "verify": rounded(cost.verify),
                "draft_step": rounded(cost.step),
                "round": rounded(rounds.seconds),
            },
            "cost_from": cost.source,
            "rounds_from": "claims" if rounds.claimed else "ours",
            "misfit": rounded(cost.misfit) if cost.misfit is not None else None,
            "ratio": {
                "modelled": rounded(self.modelled),
                "measured": rounded(self.ratio) if self.ratio is not None else None,
            },
            "break_even_acceptance": self.break_even_acceptance,
            "break_even_chance": rounded(chance) if chance is not None else None,
            "best_length": {"length": length, "modelled": rounded(gain)},
            "because": self.because,
        }


def explanations(
    settings: Mapping[str, cost_model.MeasuredRounds | Missing], plain_token: float | None, ratios: Mapping[str, float]
) -> dict[str, CostExplanation | Missing]:
    """Return the explanation of every setting by its trial's name, or why there is none."""
    if plain_token is None:
        return dict.fromkeys(settings, Missing("plain decoding's time per token was not measured"))
    measured = [rounds for rounds in settings.values() if isinstance(rounds, cost_model.MeasuredRounds)]
    cost_by_draft = cost_model.costs(measured, plain_token)
    explanation_by_trial: dict[str, CostExplanation | Missing] = {}
    for name, rounds in settings.items():
        if isinstance(rounds, Missing):
            explanation_by_trial[name] = rounds
            continue
        longest = max((each.chances for each in measured if each.draft == rounds.draft), key=len)
        chances = (*rounds.chances, *longest[len(rounds.chances) :])
        cost = cost_by_draft[rounds.draft]
        explanation_by_trial[name] = CostExplanation(rounds, cost, plain_token, chances, ratios.get(name))
    return explanation_by_trial
