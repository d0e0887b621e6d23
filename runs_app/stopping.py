"""When enough has been seen: of a run's own failures, or of the cases at one point of a parametric task."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Literal

from evalsite.lib.wilson import Interval, wilson

Correction = Literal["mapped", "excess_counts"]


def should_stop_itself(
    attempts: int, permanent_failures: int, *, threshold: float | Decimal = 0.05, minimum: int = 20
) -> str | None:
    """The reason to stop, for the history; None to go on.

    A run stops when more than `threshold` (a share) of its attempts failed for good, once there are `minimum` of them:
    a wrong key, model name or parameter is then not paid for, or waited for, ten thousand times.
    """
    if attempts < minimum or permanent_failures <= Decimal(str(threshold)) * attempts:
        return None
    return (
        f"{permanent_failures:,} of {attempts:,} attempts failed for good "
        f"({permanent_failures / attempts:.1%}, and {float(threshold):.1%} is the limit)."
    )


@dataclass(frozen=True, slots=True)
class Tally:
    """What is known of a point. total: answers that were not cut off, correct among them; truncated: those cut off.

    guess_chances: the sum over the `total` of each case's chance to be right by guessing.
    ValueError for counts that cannot be.
    """

    correct: int
    total: int
    truncated: int = 0
    guess_chances: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.correct <= self.total and self.truncated >= 0 and 0 <= self.guess_chances <= self.total):
            raise ValueError(f"no tally: {self}")

    @property
    def cases(self) -> int:
        return self.total + self.truncated

    @property
    def truncation(self) -> float:
        """The share of cases whose answer was cut off; 0 of none."""
        return self.truncated / self.cases if self.cases else 0.0

    def interval(self, confidence: float = 0.95, correction: Correction = "mapped") -> Interval | None:
        """The interval of the accuracy beyond guessing; None where guessing leaves nothing to be known.

        "mapped": Wilson's interval of the answers as they are, mapped by (p - g) / (1 - g), g the mean guess chance. It
        covers as often as Wilson's own, near the level of guessing, too. "excess_counts": Wilson's interval of
        (max(0, correct - G), total - G), G the guess chances, which other tools publish: it takes guesses for known, so
        near guessing it is too narrow and covers far less often than it says (simulated .46 to .89, not .95).
        """
        left = self.total - self.guess_chances
        if left <= 1e-9:
            return None
        if correction == "excess_counts":
            return wilson(max(0.0, self.correct - self.guess_chances), left, confidence)
        return wilson(self.correct, self.total, confidence).beyond_guessing(self.guess_chances / self.total)


@dataclass(frozen=True, slots=True)
class Decision:
    """What comes next at a point, and why, in words for the record. half_width: of the interval, None without one."""

    kind: Literal["enough", "more", "abort", "exhausted"]
    reason: str
    half_width: float | None = None


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """How many cases a point gets, judged after each round of them.

    targetci: the half-width of the interval at which a point is known well enough; None: one round is enough.
    targetciht, backoffht: the half-width wanted instead where the share of truncated answers is above backoffht.
    abortht: above this share of truncated answers the point is given up. minci: no half-width below it is asked for.
    maximum: the cases at which a point ends in any case.

    correction: how guessing is taken off, as in `Tally.interval`. Looking after each round costs little coverage:
    `coverage.py` holds what was simulated.
    ValueError for a half-width or share outside 0 to 1, a maximum below 1, or one of targetciht and backoffht alone.
    """

    maximum: int
    targetci: float | None = None
    targetciht: float | None = None
    abortht: float | None = None
    backoffht: float | None = None
    minci: float = 0.0
    confidence: float = 0.95
    correction: Correction = "mapped"

    def __post_init__(self) -> None:
        for name in ("targetci", "targetciht", "abortht", "backoffht", "minci"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"{name} lies between 0 and 1, not at {value}")
        if self.maximum < 1:
            raise ValueError(f"a point takes at least one case, not {self.maximum}")
        if (self.targetciht is None) != (self.backoffht is None):
            raise ValueError("targetciht and backoffht come together")

    def target(self, truncation: float) -> float | None:
        """The half-width wanted at this share of truncated answers; None where none is wanted."""
        strict = self.targetciht is not None and self.backoffht is not None and truncation > self.backoffht
        wanted = self.targetciht if strict else self.targetci
        return None if wanted is None else max(wanted, self.minci)

    def decide(self, tally: Tally, *, asked: int = 0) -> Decision:
        """What comes next at a point whose round is all in; `asked` counts the cases that brought no answer, too."""
        if not tally.cases and asked < self.maximum:
            return Decision("more", "no answer has come yet")
        interval = tally.interval(self.confidence, self.correction)
        width = None if interval is None else interval.margin
        if self.abortht is not None and tally.truncation > self.abortht:
            return Decision("abort", f"{_cut_off(tally)}, above the {self.abortht:.1%} to give up at", width)
        target = self.target(tally.truncation)
        if target is None:
            return Decision("enough", f"{tally.cases:,} cases, and no interval was asked for", width)
        known = f"{_width(width)} after {tally.cases:,} cases"
        if width is not None and width <= target:
            return Decision("enough", f"{known}, within ±{target:g}", width)
        if max(tally.cases, asked) >= self.maximum:
            return Decision("exhausted", f"{known}, the maximum; wanted ±{target:g}", width)
        return Decision("more", f"{known}, wanted ±{target:g}", width)


SKILLS = tuple(step / 20 for step in range(21))  # Accuracies beyond guessing, from none to all.


@lru_cache(maxsize=4096)
def expected_cases(rule: StoppingRule, per_round: int, guess: float = 0.0) -> float:
    """The mean number of cases at the stop, in rounds of `per_round`, if every accuracy is equally likely.

    Each point is taken to answer just as its accuracy says, none of it cut off; `guess` is a case's guess chance.
    """
    rounds = range(1, -(-rule.maximum // per_round) + 1)

    def stops(n: int, skill: float) -> bool:
        cases = min(n * per_round, rule.maximum)
        right = skill + (1 - skill) * guess
        interval = wilson(right * cases, cases, rule.confidence).beyond_guessing(guess)
        target = rule.target(0)
        return target is None or interval.margin <= target

    def cases_at(skill: float) -> int:
        last = bisect_left(rounds, True, key=lambda n: stops(n, skill))
        return min((last + 1) * per_round, rule.maximum)

    if guess >= 1:
        return rule.maximum
    return sum(cases_at(skill) for skill in SKILLS) / len(SKILLS)


def _cut_off(tally: Tally) -> str:
    return f"{tally.truncated:,} of {tally.cases:,} answers were cut off ({tally.truncation:.1%})"


def _width(width: float | None) -> str:
    return "nothing is known beyond guessing" if width is None else f"the interval is ±{width:.4f}"
