"""When enough has been seen: of a run's own failures, or of the cases at one point of a parametric task."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from evalsite.lib.wilson import Interval, wilson


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

    def interval(self, confidence: float = 0.95) -> Interval | None:
        """Wilson's interval of the accuracy beyond guessing: of (max(0, correct - G), total - G), G the guess chances.

        None where guessing leaves nothing to be known. `StoppingRule` says how often it covers the truth.
        """
        left = self.total - self.guess_chances
        return wilson(max(0.0, self.correct - self.guess_chances), left, confidence) if left > 1e-9 else None


@dataclass(frozen=True, slots=True)
class Decision:
    """What comes next at a point, and why, in words for the record. half_width: of the interval, None without one."""

    kind: Literal["enough", "more", "abort"]
    reason: str
    half_width: float | None = None


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """How many cases a point gets, judged after each round of them.

    targetci: the half-width of the interval at which a point is known well enough; None: one round is enough.
    targetciht, backoffht: the half-width wanted instead where the share of truncated answers is above backoffht.
    abortht: above this share of truncated answers the point is given up. minci: no half-width below it is asked for.
    maximum: the cases at which a point ends in any case.

    Looking after each round costs coverage. Simulated (20,000 points each, rounds of 32, at most 512, targetci .09),
    the 95 % interval at the stop covers the truth at an accuracy
        beyond guessing of          .10  .25  .50  .75  .90  .97
        without guessing           .982 .941 .961 .941 .982 .966    (.940 to .959 at a fixed 128 cases)
        guess chance 1/4           .865 .838 .914 .944 .975 .946    (.742 to .974)
        guess chance 1/2           .824 .713 .888 .912 .975 .949    (.625 to .962)
    So looking costs a point at most. What costs more is that the correction takes its counts for a binomial's, though
    guessing has a variance of its own: near the level of guessing the interval is too narrow.
    ValueError for a half-width or share outside 0 to 1, a maximum below 1, or one of targetciht and backoffht alone.
    """

    maximum: int
    targetci: float | None = None
    targetciht: float | None = None
    abortht: float | None = None
    backoffht: float | None = None
    minci: float = 0.0
    confidence: float = 0.95

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

    def decide(self, tally: Tally) -> Decision:
        """Whether the point has enough cases, needs another round, or is given up; called when a round is all in."""
        if not tally.cases:
            return Decision("more", "nothing has been asked yet")
        interval = tally.interval(self.confidence)
        width = None if interval is None else interval.margin
        if self.abortht is not None and tally.truncation > self.abortht:
            return Decision("abort", f"{_cut_off(tally)}, above the {self.abortht:.1%} to give up at", width)
        target = self.target(tally.truncation)
        if target is None:
            return Decision("enough", f"{tally.cases:,} cases, and no interval was asked for", width)
        known = f"{_width(width)} after {tally.cases:,} cases"
        if width is not None and width <= target:
            return Decision("enough", f"{known}, within ±{target:g}", width)
        if tally.cases >= self.maximum:
            return Decision("enough", f"{known}, the maximum; wanted ±{target:g}", width)
        return Decision("more", f"{known}, wanted ±{target:g}", width)


def _cut_off(tally: Tally) -> str:
    return f"{tally.truncated:,} of {tally.cases:,} answers were cut off ({tally.truncation:.1%})"


def _width(width: float | None) -> str:
    return "nothing is known beyond guessing" if width is None else f"the interval is ±{width:.4f}"
