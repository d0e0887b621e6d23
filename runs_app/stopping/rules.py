"""Stopping rules: for a run that fails too often, and for the cases at one point of a parametric task."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, partial
from typing import Literal

from evalsite.lib.stats.t_interval import MeanInterval, compute_bounded_interval
from evalsite.lib.stats.wilson import Interval, wilson

Correction = Literal["mapped", "excess_counts"]
Scale = tuple[int, int]  # The lowest and the highest rating.


MIN_FAILURES = 5


def should_stop_itself(
    attempts: int, permanent_failures: int, *, threshold: float | Decimal = 0.05, minimum: int = 20
) -> str | None:
    """Return the reason to stop, for the history, or None to continue.

    A run stops when its share of permanently failed attempts is above `threshold` with 95 % confidence. It needs
    `minimum` attempts and MIN_FAILURES failures first. Then the lower bound of the share's 95 % Wilson interval must be
    above `threshold`. This stops a run with a wrong key, model name or parameter early. Two failures of 29 are no
    reason to stop.
    """
    failures = min(permanent_failures, attempts)
    if attempts < minimum or failures < MIN_FAILURES:
        return None
    low = wilson(failures, attempts).low
    if low <= threshold:
        return None
    return (
        f"{failures:,} of {attempts:,} attempts failed permanently ({failures / attempts:.1%}). The share is above "
        f"{low:.1%} with 95 % confidence, and {float(threshold):.1%} is the limit."
    )


class Cases:
    """The counts that both kinds of points have: `total` scored answers and `truncated` answers."""

    __slots__ = ()
    total: int
    truncated: int

    @property
    def cases(self) -> int:
        return self.total + self.truncated

    @property
    def truncation(self) -> float:
        """Return the share of cases whose answer was cut off; 0 without cases."""
        return self.truncated / self.cases if self.cases else 0.0


@dataclass(frozen=True, slots=True)
class Tally(Cases):
    """Right and wrong answers at a point. total: scored answers, without truncated ones. truncated: answers cut off.

    guess_chances: the sum over the `total` of each case's chance to be right by guessing.
    effective: the number of independent answers that the `total` is worth, if items have several answers
    (`effective_size`); None if each item has one.
    Raise ValueError for impossible counts.
    """

    correct: int
    total: int
    truncated: int = 0
    guess_chances: float = 0.0
    effective: float | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.correct <= self.total and self.truncated >= 0 and 0 <= self.guess_chances <= self.total):
            raise ValueError(f"no tally: {self}")
        if self.effective is not None and not 0 < self.effective <= self.total + 1e-9:
            raise ValueError(f"no tally: {self}")

    def interval(self, confidence: float = 0.95, correction: Correction = "mapped") -> Interval | None:
        """Return the interval of the accuracy beyond guessing; None if the guess chances add up to the total.

        "mapped": Wilson's interval of the raw answers, mapped by (p - g) / (1 - g). Here g is the mean guess chance.
        Its coverage equals that of Wilson's interval, also near the level of guessing.

        "excess_counts": Wilson's interval of (max(0, correct - G), total - G), with G the sum of guess chances. Other
        tools publish it. It treats guesses as certain, so near guessing it is too narrow: simulated coverage .46 to .89
        instead of .95.

        If items have several answers, both use the effective number of answers in place of the total, at the same
        shares.
        """
        left = self.total - self.guess_chances
        if left <= 1e-9:
            return None
        worth = 1.0 if self.effective is None else self.effective / self.total
        if correction == "excess_counts":
            return wilson(max(0.0, self.correct - self.guess_chances) * worth, left * worth, confidence)
        share = wilson(self.correct * worth, self.total * worth, confidence)
        return share.beyond_guessing(self.guess_chances / self.total)


@dataclass(frozen=True, slots=True)
class Ratings(Cases):
    """Ratings at a point. total: ratings read, without truncated answers. truncated: answers cut off.

    items: the number of rated items.

    mean: the mean of the items' own means. spread: their sample standard deviation (0 for one item). An item's
    repetitions are averaged first, because they describe the item rather than the point. So each item counts once.
    Raise ValueError for impossible numbers.
    """

    items: int
    total: int
    mean: float
    spread: float
    scale: Scale
    truncated: int = 0

    def __post_init__(self) -> None:
        low, high = self.scale
        is_mean = not self.items or low - 1e-9 <= self.mean <= high + 1e-9
        if not (0 <= self.items <= self.total and self.truncated >= 0 and self.spread >= 0 and is_mean and low < high):
            raise ValueError(f"no ratings: {self}")

    def interval(self, confidence: float = 0.95) -> MeanInterval | None:
        """Return `compute_bounded_interval` over items, in points of the scale; None before any rating was read."""
        return (
            compute_bounded_interval(self.items, self.mean, self.spread, self.scale, confidence) if self.items else None
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """The next step at a point, and its reason for the record. half_width is None if there is no interval."""

    kind: Literal["enough", "more", "abort", "exhausted"]
    reason: str
    half_width: float | None = None


SHARES = ("abortht", "backoffht")
WIDTHS = ("targetci", "targetciht", "minci")


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """The rule that decides after each round whether a point needs more cases.

    targetci: the half-width of the interval at which a point is decided. None: one round is enough.
    targetciht, backoffht: the half-width to use instead if the share of truncated answers is above backoffht.
    abortht: above this share of truncated answers the point is given up. minci: the smallest half-width to ask for.
    maximum: the number of cases at which a point always ends.

    Half-widths are shares of one for right or wrong answers, and points of the scale for ratings.
    widest: the largest half-width that makes sense.

    correction: the correction for guessing, as in `Tally.interval`. A look after each round costs little coverage;
    `coverage.py` has the simulated values.
    Raise ValueError for a half-width outside 0 to `widest`, a share outside 0 to 1, or a maximum below 1. Raise it also
    if only one of targetciht and backoffht is given.
    """

    maximum: int
    targetci: float | None = None
    targetciht: float | None = None
    abortht: float | None = None
    backoffht: float | None = None
    minci: float = 0.0
    confidence: float = 0.95
    correction: Correction = "mapped"
    widest: float = 1.0

    def __post_init__(self) -> None:
        shares, widths = dict.fromkeys(SHARES, 1.0), dict.fromkeys(WIDTHS, self.widest)
        for name, most in (shares | widths).items():
            value = getattr(self, name)
            if value is not None and not 0 <= value <= most:
                raise ValueError(f"{name} lies between 0 and {most:g}, not at {value}")
        if self.maximum < 1:
            raise ValueError(f"a point takes at least one case, not {self.maximum}")
        if (self.targetciht is None) != (self.backoffht is None):
            raise ValueError("targetciht and backoffht come together")

    def target(self, truncation: float) -> float | None:
        """Return the half-width wanted at this share of truncated answers; None if none is wanted."""
        strict = self.targetciht is not None and self.backoffht is not None and truncation > self.backoffht
        wanted = self.targetciht if strict else self.targetci
        return None if wanted is None else max(wanted, self.minci)

    def half_width(self, counts: Tally | Ratings) -> float | None:
        """Return the half-width of the interval of the accuracy or the mean; None without data."""
        if isinstance(counts, Ratings):
            mean = counts.interval(self.confidence)
            return None if mean is None else mean.margin
        accuracy = counts.interval(self.confidence, self.correction)
        return None if accuracy is None else accuracy.margin

    def decide(self, tally: Tally | Ratings, *, asked: int = 0) -> Decision:
        """Return the next step at a point whose round is complete. `asked` also counts cases without an answer."""
        if not tally.cases and asked < self.maximum:
            return Decision("more", "no answer has come yet")
        width = self.half_width(tally)
        if self.abortht is not None and tally.truncation > self.abortht:
            return Decision(
                "abort", f"{_describe_truncation(tally)}, above the {self.abortht:.1%} to give up at", width
            )
        target = self.target(tally.truncation)
        if target is None:
            return Decision("enough", f"{tally.cases:,} cases, and no interval was asked for", width)
        counts = f"{_describe_width(width, tally)} after {tally.cases:,} cases{_describe_effective_size(tally)}"
        if width is not None and width <= target:
            return Decision("enough", f"{counts}, within ±{target:g}", width)
        if max(tally.cases, asked) >= self.maximum:
            return Decision("exhausted", f"{counts}, the maximum; wanted ±{target:g}", width)
        return Decision("more", f"{counts}, wanted ±{target:g}", width)


SKILLS = tuple(step / 20 for step in range(21))  # Accuracies beyond guessing, from 0 to 1.


@lru_cache(maxsize=4096)
def expect_cases(rule: StoppingRule, per_round: int, guess: float = 0.0, items: int | None = None) -> float:
    """Return the mean number of cases at the stop, in rounds of `per_round`, if every accuracy is equally likely.

    Assumes that the share of right answers equals its expected value, and that no answer is cut off. `guess` is the
    guess chance of a case. items: the items of the point. Repetitions after the first answer to each are taken to add
    nothing, as if all answers to an item were alike.
    """

    def width(cases: int, skill: float) -> float:
        right, cases = skill + (1 - skill) * guess, min(cases, items or cases)
        return wilson(right * cases, cases, rule.confidence).beyond_guessing(guess).margin

    if guess >= 1:
        return rule.maximum
    return sum(_find_cases_until(rule, per_round, partial(width, skill=skill)) for skill in SKILLS) / len(SKILLS)


SPREADS = tuple(step / 60 for step in range(21))  # Spreads of items' ratings: from 0 to a third of the scale's length.


@lru_cache(maxsize=4096)
def expect_ratings(rule: StoppingRule, per_round: int, scale: Scale, items: int) -> float:
    """Return the mean number of ratings at the stop, if every spread of the items is equally likely.

    Assumes ratings around the middle of the scale. All spread lies between the `items` of the point, so repetitions
    after the first rating of every item add nothing. A third of the scale's length is about the spread of ratings that
    are uniform over the scale.
    """
    low, high = scale

    def width(cases: int, spread: float) -> float:
        return compute_bounded_interval(
            min(cases, items), (low + high) / 2, spread * (high - low), scale, rule.confidence
        ).margin

    return sum(_find_cases_until(rule, per_round, partial(width, spread=spread)) for spread in SPREADS) / len(SPREADS)


def _find_cases_until(rule: StoppingRule, per_round: int, width: Callable[[int], float]) -> int:
    """Return the cases after which the interval is narrow enough. Its half-width must fall as cases grow."""
    rounds, target = range(1, -(-rule.maximum // per_round) + 1), rule.target(0)

    def stops(n: int) -> bool:
        return target is None or width(min(n * per_round, rule.maximum)) <= target

    return min((bisect_left(rounds, True, key=stops) + 1) * per_round, rule.maximum)


def _describe_truncation(tally: Cases) -> str:
    return f"{tally.truncated:,} of {tally.cases:,} answers were cut off ({tally.truncation:.1%})"


def _describe_effective_size(counts: Tally | Ratings) -> str:
    """Name the effective number of answers if repetitions made it smaller than their number."""
    if isinstance(counts, Ratings) or counts.effective is None or round(counts.effective) >= counts.total:
        return ""
    return f" (worth {counts.effective:,.0f} answers to different items)"


def _describe_width(width: float | None, counts: Cases) -> str:
    if width is not None:
        return f"the interval is ±{width:.4f}"
    return "no rating was read" if isinstance(counts, Ratings) else "nothing is known beyond guessing"
